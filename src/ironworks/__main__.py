"""`python -m ironworks` is the same program as `ironworks`."""

from ironworks.cli import main

if __name__ == "__main__":
    main()
