"""Schema evolution for ``evolve=True``: alter the table before an upsert so that it accepts the
data.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

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
    from mdt.schema.definition import TableDefinition
    from mdt.table.handle import Handle


def evolve_for(table: Handle, data: Any) -> Any:
    """Alter the table to accept ``data``, as far as possible. Return the data with all columns of
    the table.
    """
    table._prepare_row_write()
    frame = table._given(data)
    if frame is not None:
        return frame.add_missing_columns(_alter_for(table, frame.evolved_schema(table.schema)))
    parts = pieces(data, table.schema, to_typed_table)
    if parts is None:
        data = to_typed_table(data, table.schema)
        return add_missing_columns(data, _alter_for(table, data.schema))
    if has_fixed_columns(data):
        first = next(parts)
        return complete_pieces(chain([first], parts), _alter_for(table, first.schema))
    frame, parts = late.spilling.scan_columns(parts, late.spilling.engine_of(table.options))
    return complete_pieces(parts, _alter_for(table, frame))


def _alter_for(table: Handle, schema: pa.Schema) -> TableDefinition:
    """Alter the table to accept rows of ``schema``, as far as possible. Return the new definition.

    Log files that block a new struct field are compacted first.
    """
    refuse_repeated(schema.names)
    metadata, attempts = table.metadata, table.options.commit_attempts
    action = table.definition.commit_action
    alter = Alter(metadata.storage, lambda definition: evolution(schema, definition), action)
    for attempt in range(1, attempts + 1):
        if _must_compact(table, schema):
            table._commit(Compaction(metadata, table.options, strategy=with_logs))
        try:
            if evolution(schema, table.definition):
                table._commit(alter)
            break
        except Invalid:  # another writer may have added a log file
            if attempt == attempts or not _must_compact(table, schema):
                raise
    return table.definition


def _must_compact(table: Handle, schema: pa.Schema) -> bool:
    snapshot = table.metadata.newest()
    return needs_compaction(snapshot, evolution(schema, snapshot.definition))
