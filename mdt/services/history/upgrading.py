"""Upgrades of a table to a newer table version of Hudi.

The commit has no files. Data files stay as they are, because both versions read them. Hudi's
timeline and properties are converted when the commit is published (:mod:`mdt.commit.upgrading`).
"""

from __future__ import annotations

from dataclasses import dataclass

from mdt.commit.conflicts import Footprint
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.errors import Invalid, Unsupported
from mdt.metadata.log.trusted_names import UPGRADE
from mdt.metadata.log.trusted_records import UPGRADED_VERSION
from mdt.metadata.snapshot.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Upgrade(Operation[WritePlan]):
    """The operation that changes Hudi's table version."""

    name: str = "upgrade"
    action: str = UPGRADE

    def prepare(self, snapshot: Snapshot, txn: str) -> WritePlan:
        """Return the plan. It is not needed if the table has the version.

        Raises Unsupported for a table that other writers share.
        """
        is_needed = snapshot.definition.hudi_version != UPGRADED_VERSION
        if is_needed and snapshot.is_shared:
            raise Unsupported(
                "a table that other Hudi writers share cannot be upgraded",
                hint="mdt.release(path), upgrade it with Hudi, and adopt it again",
            )
        definition = snapshot.definition
        has_values = len(definition.key) == 1 and not definition.names_key
        if is_needed and has_values and len(definition.partition_by) > 1:
            raise Unsupported(
                f"the record keys are values of {definition.key[0]!r}, and Hudi's writers name the"
                " column since version 9 if there are several partition columns",
                hint="load the rows into a new table of version 9",
            )
        return WritePlan(Footprint(txn, everything=True), is_needed=is_needed)

    def write(self, snapshot: Snapshot, plan: WritePlan, claim: Claim) -> Changes:
        """Return the header of the record. Writes no files."""
        return Changes(extra={"hudi_version": UPGRADED_VERSION})


def require_version(version: int) -> None:
    """Raise Invalid for a version to which no table is upgraded."""
    if version != UPGRADED_VERSION:
        raise Invalid(
            f"a table is upgraded to version {UPGRADED_VERSION}, not {version!r}",
            hint=f"t.upgrade({UPGRADED_VERSION})",
        )
