"""The tier of each test (quick, test or nightly), chosen by its recorded duration.

`make quick` runs the tests that took at most QUICK_SECONDS and do not use Spark.  `make test` adds
those that took at most TEST_SECONDS, and those in always.txt regardless of their duration.  `make
nightly` runs everything.  A test that is not recorded counts as quick, so a new test always runs.

`make durations` records, for each test that is not quick, a line ``seconds,id``:

    2.5,tests/services/test_cleaning.py::test_random_histories[MERGE_ON_READ]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

RECORDED = Path(__file__).with_name("durations.csv")
QUICK_SECONDS = 0.05
TEST_SECONDS = 0.45
ALWAYS = tuple(
    line
    for line in Path(__file__).with_name("always.txt").read_text().splitlines()
    if not line.startswith("#")
)
"""Prefixes of the ids of tests that `make test` always runs."""
_CLASS = re.compile(r"(?P<module>.*?\.test_\w+)(\.(?P<name>.*))?")


def recorded(text: str) -> dict[str, float]:
    """Parse lines ``seconds,id`` -> seconds by id.

    >>> recorded("2.5,tests/a/test_b.py::test_c[1,2]\\n")
    {'tests/a/test_b.py::test_c[1,2]': 2.5}
    """
    rows = (line.split(",", 1) for line in text.splitlines())
    return {test: float(seconds) for seconds, test in rows}


def tier(test: str, seconds: Mapping[str, float], *, uses_spark: bool) -> str:
    """Return the first of ``quick``, ``test`` and ``nightly`` that runs a test.

    >>> tier("tests/a/test_b.py::test_c", {}, uses_spark=False)
    'quick'
    >>> tier("tests/a/test_b.py::test_c", {"tests/a/test_b.py::test_c": 60}, uses_spark=False)
    'nightly'
    """
    taken = seconds.get(test, 0.0)
    if taken <= QUICK_SECONDS and not uses_spark:
        return "quick"
    if taken <= TEST_SECONDS or test.startswith(ALWAYS):
        return "test"
    return "nightly"


def reported(report: str) -> dict[str, float]:
    """Return the seconds in a JUnit report of pytest, by test id."""
    seconds = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        match = _CLASS.fullmatch(case.attrib["classname"])
        assert match is not None, case.attrib
        names = [match["module"].replace(".", "/") + ".py", match["name"], case.attrib["name"]]
        seconds["::".join(filter(None, names))] = float(case.attrib["time"])
    return seconds


def main(report: str) -> None:
    """Write durations.csv from the JUnit report of all tests at the path ``report``."""
    seconds = reported(Path(report).read_text())
    slow = sorted((test, taken) for test, taken in seconds.items() if taken > QUICK_SECONDS)
    RECORDED.write_text("".join(f"{taken:.2f},{test}\n" for test, taken in slow))


if __name__ == "__main__":
    main(sys.argv[1])
