"""Rewrites of base files that are too large for memory, row group by row group.

New rows and the rows of log files are held in memory. The bytes of the new file and its key map are
built in scratch files. The rows and their order are the same as in :mod:`mdt.write.new_files`,
which works in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from indexes.arrays import count_below, is_sorted
from indexes.base import Int64Array
from mdt.config import Options
from mdt.forking import cached_property
from mdt.hudi import base_file
from mdt.hudi.avro_schema import RECORD_KEY
from mdt.hudi.plain_arrays import plain
from mdt.hudi.record_keys import sort_keys, sort_permutation
from mdt.metadata.files import key_map
from mdt.metadata.files.large_key_map import LargeKeyMap
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.parquet import digests, page_map
from mdt.parquet.digests import footer_reference
from mdt.parquet.segment import Segment
from mdt.parquet.segment_rows import Footers, live_mask, read_columns
from mdt.session import Recent
from mdt.stores.malloc_trim import release_memory
from mdt.stores.scratch import Scratch, Sink
from mdt.write.encoded import Encoded
from mdt.write.footer_bloom import filling
from mdt.write.rewrite_rows import moved_schema, take_distinct, with_constants
from mdt.write.summarize import RowGroupSummaries

_FILE_SHARE = 32
"""A base file is large above this fraction (1/32) of ``mdt.write.memory.max``. A rewrite in memory
takes about ten times the file size, on each writer thread.
"""
_BUFFER_BYTES = 1 << 20
"""Buffer size of the scratch file. parquet-cpp writes each page separately."""


def is_large(segment: Segment, options: Options) -> bool:
    """Return True if a base file is rewritten row group by row group."""
    return len(segment.row_groups) > 1 and segment.size > options.write_memory_max // _FILE_SHARE


@dataclass(frozen=True)
class Base:
    """The live rows of a large base file, without the positions ``ended``.

    Attributes:
        number: Number of the file in the snapshot.
    """

    metadata: Metadata
    snapshot: Snapshot
    number: int
    ended: BitMap

    @cached_property
    def rows(self) -> int:
        """Number of the rows."""
        return self._segment.rows - len(self._dead)

    @cached_property
    def _segment(self) -> Segment:
        return self.snapshot.segment(self.number)

    @cached_property
    def _dead(self) -> BitMap:
        return (self.snapshot.vector(self.number) or BitMap()) | self.ended

    @cached_property
    def _footers(self) -> Footers:
        return Recent(1)

    def pieces(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the verified columns ``schema`` of each row group that contains such rows."""
        first = 0
        for number, rows in enumerate(self._segment.row_groups):
            live = live_mask(rows, self._dead, first)
            first += rows
            if live is None or live.any():
                yield read_columns(
                    self.metadata.storage,
                    self.snapshot.definition,
                    self._segment,
                    schema,
                    row_groups=[number],
                    mask=live,
                    footers=self._footers,
                )


@dataclass(frozen=True, slots=True)
class _BaseProperties:
    """Properties of a base file that must be known before it is rewritten.

    Attributes:
        rises: True if its rows are sorted by key.
        unbounded: Columns with NaN, which get no min/max in the footer.
    """

    rises: bool
    unbounded: frozenset[str]


def _inspect(base: Base) -> _BaseProperties:
    """Read the key and float columns, which determine the row order and the footer statistics."""
    key, schema = base.snapshot.definition.key, moved_schema(base.snapshot.definition)
    floats = base_file.floats(schema)
    key_and_floats = pa.schema([field for field in schema if field.name in {*key, *floats}])
    rises, last, unbounded = True, None, base_file.without_bounds(schema.empty_table())
    for piece in base.pieces(key_and_floats):
        unbounded |= base_file.without_bounds(piece.select(floats))
        if rises:
            keys = sort_keys(piece, key)
            rises = is_sorted(keys) and (last is None or last <= keys[0].as_py())
            last = keys[-1].as_py()
    return _BaseProperties(rises, unbounded)


def rewrite(
    base: Base,
    additions: pa.Table,
    old: int,
    *,
    options: Options,
    form: base_file.FileForm,
    constants: Sequence[str],
) -> tuple[Encoded, BitMap]:
    """Return the new base file, and the positions of its new rows.

    It contains the rows of ``base`` and ``additions``. As in memory, they are sorted by key if the
    rows of the base file are. Otherwise ``additions`` follow at the end.

    Args:
        additions: Rows with the columns and types of :func:`mdt.write.rewrite_rows.moved_schema`.
        old: Number of rows at the start of ``additions`` that existed in the table.
        constants: Partition path and file name.
    """
    layout, definition = _inspect(base), base.snapshot.definition
    unbounded = layout.unbounded | base_file.without_bounds(additions)
    description = _Description(base.snapshot, options, base.rows + len(additions))
    rows = _merge_rows(base, additions, by_key=layout.rises and base.rows > 0)
    scratch = Scratch(options.write_spill_dir)
    with (
        ThreadPoolExecutor(1) as pool,
        pa.BufferedOutputStream(pa.PythonFile(Sink(scratch), "w"), _BUFFER_BYTES) as sink,
    ):

        def described() -> Iterator[pa.Table]:
            """Yield row groups. Each is described in parallel to its encoding."""
            for group, at in _regroup(rows, options.row_group_rows):
                whole = with_constants(group, definition, constants)
                future = pool.submit(description.add, whole, at >= old)
                yield whole
                future.result()
                del whole, group, at  # so that their memory can be released
                release_memory()

        digests_of_groups = base_file.encode_parts(
            described(),
            sink,
            form,
            rows=base.rows + len(additions),
            unbounded=unbounded,
            key_metadata=description.key_metadata,
        )
    data = scratch.mapped(to_change=True)
    digests.fill(data, digests_of_groups)
    encoded = Encoded(
        data,
        description.rows,
        tuple(description.row_groups),
        footer_reference(data),
        description.summaries.finish(),
        description.key_map.encode(),
        page_map.encode_file(data, digests_of_groups),
    )
    return encoded, description.fresh


def _merge_rows(
    base: Base, additions: pa.Table, *, by_key: bool
) -> Iterator[tuple[pa.Table, Int64Array]]:
    """Yield the rows in the order of the new file, with their positions in ``additions`` (-1 for
    rows of the base file).
    """
    key, schema = base.snapshot.definition.key, moved_schema(base.snapshot.definition)
    keys, order = None, np.arange(len(additions))
    if by_key and len(additions):
        keys = sort_keys(additions.select(key), key)
        by_keys = sort_permutation(keys)
        if by_keys is not None:
            order, keys = by_keys, keys.take(pa.array(by_keys))
    start = 0
    for piece in base.pieces(schema):
        at = np.full(len(piece), -1)
        if keys is None or start == len(additions):
            yield piece, at
            continue
        piece_keys = sort_keys(piece.select(key), key)
        # New rows with the last key of this piece must wait: the next piece may have base rows with
        # the same key, which come first.
        end = start + count_below(keys.slice(start), piece_keys[-1])
        place = sort_permutation(pa.concat_arrays([piece_keys, keys.slice(start, end - start)]))
        combined = base_file.stack([piece, take_distinct(additions, order[start:end])])
        at, start = np.concatenate([at, order[start:end]]), end
        yield (combined, at) if place is None else (take_distinct(combined, place), at[place])
    if start < len(additions):
        yield take_distinct(additions, order[start:]), order[start:]


def _regroup(
    rows: Iterator[tuple[pa.Table, Int64Array]], size: int
) -> Iterator[tuple[pa.Table, Int64Array]]:
    """Yield the same rows in pieces of ``size`` rows. The last piece may be smaller."""
    tables: list[pa.Table] = []
    places: list[Int64Array] = []
    held = 0
    for table, at in rows:
        tables.append(table)
        places.append(at)
        held += len(table)
        if held < size:
            continue
        whole, at = pa.concat_tables(tables), np.concatenate(places)
        for first in range(0, held - size + 1, size):
            yield whole.slice(first, size).combine_chunks(), at[first : first + size]
        remaining = held % size
        tables, places, held = [whole.slice(held - remaining)], [at[held - remaining :]], remaining
    if held:
        yield pa.concat_tables(tables).combine_chunks(), np.concatenate(places)


class _Description:
    """Collects the metadata of a file while its row groups are written."""

    def __init__(self, snapshot: Snapshot, options: Options, rows: int) -> None:
        self._definition = snapshot.definition
        self.rows = rows
        self.row_groups: list[int] = []
        self.summaries = RowGroupSummaries(snapshot.definition, options)
        self.key_map = LargeKeyMap(rows, options.write_spill_dir)
        self.fresh = BitMap()
        self._bloom = filling(rows, options) if options.write_footer_bloom else None
        self._bounds: list[Mapping[str, str]] = []

    def add(self, group: pa.Table, is_new: Any) -> None:
        """Add the next row group.

        Args:
            is_new: bool[rows], True for rows that are new to the table.
        """
        keys = plain(group[RECORD_KEY])
        ordering = key_map.words_of(group, self._definition.ordering)
        self.fresh.update(BitMap((sum(self.row_groups) + np.flatnonzero(is_new)).astype(np.uint32)))
        self.key_map.add(self._definition.key_hash.hash(keys), ordering)
        self._bounds.append(pc.min_max(keys).as_py())
        if self._bloom is not None:
            self._bloom.add(keys)
        self.summaries.add(group)
        self.row_groups.append(len(group))

    def key_metadata(self) -> base_file.KeyMetadata:
        """Return (smallest record key, largest record key, encoded Bloom filter) for the footer."""
        bloom = None if self._bloom is None else self._bloom.text().encode("ascii")
        return (
            min(bounds["min"] for bounds in self._bounds),
            max(bounds["max"] for bounds in self._bounds),
            bloom,
        )
