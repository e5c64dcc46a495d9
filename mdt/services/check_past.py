"""A check of the past: what states that can be read need is there.  The newest state is read as a
whole, those before it are not.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from mdt.metadata import references
from mdt.metadata.files import paths
from mdt.metadata.history.tolerate_missing import begun_again
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.services.problem import Kind, Problem


def check_past(metadata: Metadata, snapshot: Snapshot) -> Iterator[Problem]:
    """Yield the data files and key maps that are gone and that only older states than ``snapshot``
    refer to.

    O(files and objects); no bytes of theirs are read.
    """
    wanted = _wanted(metadata)
    there = pa.array([info.path for info in metadata.storage.list("")], pa.string())
    live = snapshot.files.take(["partition", "name", "key_map_path"], snapshot.live_numbers)
    for column in (references.file_paths(live), live["key_map_path"]):
        there = pa.concat_arrays([there, *column.drop_null().chunks])
    gone = wanted.filter(pc.invert(pc.is_in(wanted, there)))
    if len(gone):  # others may have cleaned meanwhile
        gone = gone.filter(pc.is_in(gone, _wanted(metadata)))
    for path in gone.to_pylist():
        is_attachment = path.startswith(f"{paths.attachments_dir()}/")
        kind = Kind.ATTACHMENT if is_attachment else Kind.ROWS
        yield Problem(
            path, -1, "is gone, and states before the newest one cannot be read without it", kind
        )


def _wanted(metadata: Metadata) -> pa.Array:
    """Return the paths of the data files and key maps that states which can be read now refer to ->
    string[n].
    """
    return begun_again(lambda: references.of_files(metadata, metadata.newest()))
