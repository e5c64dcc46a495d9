"""Writes whose input is read piece by piece: small input becomes a table, large input is validated
and written to scratch files.

Such a write is that of :mod:`mdt.engines.write` on an engine with rows on disk, so its result is
the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa

from indexes.base import Int64Array
from mdt.config import Options
from mdt.engines import write as writes
from mdt.engines.merge_on_engine import merge
from mdt.engines.parting import part_of
from mdt.engines.spilled import PARTS, SHARE, THREADS_MAX, Spilled, SpillingEngine, weight
from mdt.metadata.metadata import Metadata
from mdt.progress import Progress
from mdt.schema.conform import conform
from mdt.schema.convert import convert, without_rows
from mdt.schema.declared import without_views
from mdt.schema.definition import TableDefinition
from mdt.schema.delete_marks import IS_DELETED
from mdt.schema.input import concatenate
from mdt.write.by_name import RowWrite
from mdt.write.merge import Merge
from mdt.write.merge_request import MergeText
from mdt.write.normalize import columns_of_deletes, normalize_keys
from mdt.write.operations import RowOperation

_FILE_SHARE = 32
"""Divisor of the memory for a new file. Its rows take about three times its bytes, and are held
more than once while it is made.
"""
_FILE_BYTES_MIN = 1 << 20
"""Smaller files would cost more than they save in memory."""


def engine_of(options: Options, progress: Progress | None = None) -> SpillingEngine:
    """Return the engine for a write with ``options``."""
    return SpillingEngine(
        options.write_memory_max,
        options.write_spill_dir,
        min(options.threads("writer"), THREADS_MAX),
        progress,
    )


def read(
    pieces: Iterator[pa.Table],
    engine: SpillingEngine,
    definition: TableDefinition,
    *,
    partial_rows: bool = False,
) -> pa.Table | Spilled:
    """Return the rows of ``pieces`` as a table, or spilled by key if they are too large.

    ``partial_rows``: True if all pieces may lack columns. Raises Invalid if pieces do not fit each
    other or, for spilled rows, the table. Row numbers in errors count from the first piece.
    """
    held, is_all = _read_head(pieces, engine)
    if is_all:
        return concatenate(held)
    marks = any(IS_DELETED in piece.column_names for piece in held)
    return _spill(
        chain(held, pieces),
        engine,
        definition,
        definition.declared.names,
        may_lack=partial_rows,
        marks=marks,
    )


def read_keys(
    pieces: Iterator[pa.Table], engine: SpillingEngine, definition: TableDefinition
) -> pa.Table | Spilled:
    """Return rows to delete as :func:`read` does, with only the columns that deletes use."""
    needed, optional = columns_of_deletes(definition)
    names = list(dict.fromkeys([*needed, *optional]))
    held, is_all = _read_head((_select(piece, names) for piece in pieces), engine)
    head = concatenate(held)
    if is_all:
        return head
    normalize_keys(head.slice(0, 0), definition)
    remaining = (_select(piece, names) for piece in pieces)
    return _spill(chain(held, remaining), engine, definition, names, may_lack=True)


def _select(piece: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return the columns of ``piece`` whose name is in ``names``."""
    return piece.select([at for at, name in enumerate(piece.column_names) if name in names])


def scan_columns(
    pieces: Iterator[pa.Table], engine: SpillingEngine
) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """Return the combined columns of ``pieces``, and the pieces after an empty piece with all
    columns.

    Large input is spilled meanwhile. Raises Invalid if pieces do not fit each other.
    """
    held, is_all = _read_head(pieces, engine)
    if is_all:
        first = concatenate([piece.slice(0, 0) for piece in held])
        return first.schema, chain([first], held)
    columns, runs = pa.schema([]), [engine.empty(pa.schema([]))]
    with _close_on_error(runs[0]):
        for piece in chain(held, pieces):
            columns = _union_schema(columns, piece.schema)
            rows = _to_plain(piece)
            if rows.schema != runs[-1].schema:
                runs.append(replace(runs[-1], schema=rows.schema, parts={}))
            runs[-1].add(0, rows)
    return columns, chain([_to_plain(without_rows(columns))], _reread(runs[1:]))


def _to_plain(piece: pa.Table) -> pa.Table:
    """Return rows without dictionaries, metadata and view types, because a single batch cannot
    carry them.
    """
    schema = pa.schema(
        [pa.field(field.name, without_views(field.type), field.nullable) for field in piece.schema]
    )
    columns = [
        pa.chunked_array([convert(chunk, field.type) for chunk in column.chunks], field.type)
        for field, column in zip(schema, piece.columns, strict=True)
    ]
    return pa.table(columns, schema=schema)


def _reread(runs: Sequence[Spilled]) -> Iterator[pa.Table]:
    """Yield the rows of ``runs``, which share a scratch file, in order; then delete the file."""
    with closing(runs[0].scratch):
        for rows in runs:
            for batch in rows.batches(sorted(rows.parts)):
                yield pa.Table.from_batches([batch])


def read_source(pieces: Iterator[pa.Table], engine: SpillingEngine) -> pa.Table | Spilled:
    """Return the rows of ``pieces``, with any columns, as a table. They are spilled if they are too
    large and all have the same plain columns.
    """
    held, is_all = _read_head(pieces, engine)
    schema = held[0].schema.remove_metadata()
    if is_all or any(without_views(field.type) != field.type for field in schema):
        return concatenate([*held, *pieces])
    rows = engine.empty(schema)
    spiller = engine.spiller(rows, lambda table: np.zeros(len(table), np.int64))
    with _close_on_error(rows):
        for piece in chain(held, pieces):
            if piece.schema != schema:
                spiller.flush()
                return concatenate([rows.table(), piece, *pieces])
            spiller.add(piece.replace_schema_metadata())
        spiller.flush()
    return rows


def merge_source(
    metadata: Metadata,
    options: Options,
    engine: SpillingEngine,
    rows: Spilled,
    request: MergeText,
    schema: pa.Schema,
    progress: Progress | None,
) -> Merge:
    """Return the operation that merges spilled rows. Arguments as for
    :func:`mdt.engines.merge_on_engine.merge`.
    """
    return merge(
        replace(engine, progress=progress),
        metadata,
        _limit_file_size(options),
        rows,
        rows.schema,
        request,
        schema,
    )


@contextmanager
def _close_on_error(rows: Spilled) -> Iterator[None]:
    """Delete the scratch file of ``rows`` if the block raises, so that a retained error or an
    immediate retry does not double the disk space.
    """
    try:
        yield
    except BaseException:
        rows.scratch.close()
        raise


def _read_head(pieces: Iterator[pa.Table], engine: SpillingEngine) -> tuple[list[pa.Table], bool]:
    """Return the first pieces, as many as memory allows, and True if these are all."""
    held: list[pa.Table] = []
    memory_max = engine.memory_max // SHARE
    for piece in pieces:
        held.append(piece)
        memory_max -= weight(piece.nbytes, len(piece))
        if memory_max < 0:
            return held, False
    return held, True


def _spill(
    pieces: Iterator[pa.Table],
    engine: SpillingEngine,
    definition: TableDefinition,
    names: Sequence[str],
    *,
    may_lack: bool,
    marks: bool = False,
) -> Spilled:
    """Spill rows with the table's columns ``names``. ``may_lack``: True if all pieces may lack
    columns.

    ``marks``: True if a column marks deletes. Their other columns may be null, so tasks validate
    them again.
    """
    declared, stored = definition.forms(names)
    if marks:
        declared = declared.append(pa.field(IS_DELETED, pa.bool_()))
        stored = _nullable(stored, ()).append(pa.field(IS_DELETED, pa.bool_()))
    scratch_schema = pa.schema(
        [pa.field(field.name, without_views(field.type)) for field in declared]
    )
    rows = engine.empty(scratch_schema, definition.key)
    spiller = engine.spiller(rows, partial(_part_of, definition))
    first, columns = 0, pa.schema([])
    with _close_on_error(rows):
        for piece in pieces:
            columns = _union_schema(columns, piece.schema)
            whole = _add_missing(piece, declared)
            required = _nullable(stored, piece.column_names) if may_lack else stored
            checked = conform(whole, declared, required, definition.key, first=first)
            spiller.add(
                (
                    checked
                    if scratch_schema.types == stored.types
                    else conform(whole, declared, scratch_schema)
                ).cast(scratch_schema)
            )
            first += len(piece)
        spiller.flush()
        if not may_lack:
            conform(without_rows(columns), declared, stored)
    if not may_lack:
        return rows
    return replace(
        rows, names=tuple(name for name in scratch_schema.names if name in columns.names)
    )


def _union_schema(columns: pa.Schema, added: pa.Schema) -> pa.Schema:
    """Return the columns of all pieces so far. Raises Invalid if two pieces do not fit, as
    :func:`mdt.schema.input.concatenate` does.
    """
    return concatenate([without_rows(columns), without_rows(added)]).schema


def _nullable(stored: pa.Schema, present: Sequence[str]) -> pa.Schema:
    """Return ``stored`` with the columns nullable that are not in ``present``."""
    have = frozenset(present)
    return pa.schema(
        [field if field.name in have else field.with_nullable(True) for field in stored]
    )


def _add_missing(piece: pa.Table, declared: pa.Schema) -> pa.Table:
    """Add null columns that ``piece`` lacks, because another piece may have them."""
    for field in declared:
        if field.name not in piece.column_names:
            piece = piece.append_column(field.name, pa.nulls(len(piece)))
    return piece


def _part_of(definition: TableDefinition, table: pa.Table) -> Int64Array:
    """Return the part of each row by its key hash. Each part has a range of hashes, and so reads a
    range of each key map.
    """
    return part_of(table, definition.key, PARTS, definition.key_hash)


def write(request: RowWrite, engine: SpillingEngine, rows: Spilled) -> RowOperation:
    """Return the operation that writes or deletes spilled rows, as :func:`mdt.engines.write.write`
    does. The engine reports its progress. The caller drops the rows afterwards.
    """
    request = replace(request, options=_limit_file_size(request.options), progress=None)
    return writes.write(request, engine, rows, rows.visible_schema)


def _limit_file_size(options: Options) -> Options:
    """Return options that limit the size of new files to the memory for writes."""
    file_bytes = max(_FILE_BYTES_MIN, options.write_memory_max // _FILE_SHARE)
    return replace(options, max_file_bytes=min(options.max_file_bytes, file_bytes))
