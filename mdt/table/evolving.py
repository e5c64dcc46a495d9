"""Schema evolution for ``evolve=True``: alter the table before an upsert so that it accepts the
data.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from mdt import late
from mdt.errors import Invalid
from mdt.schema.conform import refuse_repeated
from mdt.schema.evolve import add_missing_columns, complete_pieces, evolution, to_typed_table
from mdt.schema.input import has_fixed_columns, pieces
from mdt.services.history.altering import Alter, needs_compaction
from mdt.services.layout.compaction import Compaction
from mdt.services.layout.compaction_strategies import with_logs

if TYPE_CHECKING:
    from mdt.commit.transaction import CommitResult
    from mdt.table.handle import Handle

H = TypeVar("H", bound="Handle")


def evolve_for(table: H, data: Any) -> tuple[H, Any]:
    """Alter the table to accept ``data``, as far as possible. Return the table to write to, and the
    data with all its columns.

    A table that rests on a commit then rests on the alteration, unless others committed in between.
    """
    table._prepare_row_write()
    frame = table._given(data)
    if frame is not None:
        table = _altered(table, frame.evolved_schema(table.schema))
        return table, frame.add_missing_columns(table.definition)
    parts = pieces(data, table.schema, to_typed_table)
    if parts is None:
        data = to_typed_table(data, table.schema)
        table = _altered(table, data.schema)
        return table, add_missing_columns(data, table.definition)
    if has_fixed_columns(data):
        first = next(parts)
        table = _altered(table, first.schema)
        return table, complete_pieces(chain([first], parts), table.definition)
    frame, parts = late.spilling.scan_columns(parts, late.spilling.engine_of(table.options))
    table = _altered(table, frame)
    return table, complete_pieces(parts, table.definition)


def _altered(table: H, schema: pa.Schema) -> H:
    """Alter the table to accept rows of ``schema``, as far as possible. Return it for the write.

    Log files that block a new struct field are compacted first.
    """
    refuse_repeated(schema.names)
    metadata, attempts = table.metadata, table.options.commit_attempts
    action = table.definition.commit_action
    alter = Alter(metadata.storage, lambda definition: evolution(schema, definition), action)
    for attempt in range(1, attempts + 1):
        if _must_compact(table, schema):
            compaction = Compaction(metadata, table.options, strategy=with_logs)
            table = _resting_after(table, table._commit(compaction))
        try:
            if evolution(schema, table.definition):
                table = _resting_after(table, table._commit(alter))
            break
        except Invalid:  # another writer may have added a log file
            if attempt == attempts or not _must_compact(table, schema):
                raise
    return table


def _resting_after(table: H, commit: CommitResult[Any]) -> H:
    """Return the table, resting on a commit of its own if it rested on the commit before."""
    rests_on = table._rests_on
    if rests_on is None or commit.record is None or commit.record.seq != rests_on[0] + 1:
        return table
    return table._copy(_rests_on=(commit.record.seq, commit.record.txn))


def _must_compact(table: Handle, schema: pa.Schema) -> bool:
    snapshot = table.metadata.newest()
    return needs_compaction(snapshot, evolution(schema, snapshot.definition))
