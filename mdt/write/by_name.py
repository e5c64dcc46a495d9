"""The rules and operations of writes, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class RowWrite:
    """A write of rows by its name, before its rows are known.

    Attributes:
        progress: As for :class:`mdt.write.operations.RowOperation`.
        blend: Blending options of an upsert.
        ends: Partition patterns of an overwrite, as for
            :func:`mdt.write.overwriting.replaced_partitions`.
    """

    metadata: Metadata
    options: Options
    name: str
    progress: Progress | None = None
    blend: BlendOptions | None = None
    ends: Sequence[str] | None = None

    def rule(self, definition: TableDefinition, columns: Sequence[str]) -> Rule:
        """Return its rule for data with ``columns``. Raises as :func:`rule_of` does."""
        return rule_of(self.name, definition, columns, self.blend)

    def in_process(self, data: pa.Table, definition: TableDefinition) -> RowOperation:
        """Return the operation for ``data``, in the calling thread. Raises Invalid if the data do
        not fit the table.
        """
        rule = self.rule(definition, data.column_names)
        return self.operation(RowsInProcess(rule.batch(data, definition), rule), definition)

    def operation(self, rows: Rows, definition: TableDefinition) -> RowOperation:
        """Return the operation for ``rows``, which already have its rule."""
        name, progress, arguments = self.name, self.progress, (self.metadata, self.options, rows)
        if name in WITH_ROWS:
            return Overwrite(*arguments, name, ACTION, progress, self.ends)
        kind = InsertUnchecked if name == INSERT_UNCHECKED else RowOperation
        return kind(*arguments, name, definition.commit_action, progress)
