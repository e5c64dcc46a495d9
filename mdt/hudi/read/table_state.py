"""The state of a table at one moment: its timeline and the newest file slices."""

from __future__ import annotations

from mdt.hudi.read.file_slices import Files
from mdt.hudi.read.instants import Timeline
from mdt.hudi.read.loading import TableState, load_files, load_timeline, state_of
from mdt.hudi.read.metadata_table import FILES, load_files_from_metadata
from mdt.hudi.read.table_properties import TableProperties
from mdt.stores.storage import Storage


def load_state(
    objects: Storage,
    table: TableProperties,
    *,
    timeline: Timeline | None = None,
    files: Files | None = None,
    at: str = "",
) -> TableState:
    """Return the state of a table.

    Args:
        timeline: The table's timeline, if it was just loaded.
        files: Files of the partitions to read, listed after this call began. None to read all from
            Hudi's metadata table or, if the table has none, from storage.
        at: Return the slices as of this instant, inclusive.

    Raises Corrupt and Missing. After Missing, a new call may succeed if a writer is active.
    """
    if timeline is None:
        timeline = load_timeline(objects, table)
    if files is None:
        files = load_names(objects, table, timeline)
    return state_of(objects, table, timeline, files, at)


def load_names(objects: Storage, table: TableProperties, timeline: Timeline) -> Files:
    """Return the files of all partitions, listed after ``timeline`` was loaded.

    They come from Hudi's metadata table or, if the table has none, from storage.

    Raises Corrupt and Missing.
    """
    files = None
    if FILES in table.metadata_partitions:
        files = load_files_from_metadata(objects, timeline)
    return load_files(objects) if files is None else files
