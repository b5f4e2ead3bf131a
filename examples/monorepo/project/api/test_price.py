from price import price


def test_price():
    assert price(250) == {"cents": 250}
