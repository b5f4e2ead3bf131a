import unittest

from till.prices import average, total


class TestPrices(unittest.TestCase):
    def test_nothing_costs_nothing(self):
        self.assertEqual(total([]), 0)

    def test_average_of_nothing(self):
        self.assertEqual(average([]), 0)

    def test_average_of_equal_prices(self):
        self.assertEqual(average([0, 0]), 0)
