"""Deletes by key on an engine: tasks find where the keys live and write what ends them; the driver counts, assigns and commits as for an upsert.

The driver sees no key.  Where the table keeps the ordering values of deletes it sees what the commit record will say of them, 24 bytes a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from indexes.base import KeyHashes
from mdt.commit.operation import Changes, Claim
from mdt.config import Options
from mdt.engines import delete_tasks
from mdt.engines.absent import AbsentKeys, hashes_of
from mdt.engines.engine import Engine, R
from mdt.engines.tasks import ABSENT, BURIED
from mdt.engines.write import EngineWrite, Ready, TaggedPlan
from mdt.metadata.commit_log import NO_TOMBSTONES
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import Snapshot
from mdt.metadata.tombstones import new_tombstones
from mdt.progress import Progress
from mdt.schema.definition import TableDefinition
from mdt.write.normalize import normalize_keys


def delete(
    engine: Engine[R], metadata: Metadata, options: Options, keys: R, schema: pa.Schema, progress: Progress | None = None
) -> EngineDelete[R]:  # fmt: skip
    """Return the operation that deletes ``keys`` on an engine.  ``schema``: of ``keys``, refused as :func:`mdt.write.normalize.normalize_keys` does."""
    definition = metadata.newest().definition
    normalize_keys(schema.empty_table(), definition)
    return EngineDelete(engine, metadata, options, keys, "delete", definition.commit_action, progress)


@dataclass(frozen=True, slots=True)
class DeletePlan(TaggedPlan[R]):
    """``tombstones``: of deleted keys, schema TOMBSTONES."""

    tombstones: pa.Table = field(default_factory=lambda: NO_TOMBSTONES)


class EngineDelete(EngineWrite[R]):
    """Delete the keys in ``data``: what :class:`mdt.write.operations.Delete` does, in tasks."""

    __slots__ = ()

    def prepare(self, snapshot: Snapshot, txn: str) -> DeletePlan[R]:
        """Find the keys in tasks and return the plan for ``snapshot``."""
        definition = snapshot.definition
        tagged, counted = self._tagged(snapshot, delete_tasks.tag, definition.key, definition.key_hash)
        with self._or_dropped(tagged):
            plan = self._planned(snapshot, txn, Ready(tagged, counted))
            tombstones = self._tombstones(tagged) if definition.keeps_deletes else NO_TOMBSTONES
        missing = sum(row["rows"] for row in counted if row["__mdt_kind"] == ABSENT)
        absent: Mapping[str, KeyHashes] = AbsentKeys(self.engine, tagged, definition.is_global) if missing else {}
        return DeletePlan(
            replace(plan.footprint, absent=absent), plan.partitions, {**plan.counts, "missing": missing},
            plan.is_needed or bool(len(tombstones)), plan.work, tagged=tagged, engine=self.engine,
            tombstones=tombstones, left=None if plan.counts["late"] else {},
        )  # fmt: skip

    def _schema(self, definition: TableDefinition) -> pa.Schema:
        return delete_tasks.schema_of(definition)

    def _dealt_rows(self, plan: TaggedPlan[R]) -> int:
        return plan.counts["deleted"]

    def _tombstones(self, tagged: R) -> pa.Table:
        names = ["__mdt_segment", "__mdt_position", "__mdt_key"]
        rows = self.engine.selected(tagged, {"__mdt_kind": (BURIED,)}, names)
        return new_tombstones(hashes_of(rows), rows["__mdt_key"].cast(pa.uint64()).to_numpy())

    def write(self, snapshot: Snapshot, plan: TaggedPlan[Any], claim: Claim) -> Changes:
        """Write in tasks, as for an upsert; no key is new."""
        assert isinstance(plan, DeletePlan)
        changes = EngineWrite.write(self, snapshot, plan, claim)
        return replace(changes, absent=None, tombstones=plan.tombstones)
