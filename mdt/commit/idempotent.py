"""Operations that are a batch of a stream: written if the table has it not yet, whoever tries how
often.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mdt.commit.conflicts import Footprint
from mdt.commit.operation import Around, Changes, Claim, WritePlan
from mdt.limits import STREAM_IDS_MAX
from mdt.metadata.log.streams import Streams
from mdt.metadata.snapshot.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Once(Around):
    """An operation as batch ``batch`` of ``stream``; nothing is to be done if that, or a larger
    number, is in the table.

    A commit of the same stream conflicts with it, so that of two that write one batch one finds the
    other's.
    """

    stream: str
    batch: int | str

    def prepare(self, snapshot: Snapshot, txn: str) -> WritePlan:
        """Return what the operation decides, unless the batch is there; one that changes nothing is
        committed, too: tried again, it still does not.
        """
        streams = snapshot.streams
        if streams.has(self.stream, self.batch):
            return WritePlan(
                Footprint(txn), is_needed=False, warnings=left_out(streams, self.stream, self.batch)
            )
        plan = self.operation.prepare(snapshot, txn)
        footprint = replace(plan.footprint, stream=self.stream)
        warnings = plan.warnings + _forgotten(streams, self.stream, self.batch)
        return replace(plan, footprint=footprint, is_needed=True, warnings=warnings)

    def write(self, snapshot: Snapshot, plan: Any, claim: Claim) -> Changes:
        """Write as the operation does, and say which batch it is."""
        changes = self.operation.write(snapshot, plan, claim)
        return replace(
            changes, extra={**changes.extra, "stream": {"name": self.stream, "batch": self.batch}}
        )


def left_out(streams: Streams, stream: str, batch: int | str) -> tuple[str, ...]:
    """Return the warning for a batch that is not written because its number is below the newest
    one; nothing for one that the table has.
    """
    if isinstance(batch, str) or streams.batches[stream][0] == batch:
        return ()
    newest, seq = streams.batches[stream]
    warning = (
        f"batch {batch} of the stream {stream!r} was not written: the stream is at batch {newest}"
        f" (commit {seq}), and smaller numbers count as written; to write an older batch give it a"
        f" text id: t.once({stream!r}, '{batch}')"
    )
    return (warning,)


def _forgotten(streams: Streams, stream: str, batch: int | str) -> tuple[str, ...]:
    """Return the warning for the text id that the table forgets when it takes this batch."""
    oldest = streams.forgets(stream) if isinstance(batch, str) else None
    if oldest is None:
        return ()
    warning = (
        f"the table remembers {STREAM_IDS_MAX} text ids of batches and now forgets {oldest[1]!r} of"
        f" the stream {oldest[0]!r}: a batch with this id would be written again"
    )
    return (warning,)
