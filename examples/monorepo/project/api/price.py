def price(cents):
    return {"cents": cents}
