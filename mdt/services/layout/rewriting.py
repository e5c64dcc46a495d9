"""Where services write rows anew: in this process, or in the tasks of an engine
(:mod:`mdt.engines.rewriting`).

A service says what to write by a function and a sequence of units; whoever runs it may cut the
sequence and call the function for each part, elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from mdt.commit.operation import Changes
from mdt.metadata.files import paths
from mdt.metadata.files.file_group import NewFile
from mdt.progress import Progress
from mdt.stores.object_range import ObjectRange
from mdt.write.new_files import WriteJob

U = TypeVar("U")

Rewrite = Callable[[WriteJob, Sequence[U], str, "Progress | None"], Changes]
"""Writes some units and returns what it has written; can be pickled.  The text tells the objects of
several calls apart.

What it puts into ``extra`` are lists, which are concatenated in the order of the units.
"""

RewriteRunner = Callable[[WriteJob, Rewrite[Any], Sequence[Any], "Progress | None"], Changes]
"""Runs a rewrite of units, as a whole or in parts.  Raises Unavailable if tasks fail and may still
be writing.
"""


def left_out(changes: Changes, kept: Sequence[NewFile]) -> list[str]:
    """Return the paths of what nothing refers to if of ``changes`` only the files ``kept`` are
    committed: data files and attachments.
    """
    names = {file.name for file in kept}
    lost = [file for file in changes.files if file.name not in names]
    found = list(changes.extra.get("left_out", ()))
    found += [paths.partition_file(file.partition, file.name) for file in lost]
    return found + sorted(_attachments(lost) - _attachments(kept))


def _attachments(files: Sequence[NewFile]) -> set[str]:
    found = set[str]()
    for file in files:
        summaries = [summary for _, summary in file.shard.summaries]
        found.update(
            one.path
            for one in (file.key_map, file.page_map, *summaries)
            if isinstance(one, ObjectRange)
        )
    return found


def in_process(
    shared: WriteJob, rewrite: Rewrite[Any], work: Sequence[Any], progress: Progress | None
) -> Changes:
    """Run ``rewrite`` here, on its own threads."""
    return rewrite(shared, work, "", progress)
