"""The rules and operations of writes, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from mdt.config import Options
from mdt.metadata.metadata import Metadata
from mdt.progress import Progress
from mdt.schema.definition import TableDefinition
from mdt.write.blind_insert import INSERT_UNCHECKED, InsertUnchecked, require_repeats
from mdt.write.operations import CHECKED, RowOperation, Rows, RowsInProcess
from mdt.write.overwriting import ACTION, WITH_ROWS, InsertAll, Overwrite
from mdt.write.rules import Deleting, Rule, Upserting

if TYPE_CHECKING:
    from mdt.write.blending import BlendOptions

DELETE = "delete"


def rule_of(
    name: str,
    definition: TableDefinition,
    columns: Sequence[str],
    blend: BlendOptions | None = None,
) -> Rule:
    """Return the rule of the write ``name``. Raises Invalid or Unsupported if the table does not
    allow it.

    Args:
        columns: Columns of the data.
        blend: Blending options of an upsert.
    """
    if blend is not None:
        return blend.rule(columns)
    if name == DELETE:
        return Deleting()
    if name == INSERT_UNCHECKED:
        require_repeats(definition, columns)
    if name == INSERT_UNCHECKED or name in WITH_ROWS:
        return InsertAll(name)
    return Upserting(name in CHECKED)


def write_in_process(
    metadata: Metadata,
    options: Options,
    data: pa.Table,
    name: str,
    definition: TableDefinition,
    progress: Progress | None = None,
    blend: BlendOptions | None = None,
    ends: Sequence[str] | None = None,
) -> RowOperation:
    """Return the write ``name`` of ``data`` in the calling thread. Raises Invalid if the data do
    not fit the table.

    Args:
        ends: Partition patterns of an overwrite, as for
            :func:`mdt.write.overwriting.replaced_partitions`.
    """
    rule = rule_of(name, definition, data.column_names, blend)
    rows = RowsInProcess(rule.batch(data, definition), rule)
    return operation_of(metadata, options, rows, name, definition, progress, ends)


def operation_of(
    metadata: Metadata,
    options: Options,
    rows: Rows,
    name: str,
    definition: TableDefinition,
    progress: Progress | None = None,
    ends: Sequence[str] | None = None,
) -> RowOperation:
    """Return the write ``name`` of ``rows``, which already have its rule.

    Args:
        ends: Partition patterns of an overwrite, as for
            :func:`mdt.write.overwriting.replaced_partitions`.
    """
    if name in WITH_ROWS:
        return Overwrite(metadata, options, rows, name, ACTION, progress, ends)
    kind = InsertUnchecked if name == INSERT_UNCHECKED else RowOperation
    return kind(metadata, options, rows, name, definition.commit_action, progress)
