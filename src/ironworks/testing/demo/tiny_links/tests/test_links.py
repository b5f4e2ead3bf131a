from tiny_links.links import Links


def test_a_code_leads_to_its_address():
    links = Links()
    codes = [links.shorten(f"https://example.com/{page}") for page in range(3)]
    assert [links.follow(code) for code in codes] == [f"https://example.com/{page}" for page in range(3)]


def test_nobody_made_it():
    assert Links().follow("nope") is None


def test_clicks_are_counted():
    links = Links()
    links.shorten("https://example.com/first")
    code = links.shorten("https://example.com/second")
    links.follow(code)
    links.follow(code)
    assert links.clicks(code) == 2


def test_length():
    links = Links()
    links.shorten("https://example.com/a")
    links.shorten("https://example.com/b")
    assert len(links) == 2
