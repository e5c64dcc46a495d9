"""Insert without look-up, as Hudi's ``insert``: a key may stand in the table already, and then
lives more than once.

Only in tables that are made for it (``mdt.keys.repeat``), and never twice in one file group: rows
go into new file groups, and of rows of one batch with the same key one is written.  Hudi's readers
merge by key within a file slice only, so they see what we see.  Whoever writes such a key later
replaces or deletes all of its rows (:class:`mdt.metadata.keys.locate.Further`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mdt.commit.conflicts import Footprint
from mdt.commit.operation import Changes, Claim, Operation
from mdt.config import Options
from mdt.errors import Invalid, Unsupported
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.progress import Progress
from mdt.schema.definition import TableDefinition
from mdt.schema.marked import IS_DELETED
from mdt.write.normalize import Batch, as_altered
from mdt.write.operations import RowPlan, inserts_of, partitions_of, write_rows
from mdt.write.overwriting import assigned

INSERT_UNCHECKED = "insert_unchecked"


def require_repeats(definition: TableDefinition, given: Sequence[str] = ()) -> None:
    """Raise Invalid unless keys may live more than once in the table, Unsupported where the columns
    ``given`` mark rows that are deletes.
    """
    if IS_DELETED in given:
        raise Unsupported(
            f"insert(check=False) looks for no key, and so deletes none ({IS_DELETED})",
            hint="upsert the rows, or delete them",
        )
    if not definition.keys_repeat:
        raise Invalid(
            "insert(check=False) may let a key live twice, which this table does not allow",
            hint="make the table with options={'mdt.keys.repeat': True}, or insert with the check",
        )


@dataclass(frozen=True, slots=True)
class InsertUnchecked(Operation[RowPlan]):
    """The operation.  ``progress`` is called with the number of written files and of all."""

    metadata: Metadata
    options: Options
    batch: Batch
    action: str
    progress: Progress | None = None
    name: str = INSERT_UNCHECKED

    def prepare(self, snapshot: Snapshot, txn: str) -> RowPlan:
        """Return the plan: it depends on no row of the table."""
        batch = as_altered(self.batch, snapshot.definition)
        inserts = inserts_of(batch, np.arange(len(batch)))
        counted = {name: len(rows) for name, rows in inserts.items()}
        work = assigned(snapshot, self.options, counted, {}, batch.row_bytes)
        counts = {"inserted": len(batch), "late": batch.duplicates}
        return RowPlan(
            Footprint(txn),
            partitions_of(work),
            counts,
            bool(work),
            work,
            inserts=inserts,
            batch=batch,
        )

    def write(self, snapshot: Snapshot, plan: RowPlan, claim: Claim) -> Changes:
        """Write the new files."""
        assert plan.batch is not None, "a plan has its rows"
        return write_rows(
            self.metadata, snapshot, self.options, plan, plan.batch, claim, self.progress
        )
