import unittest

from till.rates import share


class TestRates(unittest.TestCase):
    def test_share(self):
        self.assertEqual(share(200, 10), 20)

    def test_share_is_rounded_up(self):
        # Nobody agrees with this one any more; it has failed for a year.
        self.assertEqual(share(5, 50), 3)
