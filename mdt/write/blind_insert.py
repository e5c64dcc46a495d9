"""Insert without key lookup, like Hudi's ``insert``: an existing key gets an additional row.

Only tables created with ``mdt.keys.repeat`` allow this. A file group never contains a key twice,
because rows go to new file groups and repeated keys within a batch are dropped. Hudi readers merge
by key within a file slice only, so they return the same rows. A later update or delete of such a
key affects all its rows (:class:`mdt.metadata.keys.locate.Further`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mdt.commit.conflicts import Footprint
from mdt.commit.operation import Changes, Claim
from mdt.errors import Invalid, Unsupported
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.definition import TableDefinition
from mdt.schema.delete_marks import IS_DELETED
from mdt.write.operations import RowOperation, RowPlan, partitions_of
from mdt.write.overwriting import assign_inserts

INSERT_UNCHECKED = "insert_unchecked"


def require_repeats(definition: TableDefinition, columns: Sequence[str] = ()) -> None:
    """Raise Invalid unless the table allows repeated keys, Unsupported if ``columns`` have delete
    marks.
    """
    if IS_DELETED in columns:
        raise Unsupported(
            f"insert(check=False) does not apply delete markers ({IS_DELETED})",
            hint="upsert the rows, or delete them",
        )
    if not definition.keys_repeat:
        raise Invalid(
            "insert(check=False) may repeat keys, but mdt.keys.repeat is false for this table",
            hint="create it with options={'mdt.keys.repeat': True}, or insert with the check",
        )


class InsertUnchecked(RowOperation):
    """The operation ``insert_unchecked``."""

    __slots__ = ()

    def prepare(self, snapshot: Snapshot, txn: str) -> RowPlan:
        """Return the plan. It does not depend on any row of the table."""
        with self._decide(snapshot) as rows:
            assignments = assign_inserts(self, snapshot, rows.findings)
            counts = {name: rows.findings.counts[name] for name in ("inserted", "late")}
            return RowPlan(
                Footprint(txn),
                partitions_of(assignments),
                counts,
                bool(assignments),
                assignments,
                rows=rows,
            )

    def write(self, snapshot: Snapshot, plan: RowPlan, claim: Claim) -> Changes:
        """Write the new files. Absent keys are not part of the read set."""
        return replace(RowOperation.write(self, snapshot, plan, claim), absent=None)
