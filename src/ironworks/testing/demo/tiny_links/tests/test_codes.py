import pytest

from tiny_links.codes import encode


@pytest.mark.parametrize(("number", "code"), [(1, "1"), (10, "a"), (61, "Z"), (62, "10"), (3843, "ZZ")])
def test_encode(number, code):
    assert encode(number) == code


def test_no_two_numbers_share_a_code():
    assert len({encode(number) for number in range(5000)}) == 5000
