"""Check of a table that other Hudi writers wrote: all of its rows can be read, and Hudi's own
metadata table lists the files that exist.
"""

from __future__ import annotations

from collections.abc import Iterator

from mdt.errors import Corrupt
from mdt.hudi.avro_schema import with_meta
from mdt.importing.imported_storage import ImportedStorage
from mdt.parquet.segment_rows import read_columns
from mdt.progress import Progress, report_each
from mdt.services.checking.hudi_indexes import IndexCheck
from mdt.services.checking.hudi_listing import compare_slices
from mdt.services.checking.problems import Problem
from mdt.services.checking.state import TableState


def check(state: TableState, progress: Progress | None = None) -> Iterator[Problem]:
    """Yield the problems of a table of other writers. Reads all rows."""
    assert isinstance(state.storage, ImportedStorage), "only tables of other writers"
    yield from compare_slices(state.storage.source)
    numbers = state.snapshot.live_numbers.tolist()
    indexes = IndexCheck(state)
    problems_by_file = (list(_check_file(state, number, indexes)) for number in numbers)
    for problems in report_each(problems_by_file, len(numbers), progress):
        yield from problems
    yield from indexes.problems()


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
