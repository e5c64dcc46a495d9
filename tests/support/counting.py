"""Counts the cases that ran: tests call :func:`count`, and the summary at the end of the run prints
the sums.

A pytest plugin: name it in ``pytest_plugins``. With pytest-xdist, each process hands its sums to
the process that prints them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

_counts: Counter[str] = Counter()


def count(what: str, n: int = 1) -> None:
    """Add ``n`` cases of the kind ``what`` to the sums that the run prints at its end."""
    _counts[what] += n


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the sums of this process to the process that started it, if any."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["cases"] = dict(_counts)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add the sums that a process handed over when it ended. A crashed process has none."""
    _counts.update(getattr(node, "workeroutput", {}).get("cases", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line for each kind of case."""
    if _counts:
        terminalreporter.section("cases that ran")
        for what, n in sorted(_counts.items()):
            terminalreporter.write_line(f"{n:>9,} {what}")
