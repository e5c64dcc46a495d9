"""Deletes by key on an engine: tasks find where the keys live and write what ends them; the driver
counts, assigns and commits as for an upsert.

The driver sees no key.  Where the table keeps the ordering values of deletes it sees what the
commit record will say of them, 24 bytes a key.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from mdt.config import Options
from mdt.engines import delete_tasks
from mdt.engines.engine import Engine, R
from mdt.engines.write import EngineWrite, Ready, TaggedPlan
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.progress import Progress
from mdt.schema.definition import TableDefinition
from mdt.write.normalize import normalize_keys


def delete(
    engine: Engine[R],
    metadata: Metadata,
    options: Options,
    keys: R,
    schema: pa.Schema,
    progress: Progress | None = None,
) -> EngineDelete[R]:
    """Return the operation that deletes ``keys`` on an engine.  ``schema``: of ``keys``, refused as
    :func:`mdt.write.normalize.normalize_keys` does.
    """
    definition = metadata.newest().definition
    normalize_keys(schema.empty_table(), definition)
    return EngineDelete(
        engine, metadata, options, keys, "delete", definition.commit_action, progress
    )


class EngineDelete(EngineWrite[R]):
    """Delete the keys in ``data``: what :class:`mdt.write.operations.Delete` does, in tasks."""

    __slots__ = ()

    def prepare(self, snapshot: Snapshot, txn: str) -> TaggedPlan[R]:
        """Find the keys in tasks and return the plan for ``snapshot``."""
        definition = snapshot.definition
        tagged, counted = self._tagged(
            snapshot, delete_tasks.tag, definition.key, definition.key_hash
        )
        with self._or_dropped(tagged):
            plan = self._planned(snapshot, txn, Ready(tagged, counted))
        return replace(plan, left=None if plan.counts["late"] else {})

    def _schema(self, definition: TableDefinition) -> pa.Schema:
        return delete_tasks.schema_of(definition)

    def _dealt_rows(self, plan: TaggedPlan[R]) -> int:
        return plan.counts["deleted"]
