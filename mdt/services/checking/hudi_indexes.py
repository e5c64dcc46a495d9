"""Check of the indexes in Hudi's metadata table against the rows and files of the table.

Entries that contradict the table are reported by partition of the metadata table, with a few
examples. A metadata table that is out of step with the timeline is reported with the instants that
it lacks, and its indexes are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import flags, one_array
from mdt.errors import Corrupt, Unsupported
from mdt.hudi import secondary_index_records
from mdt.hudi.avro_schema import RECORD_KEY
from mdt.hudi.plain_arrays import plain
from mdt.hudi.read.column_statistics import (
    COLUMN_STATS,
    FileColumn,
    column_statistics,
    comparable,
)
from mdt.hudi.read.index_partition import IndexPartition
from mdt.hudi.read.key_indexes import (
    RECORD_INDEX,
    KeyIndexes,
    SecondaryIndex,
    load_secondary_indexes,
)
from mdt.hudi.read.loading import load_properties, load_timeline
from mdt.hudi.read.metadata_state import FOLDER, HINT, load_metadata_table
from mdt.importing.imported_storage import ImportedStorage
from mdt.parquet.segment_rows import live_mask
from mdt.services.checking.problems import Problem
from mdt.services.checking.state import TableState

_SHOWN = 3
"""Examples of each kind of contradiction."""
_BETWEEN = "\0"
"""Separates a partition and a key, which do not contain it."""


class IndexCheck:
    """Collects what the indexes are compared with, while all files are read."""

    def __init__(self, state: TableState) -> None:
        self._state = state
        self._problems = list[Problem]()
        self._statistics: dict[tuple[str, str], FileColumn] = {}
        self._columns: dict[tuple[str, str], list[Any]] = {}
        self._indexes: KeyIndexes | None = None
        self._rows = list[pa.Table]()
        try:
            self._open()
        except (Corrupt, Unsupported) as error:
            self._problems.append(Problem.from_error(error, FOLDER))

    def _open(self) -> None:
        storage, snapshot = self._state.storage, self._state.snapshot
        assert isinstance(storage, ImportedStorage), "only tables of other writers"
        table = load_properties(storage.source)
        if not table.metadata_partitions:
            return
        data = load_timeline(storage.source, table)
        metadata = load_metadata_table(storage.source)
        if metadata is None:
            return
        if metadata.missing_instants(data):  # readers do not use it
            lost = metadata.lost_instants(storage.source, data)
            text = f"Hudi's metadata table lacks instants of the timeline: {_examples(lost)}"
            if lost:
                self._problems.append(Problem(FOLDER, f"{text}; {HINT}"))
            return
        load_secondary_indexes(storage.source, table)  # raises for damaged definitions
        self._indexes = storage.key_indexes(snapshot.seq)
        if COLUMN_STATS in table.metadata_partitions:
            names = snapshot.listing()["name"].to_pylist()
            partition = IndexPartition(storage.source, metadata, data, COLUMN_STATS)
            self._statistics = column_statistics(partition, names)

    def add(self, number: int, first_row: int, rows: pa.Table) -> None:
        """Add all columns of a row group.

        Args:
            number: Number of the file.
            first_row: Position of its first row.
        """
        segment = self._state.snapshot.segment(number)
        name = segment.path.rpartition("/")[2]
        for column in rows.column_names:
            if (name, column) in self._statistics and not pa.types.is_nested(rows[column].type):
                self._columns.setdefault((name, column), []).append(_range_of(rows[column]))
        if self._indexes is not None and not self._indexes.problem(RECORD_INDEX):
            columns = [RECORD_KEY, *self._indexes.secondary]
            part = rows.select([name for name in columns if name in rows.column_names])
            part = part.append_column("file", pa.repeat(number, len(rows)))
            live = live_mask(len(rows), self._state.snapshot.vector(number), first_row)
            self._rows.append(part if live is None else part.filter(pa.array(live)))

    def lack_rows(self) -> None:
        """Do not compare indexes of rows, because rows cannot be read."""
        self._indexes = None

    def problems(self) -> Iterator[Problem]:
        """Yield the problems, when all files were added."""
        yield from self._problems
        excluded = list(self._excluded_values())
        if excluded:
            text = f"statistics exclude values of {len(excluded):,} columns of files"
            yield Problem(f"{FOLDER}/{COLUMN_STATS}", f"{text}: {_examples(excluded)}")
        if self._indexes is None or not self._rows:
            return
        rows = pa.concat_tables(self._rows)
        checks = [(RECORD_INDEX, compare_records(self._indexes, self._locations(rows)))]
        for index in self._indexes.secondary.values():
            if index.column in rows.column_names:
                values = rows.select([RECORD_KEY, index.column]).rename_columns(["key", "value"])
                checks.append((index.name, compare_values(self._indexes, index, values)))
        for name, contradictions in checks:
            path = f"{FOLDER}/{name}"
            try:
                for text, examples in contradictions:
                    if len(examples):
                        text = f"{text} ({len(examples):,}): {_examples(examples)}"
                        yield Problem(path, text)
            except (Corrupt, Unsupported) as error:
                yield Problem.from_error(error, path)

    def _excluded_values(self) -> Iterator[str]:
        """Yield a text for each column of a file whose statistics exclude some of its values."""
        for (name, column), ranges in self._columns.items():
            statistics = self._statistics[name, column]
            rows, nulls = (sum(part[place] for part in ranges) for place in (2, 3))
            lows, highs = (
                [part[place] for part in ranges if part[place].is_valid] for place in (0, 1)
            )
            where = f"{column!r} of {name}"
            if nulls and not statistics.nulls:
                yield f"{where} has {nulls:,} nulls, not 0"
            if nulls < rows and statistics.nulls == statistics.rows:
                yield f"{where} has values"
            bounds = statistics.bounds(lows[0].type) if lows else None
            if bounds is None:
                continue
            for values, is_inside in ((lows, bounds[0].__le__), (highs, bounds[1].__ge__)):
                outside = [value for value in values if _is_outside(value, is_inside)]
                if outside:
                    yield f"{where} has {outside[0].as_py()!r}"

    def _locations(self, rows: pa.Table) -> pa.Table:
        """Return the key of each row and its file group."""
        snapshot = self._state.snapshot
        files = snapshot.files.take(["partition", "file_id"], np.arange(snapshot.numbered))
        return files.take(rows["file"]).append_column("key", rows[RECORD_KEY])


def compare_records(indexes: KeyIndexes, rows: pa.Table) -> Iterator[tuple[str, pa.Array]]:
    """Yield each kind of contradiction of the record index, with the record keys.

    Args:
        rows: ``key``, ``partition`` and ``file_id`` of all live rows.
    """
    records = indexes.records(RECORD_INDEX)
    keys, known = plain(rows["key"]), plain(records["key"])
    if indexes.is_partitioned:  # a key may be in several
        keys, known = (_with_partition(table) for table in (rows, records))
    place = pc.index_in(keys, known)
    yield "rows without a record", keys.filter(place.is_null())
    in_place = [
        pc.equal(plain(records[name]).take(place), plain(rows[name]))
        for name in ("partition", "file_id")
    ]
    is_elsewhere = pc.and_not(place.is_valid(), pc.and_(*in_place).fill_null(False))
    yield "rows in another file group than their record says", keys.filter(is_elsewhere)
    yield "records without a row", known.filter(pc.invert(pc.is_in(known, keys)))


def _with_partition(rows: pa.Table) -> pa.Array:
    return pc.binary_join_element_wise(plain(rows["partition"]), plain(rows["key"]), _BETWEEN)


def compare_values(
    indexes: KeyIndexes, index: SecondaryIndex, rows: pa.Table
) -> Iterator[tuple[str, pa.Array]]:
    """Yield each kind of contradiction of a secondary index, with the keys of its records.

    Args:
        rows: ``key`` and ``value`` of all live rows.
    """
    if not secondary_index_records.supports(rows["value"].type):
        return
    known, keys = one_array(indexes.records(index.name)["key"]), secondary_index_records.keys(rows)
    is_known = np.any([flags(pc.is_in(form, known)) for form in keys], axis=0)
    yield "rows without a record", keys[0].filter(pa.array(~is_known))
    yield "records without a row", known.filter(pc.invert(pc.is_in(known, pa.concat_arrays(keys))))


def _examples(texts: Any) -> str:
    shown = ", ".join(str(text).replace(_BETWEEN, "/") for text in texts[:_SHOWN])
    return f"{shown} and {len(texts) - _SHOWN:,} more" if len(texts) > _SHOWN else shown


def _range_of(values: pa.ChunkedArray) -> tuple[pa.Scalar, pa.Scalar, int, int]:
    """Return the smallest and the largest value, the number of rows, and that of nulls."""
    try:
        bounds = pc.min_max(values)
    except pa.ArrowNotImplementedError:
        bounds = {"min": pa.scalar(None), "max": pa.scalar(None)}
    return bounds["min"], bounds["max"], len(values), values.null_count


def _is_outside(scalar: pa.Scalar, is_inside: Any) -> bool:
    value = comparable(scalar)
    return value is not None and is_inside(value) is False
