"""Which builds of indexes stand on Hudi's timeline and are not completed: made known by one record,
ended by another.

The record that adds an index, or forgets what it covers, requests the build: its plan is all files
up to that record that the index does not cover.  The record with which the last of them is covered
completes it, whoever commits that; the record that drops the index ends it without.  So there is
nothing to take up: a builder that dies is followed by one that knows from the log what is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mdt.errors import Corrupt
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.header_fields import present

Plans = Mapping[str, Sequence[str]]
"""Instant of a plan -> specifications of its indexes."""


def open_plans(metadata: Metadata, snapshot: Snapshot) -> Plans:
    """Return the plans of ``snapshot`` that have not ended, as far as their records are in the log.
    O(index records).

    None where a record is damaged: what is told to Hudi keeps nobody from building.
    """
    history = snapshot.history
    found: dict[str, Sequence[str]] = {}
    for seq, action in zip(history["seq"].to_pylist(), history["action"].to_pylist(), strict=True):
        if action != "index":
            continue
        try:
            record = metadata.record(seq)
        except Corrupt:
            return {}
        if record is None:
            continue
        told = record.header.get("indexing", {})
        if told.get("plan"):
            found[record.instant] = told["plan"]
        for instant in (*told.get("done", {}), *told.get("dropped", ())):
            found.pop(instant, None)
    return found


def ended(plans: Plans, left: Sequence[str], lacking: Sequence[str]) -> dict[str, Any]:
    """Return what a record says that ends plans: ``done`` and ``dropped`` of its header
    ``indexing``, empty if it ends none.

    ``left``: the table's indexes after the record; ``lacking``: those that do not cover every file
    of the plans then.
    """
    mine = {instant: [spec for spec in specs if spec in left] for instant, specs in plans.items()}
    done = {
        instant: specs for instant, specs in mine.items() if specs and not set(specs) & set(lacking)
    }
    dropped = [instant for instant, specs in mine.items() if not specs]
    return present(done=done, dropped=dropped)
