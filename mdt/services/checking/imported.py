"""Check of a table that other Hudi writers wrote: all of its rows can be read, and Hudi's own
metadata table lists the files that exist.
"""

from __future__ import annotations

from collections.abc import Iterator

from mdt.errors import Corrupt
from mdt.hudi.avro_schema import with_meta
from mdt.hudi.read.file_slices import FileSlice
from mdt.hudi.read.loading import load_files, load_properties
from mdt.hudi.read.metadata_state import FOLDER
from mdt.hudi.read.metadata_table import FILES
from mdt.hudi.read.table_state import load_state
from mdt.importing.imported_storage import ImportedStorage
from mdt.metadata.files.segment_columns import read_columns
from mdt.progress import Progress, report_each
from mdt.services.checking.hudi_indexes import IndexCheck
from mdt.services.checking.problems import Problem
from mdt.services.checking.state import TableState


def check(state: TableState, progress: Progress | None = None) -> Iterator[Problem]:
    """Yield the problems of a table of other writers. Reads all rows."""
    yield from _check_listing(state)
    numbers = state.snapshot.live_numbers.tolist()
    indexes = IndexCheck(state)
    of_files = (list(_check_file(state, number, indexes)) for number in numbers)
    for problems in report_each(of_files, len(numbers), progress):
        yield from problems
    yield from indexes.problems()


def _check_listing(state: TableState) -> Iterator[Problem]:
    """Compare the file slices by Hudi's metadata table with those by a listing.

    Nothing is reported if a writer changed the table meanwhile.
    """
    assert isinstance(state.storage, ImportedStorage), "only tables of other writers"
    source = state.storage.source
    table = load_properties(source)
    if FILES not in table.metadata_partitions:
        return
    by_metadata = load_state(source, table)
    by_listing = load_state(source, table, files=load_files(source))
    if by_metadata.timeline.files != by_listing.timeline.files:
        return
    listed = {(one.partition, one.file_id): one for one in by_listing.slices}
    named = {(one.partition, one.file_id): one for one in by_metadata.slices}
    for group in sorted(listed.keys() | named.keys()):
        if listed.get(group) != named.get(group):
            partition, file_id = group
            text = (
                f"Hudi's metadata table and the files disagree about file group {file_id}:"
                f" {_names(named.get(group))} instead of {_names(listed.get(group))}"
            )
            yield Problem(FOLDER, -1, f"{text} in {partition or 'the table'}")


def _names(file_slice: FileSlice | None) -> str:
    if file_slice is None:
        return "no files"
    base = [] if file_slice.base is None else [file_slice.base]
    return ", ".join(f"{file.name} ({file.size} bytes)" for file in (*base, *file_slice.logs))


def _check_file(state: TableState, number: int, indexes: IndexCheck) -> Iterator[Problem]:
    """Read the row groups of a file, and give the rows to ``indexes``."""
    segment = state.snapshot.segment(number)
    schema = with_meta(state.definition.schema)
    first_row = 0
    for row_group, count in enumerate(segment.row_groups):
        if not count:  # its column chunks have no place in the file
            continue
        try:
            rows = read_columns(
                state.storage, state.definition, segment, schema, row_groups=[row_group]
            )
            indexes.add(number, first_row, rows)
        except Corrupt as error:
            indexes.lack_rows()
            yield Problem.from_error(error, segment.path)
        first_row += count
