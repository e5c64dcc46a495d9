"""Interface between services that rewrite rows and the place where they run.

Rows are rewritten in this process, or in tasks of an engine (:mod:`mdt.engines.rewriting`). A
service provides a function and a sequence of units. A runner may divide the sequence and call the
function elsewhere for each part.
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
"""Rewrites units and returns the changes. Must be picklable. The text argument makes the object
names of several calls distinct.

Values in ``extra`` are lists, which are concatenated in the order of the units.
"""

RewriteRunner = Callable[[WriteJob, Rewrite[Any], Sequence[Any], "Progress | None"], Changes]
"""Runs a rewrite of all units, at once or in parts. Raises Unavailable if tasks fail and may still
be writing.
"""


def left_out(changes: Changes, committed: Sequence[NewFile]) -> list[str]:
    """Return the paths of files that become garbage if only ``committed`` is committed.

    Includes data files and attachments.
    """
    names = {file.name for file in committed}
    dropped = [file for file in changes.files if file.name not in names]
    garbage = list(changes.extra.get("left_out", ()))
    garbage += [paths.partition_file(file.partition, file.name) for file in dropped]
    return garbage + sorted(_attachments(dropped) - _attachments(committed))


def _attachments(files: Sequence[NewFile]) -> set[str]:
    attached = set[str]()
    for file in files:
        summaries = [summary for _, summary in file.shard.summaries]
        attached.update(
            stored.path
            for stored in (file.key_map, file.page_map, *summaries)
            if isinstance(stored, ObjectRange)
        )
    return attached


def in_process(
    shared: WriteJob, rewrite: Rewrite[Any], units: Sequence[Any], progress: Progress | None
) -> Changes:
    """Run ``rewrite`` in this process, on its own threads."""
    return rewrite(shared, units, "", progress)
