"""What a table does for itself: after a write, each service that is due does one bounded step, in the writer's process.

A step is a transaction like any other.  The write stands whatever happens in it: its errors become warnings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from mdt import logs
from mdt.config import Options
from mdt.errors import MdtError
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import Snapshot
from mdt.services import cleaning, small_files

Step = Callable[[Metadata, Snapshot, Options], bool]
"""Looks in the newest snapshot whether its service is due, which costs next to nothing, and if so does a bounded part of the work; returns
whether it did."""

STEPS: Sequence[tuple[str, Step]] = (
    ("compact", small_files.compact),
    ("compact_logs", small_files.compact_logs),
    ("join", small_files.join),
    ("clean", cleaning.step),
)
"""Name and step of each service, in the order in which they run."""
EVERYWHERE: Sequence[tuple[str, Step]] = (
    ("compact", partial(small_files.compact, everywhere=True)),
    ("compact_logs", partial(small_files.compact_logs, everywhere=True)),
    ("join", partial(small_files.join, everywhere=True)),
    ("clean", cleaning.step),
)
"""The same for who looks after tables that others write: steps that look at the whole table."""


def tidy(metadata: Metadata, options: Options) -> tuple[str, ...]:
    """Let every service that is due do one step; return what went wrong."""
    if not options.services_auto:
        return ()
    return _steps(metadata, options, STEPS, metadata.known())[1]


def run_due(metadata: Metadata, options: Options) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Let every service that is due anywhere in the table do one step; return which did something, and what went wrong."""
    return _steps(metadata, options, EVERYWHERE)


def _steps(
    metadata: Metadata, options: Options, steps: Sequence[tuple[str, Step]], snapshot: Snapshot | None = None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    done, warnings = [], []
    for name, step in steps:
        try:
            if snapshot is None:
                snapshot = metadata.newest(watched=False)
            if step(metadata, snapshot, options):
                done.append(name)
                snapshot = None
        except MdtError as error:
            snapshot = None
            warnings.append(f"{name} did not run: {error}")
            logs.SERVICE.warning("%s: %s", metadata.newest(watched=False).definition.name, warnings[-1])
    return tuple(done), tuple(warnings)
