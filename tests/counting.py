"""How many cases ran: tests call :func:`count`, and the summary at the end of the run prints the sums.

A pytest plugin: name it in ``pytest_plugins``.
"""

from __future__ import annotations

from collections import Counter

import pytest

_counts: Counter[str] = Counter()


def count(what: str, n: int = 1) -> None:
    """Add ``n`` cases of the kind ``what`` to the sums that the run prints at its end."""
    _counts[what] += n


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line for each kind of case."""
    if _counts:
        terminalreporter.section("cases that ran")
        for what, n in sorted(_counts.items()):
            terminalreporter.write_line(f"{n:>9,} {what}")
