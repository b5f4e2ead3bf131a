"""Run the tests and write a JUnit report: `python3 check.py REPORT.xml`. Exit 1 when one fails."""

import sys
import unittest
from xml.sax.saxutils import quoteattr


class Result(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.cases = {}

    def addSuccess(self, test):
        self.cases[test.id()] = ("passed", "")

    def addSkip(self, test, reason):
        self.cases[test.id()] = ("skipped", reason)

    def addFailure(self, test, error):
        self.cases[test.id()] = ("failure", self._exc_info_to_string(error, test))
        super().addFailure(test, error)

    def addError(self, test, error):
        self.cases[test.id()] = ("error", self._exc_info_to_string(error, test))
        super().addError(test, error)


def main(path):
    result = Result()
    unittest.defaultTestLoader.discover(".", top_level_dir=".").run(result)
    with open(path, "w", encoding="utf-8") as report:
        report.write(f'<testsuites><testsuite name="till" tests="{len(result.cases)}">\n')
        for name, (outcome, text) in sorted(result.cases.items()):
            place, _, test = name.rpartition(".")
            report.write(f"<testcase classname={quoteattr(place)} name={quoteattr(test)}>")
            if outcome != "passed":
                tag = "skipped" if outcome == "skipped" else outcome
                report.write(f"<{tag} message={quoteattr(text[-2000:])}/>")
                print(f"{outcome} {name}\n{text}")
            report.write("</testcase>\n")
        report.write("</testsuite></testsuites>\n")
    print(f"{len(result.cases)} tests, {len(result.failures) + len(result.errors)} bad")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
