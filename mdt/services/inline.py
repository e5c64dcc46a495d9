"""What a table does for itself: after a write, each service that is due does one bounded step, in the writer's process.

A step is a transaction like any other.  The write stands whatever happens in it: its errors become warnings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mdt import logs
from mdt.config import Options
from mdt.errors import MdtError
from mdt.metadata.metadata import Metadata
from mdt.services import cleaning

Step = Callable[[Metadata, Options], object]
"""Looks whether its service is due, which costs next to nothing, and if so does a bounded part of the work."""

STEPS: Sequence[tuple[str, Step]] = (("clean", cleaning.step),)
"""Name and step of each service, in the order in which they run."""


def tidy(metadata: Metadata, options: Options) -> tuple[str, ...]:
    """Let every service that is due do one step; return what went wrong."""
    if not options.services_auto:
        return ()
    warnings = []
    for name, step in STEPS:
        try:
            step(metadata, options)
        except MdtError as error:
            warnings.append(f"{name} did not run: {error}")
            logs.SERVICE.warning("%s: %s", metadata.newest(watched=False).definition.name, warnings[-1])
    return tuple(warnings)
