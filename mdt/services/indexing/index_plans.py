"""Pending index builds on Hudi's timeline.

The record that adds or resets an index requests a build. Its plan contains all files up to this
record that the index does not cover. The record that covers the last of these files completes the
plan, whoever commits it. The record that drops the index ends the plan without completing it. So a
builder has no state to take over: the log shows which work remains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mdt.errors import Corrupt
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.header_fields import present

Plans = Mapping[str, Sequence[str]]
"""Instant of a plan -> its indexes."""


def open_plans(metadata: Metadata, snapshot: Snapshot) -> Plans:
    """Return the unfinished plans of ``snapshot`` with records in the log. O(index records).

    Returns nothing if a record is damaged, because Hudi's view must not prevent a build.
    """
    history = snapshot.history
    plans: dict[str, Sequence[str]] = {}
    for seq, action in zip(history["seq"].to_pylist(), history["action"].to_pylist(), strict=True):
        if action != "index":
            continue
        try:
            record = metadata.record(seq)
        except Corrupt:
            return {}
        if record is None:
            continue
        fields = record.header.get("indexing", {})
        if fields.get("plan"):
            plans[record.instant] = fields["plan"]
        for instant in (*fields.get("done", {}), *fields.get("dropped", ())):
            plans.pop(instant, None)
    return plans


def finished_plans(
    plans: Plans, installed: Sequence[str], lacking: Sequence[str]
) -> dict[str, Any]:
    """Return the header fields ``done`` and ``dropped`` of a record that ends plans, empty if none.

    Args:
        installed: The table's indexes after the record.
        lacking: Indexes that do not cover all files of the plans then.
    """
    current = {
        instant: [spec for spec in specs if spec in installed] for instant, specs in plans.items()
    }
    completed = {
        instant: specs
        for instant, specs in current.items()
        if specs and not set(specs) & set(lacking)
    }
    dropped = [instant for instant, specs in current.items() if not specs]
    return present(done=completed, dropped=dropped)
