"""Check of Hudi's metadata table that our commits keep: it lists the files of the table, with our
statistics and the file group of each record key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from mdt.commit import publish
from mdt.commit.hudi_metadata import is_kept
from mdt.commit.metadata_partitions import PARTITIONS, remove_metadata_table
from mdt.errors import MdtError
from mdt.hudi.metadata_table_files import COLUMN_STATS, RECORD_INDEX
from mdt.hudi.read.loading import load_properties, load_timeline
from mdt.hudi.read.metadata_state import FOLDER, load_metadata_table
from mdt.hudi.read.metadata_table import Listing, load_files_from_metadata
from mdt.metadata import references
from mdt.metadata.files import paths
from mdt.metadata.history.foreign_writers import read_properties
from mdt.services.checking import hudi_locations, hudi_statistics
from mdt.services.checking.problems import Kind, Problem
from mdt.services.checking.state import Repair, TableState


def check(state: TableState) -> Iterator[Problem]:
    """Compare the files that Hudi lists with those of the readable snapshots. O(files).

    Nothing is compared for older states, or while a commit is not published yet.
    """
    if not is_kept(state.snapshot):
        return
    try:
        problems = list(_compare(state))
    except MdtError as error:
        problems = [Problem.from_error(error)]
    if problems and _is_newest(state):
        yield from problems


def _is_newest(state: TableState) -> bool:
    """Return True if there is no later commit, which may already be in the metadata table."""
    return state.metadata.newest(watched=False).seq == state.snapshot.seq


def rebuild(repair: Repair, problems: Sequence[Problem]) -> None:
    """Remove the metadata table. Hudi's readers list files until the next commit makes it again."""
    remove_metadata_table(repair.metadata)
    repair.note(FOLDER, "removed Hudi's metadata table; the next commit makes it again")


def _sizes(listing: Listing) -> dict[str, int]:
    """Return path -> size in bytes."""
    return {
        paths.data_file(folder, name): size
        for folder, names in listing.items()
        for name, size in names.items()
    }


def _compare(state: TableState) -> Iterator[Problem]:
    metadata, snapshot, storage = state.metadata, state.snapshot, state.storage
    if not _is_newest(state):
        return
    partitions = (read_properties(storage) or {}).get(PARTITIONS)
    if not partitions:
        return  # the next commit makes it
    record = metadata.record(snapshot.seq)
    if record is not None and not publish.is_published(storage, record, snapshot.definition):
        return
    timeline = load_timeline(storage, load_properties(storage))
    listing = load_files_from_metadata(storage, timeline)
    if listing is None:
        text = "Hudi's metadata table lacks commits; the next commit makes it anew"
        yield Problem(FOLDER, -1, text, Kind.LISTING)
        return
    listed, files = _sizes(listing), _sizes(references.hudi_files(metadata, snapshot))
    for path in sorted(files):
        if listed.get(path) != files[path]:
            text = f"Hudi's metadata table lists {listed.get(path)} bytes instead of {files[path]}"
            yield Problem(path, -1, text, Kind.LISTING)
    others = sorted(listed.keys() - files.keys())
    sizes = storage.each(partial(storage.size, path) for path in others)
    for path, size in zip(others, sizes, strict=True):
        if size is None:
            yield Problem(path, -1, "Hudi's metadata table lists a missing file", Kind.LISTING)
    table = load_metadata_table(storage)
    if table is None:
        return  # another process has removed it
    if COLUMN_STATS in partitions.split(","):
        yield from hudi_statistics.compare(metadata, snapshot, table, timeline)
    if RECORD_INDEX in partitions.split(","):
        yield from hudi_locations.compare(metadata, snapshot, table, timeline)
