"""Check of Hudi's metadata table that our commits keep: it lists the files of the table.

If no other writer keeps it, it has our statistics and the file group of each record key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from mdt.commit import publish
from mdt.commit.hudi_metadata import is_kept
from mdt.commit.metadata_partitions import PARTITIONS, remove_metadata_table
from mdt.commit.shared_metadata import is_shared
from mdt.errors import MdtError
from mdt.hudi.metadata_table_files import BLOOM_FILTERS, COLUMN_STATS
from mdt.hudi.read.file_slices import FileSlice
from mdt.hudi.read.loading import TableState as SlicesState
from mdt.hudi.read.loading import load_files, load_properties, load_timeline
from mdt.hudi.read.log_blocks import LogBlock, live_blocks, load_blocks
from mdt.hudi.read.metadata_state import FOLDER, load_metadata_table
from mdt.hudi.read.metadata_table import FILES, Listing, load_files_from_metadata
from mdt.hudi.read.table_state import load_state
from mdt.metadata import references
from mdt.metadata.files import paths
from mdt.metadata.history.foreign_writers import read_properties
from mdt.services.adoption.metadata_removal import remove
from mdt.services.checking import hudi_locations, hudi_statistics
from mdt.services.checking.problems import Kind, Problem
from mdt.services.checking.state import Repair, TableState
from mdt.stores.storage import Storage


def check(state: TableState) -> Iterator[Problem]:
    """Compare the files that Hudi lists with those of the readable snapshots. O(files).

    Nothing is compared for older states, or while a commit is not published yet.
    """
    compare = _compare if is_kept(state.snapshot) else _compare_shared
    if not (is_kept(state.snapshot) or is_shared(state.metadata, state.snapshot)):
        return
    try:
        problems = list(compare(state))
    except MdtError as error:
        problems = [Problem.from_error(error)]
    if problems and _is_newest(state):
        yield from problems


def _compare_shared(state: TableState) -> Iterator[Problem]:
    """Compare a metadata table that other writers keep, too."""
    storage = state.storage
    data = load_timeline(storage, load_properties(storage))
    table = load_metadata_table(storage)
    lost = [] if table is None else table.lost_instants(storage, data)
    if lost:
        text = f"Hudi's metadata table lacks instants of the timeline: {', '.join(lost[:3])}"
        yield Problem(FOLDER, text, Kind.LISTING)
    yield from compare_slices(storage)


def compare_slices(source: Storage) -> Iterator[Problem]:
    """Compare the file slices by Hudi's metadata table with those by a listing.

    Nothing is reported if a writer changed the table meanwhile.
    """
    table = load_properties(source)
    if FILES not in table.metadata_partitions:
        return
    by_metadata = load_state(source, table)
    by_listing = load_state(source, table, files=load_files(source))
    if by_metadata.timeline.files != by_listing.timeline.files:
        return
    listed = {
        (file_slice.partition, file_slice.file_id): file_slice for file_slice in by_listing.slices
    }
    named = {
        (file_slice.partition, file_slice.file_id): file_slice for file_slice in by_metadata.slices
    }
    for group in sorted(listed.keys() | named.keys()):
        if _differ(source, by_listing, listed.get(group), named.get(group)):
            partition, file_id = group
            text = (
                f"Hudi's metadata table and the files disagree about file group {file_id}:"
                f" {_names(named.get(group))} instead of {_names(listed.get(group))}"
            )
            yield Problem(FOLDER, f"{text} in {partition or 'the table'}", Kind.LISTING)


def _differ(
    source: Storage, state: SlicesState, listed: FileSlice | None, named: FileSlice | None
) -> bool:
    """Return True if a slice by a listing and one by the metadata table have different rows.

    In version 6, a listing also has the log files of dead writers.
    """
    if listed == named:
        return False
    if listed is None or state.table.layout != 1:
        return True
    base, logs = (None, ()) if named is None else (named.base, named.logs)
    if listed.base != base or not {*logs} <= {*listed.logs}:
        return True
    blocks: list[LogBlock] = []
    for log in listed.logs:
        blocks += load_blocks(source, listed.path(log), log.size)
    unnamed = {listed.path(log) for log in listed.logs if log not in logs}
    return any(block.path in unnamed for block in live_blocks(blocks, state.timeline.is_completed))


def _names(file_slice: FileSlice | None) -> str:
    if file_slice is None:
        return "no files"
    base = [] if file_slice.base is None else [file_slice.base]
    return ", ".join(f"{file.name} ({file.size} bytes)" for file in (*base, *file_slice.logs))


def _is_newest(state: TableState) -> bool:
    """Return True if there is no later commit, which may already be in the metadata table."""
    return state.metadata.newest(watched=False).seq == state.snapshot.seq


def rebuild(repair: Repair, problems: Sequence[Problem]) -> None:
    """Remove the metadata table. Hudi's readers list files until the next commit makes it again, or
    the next one of Hudi's writers in a shared table.
    """
    newest = repair.metadata.newest()
    if newest.is_shared:
        remove(repair.metadata, newest)
    else:
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
    properties = load_properties(storage)
    timeline = load_timeline(storage, properties)
    listing = load_files_from_metadata(storage, timeline)
    if listing is None:
        text = "Hudi's metadata table lacks commits; the next commit makes it anew"
        yield Problem(FOLDER, text, Kind.LISTING)
        return
    listed, files = _sizes(listing), _sizes(references.hudi_files(metadata, snapshot))
    for path in sorted(files):
        if listed.get(path) != files[path]:
            text = f"Hudi's metadata table lists {listed.get(path)} bytes instead of {files[path]}"
            yield Problem(path, text, Kind.LISTING)
    others = sorted(listed.keys() - files.keys())
    sizes = storage.each(partial(storage.size, path) for path in others)
    for path, size in zip(others, sizes, strict=True):
        if size is None:
            yield Problem(path, "Hudi's metadata table lists a missing file", Kind.LISTING)
    table = load_metadata_table(storage)
    if table is None:
        return  # another process has removed it
    if COLUMN_STATS in properties.metadata_partitions:
        yield from hudi_statistics.compare(metadata, snapshot, table, timeline)
    if BLOOM_FILTERS in properties.metadata_partitions:
        yield from hudi_statistics.compare_filters(metadata, snapshot, table, timeline)
    yield from hudi_locations.compare(metadata, snapshot, table, timeline, properties)
