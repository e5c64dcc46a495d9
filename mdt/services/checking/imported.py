"""Check of a table that other Hudi writers wrote: all of its rows can be read."""

from __future__ import annotations

from collections.abc import Iterator

from mdt.errors import Corrupt
from mdt.hudi.avro_schema import with_meta
from mdt.metadata.files.segment_columns import read_columns
from mdt.progress import Progress, report_each
from mdt.services.checking.problems import Problem
from mdt.services.checking.state import TableState


def check(state: TableState, progress: Progress | None = None) -> Iterator[Problem]:
    """Yield the problems of a table of other writers. Reads all rows."""
    numbers = state.snapshot.live_numbers.tolist()
    of_files = (list(_check_file(state, number)) for number in numbers)
    for problems in report_each(of_files, len(numbers), progress):
        yield from problems


def _check_file(state: TableState, number: int) -> Iterator[Problem]:
    segment = state.snapshot.segment(number)
    schema = with_meta(state.definition.schema)
    for row_group in range(len(segment.row_groups)):
        try:
            read_columns(state.storage, state.definition, segment, schema, row_groups=[row_group])
        except Corrupt as error:
            yield Problem.from_error(error, segment.path)
