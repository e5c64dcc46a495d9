"""Check of a table that other Hudi writers share: the log has the files of Hudi's timeline, and
indexes in Hudi's metadata table have the keys of their rows.
"""

from __future__ import annotations

from collections.abc import Iterator

from mdt.errors import MdtError
from mdt.hudi.read.loading import load_properties, load_timeline
from mdt.hudi.read.metadata_state import load_metadata_table
from mdt.hudi.read.table_state import load_state
from mdt.importing.imported_steps import changed_groups, placed_slices
from mdt.services.checking import hudi_locations
from mdt.services.checking.problems import Kind, Problem
from mdt.services.checking.state import TableState


def check(state: TableState) -> Iterator[Problem]:
    """Compare the files of the log with the file slices that Hudi's readers see, and if they are
    equal, the rows with the indexes of keys and values. O(rows).

    Nothing is compared while a writer is at work, because readers cannot tell its log blocks by
    their names, and for older states.
    """
    if not state.snapshot.is_shared:
        return
    try:
        yield from _compare(state)
    except MdtError as error:
        yield Problem.from_error(error)


def _compare(state: TableState) -> Iterator[Problem]:
    snapshot, storage = state.snapshot, state.storage
    table = load_properties(storage)
    hudi = load_state(storage, table)
    if hudi.timeline.pending or state.metadata.newest(watched=False).seq != snapshot.seq:
        return
    changed = changed_groups(placed_slices(snapshot), hudi.slices, all_change=False)
    if load_timeline(storage, table).files != hudi.timeline.files:
        return  # a writer has committed meanwhile
    for partition, file_id in changed:
        text = f"file group {file_id} has other files in the log than on Hudi's timeline"
        yield Problem(partition or storage.url, text, Kind.TABLE)
    indexed = load_metadata_table(storage) if table.metadata_partitions else None
    if not changed and indexed is not None and not indexed.problem(hudi.timeline):
        yield from hudi_locations.compare(state.metadata, snapshot, indexed, hudi.timeline, table)
