"""Parts of a run: each slow test stands in one of them, every other test in all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SLOW, FAST, NEVER_LEFT_OUT = (
    "tests/services/test_purge.py",
    "tests/test_bad_input.py",
    "tests/campaigns/test_pruning.py",
)


def collected(*options: str) -> list[str]:
    """Return what pytest would run of the three modules."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:randomly",
        SLOW,
        FAST,
        NEVER_LEFT_OUT,
        *options,
    ]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [line for line in told.splitlines() if line.startswith("tests/") and "::" in line]


def test_parts_together_have_each_slow_test_once_and_each_has_all_others() -> None:
    everything, first, second = collected(), collected("--part=1/2"), collected("--part=2/2")
    slow = {name for name in everything if name.startswith(SLOW)}
    parts = [slow.intersection(first), slow.intersection(second)]
    assert all(parts) and not parts[0] & parts[1] and parts[0] | parts[1] == slow
    others = set(everything) - slow
    assert others and others == set(first) - slow == set(second) - slow
