"""Stream batches: operations that are committed once, however often they are tried."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mdt.commit.conflicts import Footprint
from mdt.commit.operation import Changes, Claim, OperationWrapper, WritePlan
from mdt.limits import STREAM_IDS_MAX
from mdt.metadata.log.streams import Streams
from mdt.metadata.snapshot.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class StreamBatchOperation(OperationWrapper):
    """An operation that writes batch ``batch`` of ``stream``.

    Nothing is done if the table has this batch or a larger number. Commits of the same stream
    conflict, so the second of two writers of a batch finds the batch of the first.
    """

    stream: str
    batch: int | str

    def prepare(self, snapshot: Snapshot, txn: str) -> WritePlan:
        """Return the plan of the operation, or an empty plan if the table has the batch.

        A batch without changes is committed too, so that a retry has no effect either.
        """
        streams = snapshot.streams
        if streams.has(self.stream, self.batch):
            return WritePlan(
                Footprint(txn),
                is_needed=False,
                warnings=skipped_batch_warnings(streams, self.stream, self.batch),
            )
        plan = self.operation.prepare(snapshot, txn)
        footprint = replace(plan.footprint, stream=self.stream)
        warnings = plan.warnings + _dropped_id_warnings(streams, self.stream, self.batch)
        return replace(plan, footprint=footprint, is_needed=True, warnings=warnings)

    def write(self, snapshot: Snapshot, plan: Any, claim: Claim) -> Changes:
        """Write with the wrapped operation and add the batch to the record header."""
        changes = self.operation.write(snapshot, plan, claim)
        return replace(
            changes, extra={**changes.extra, "stream": {"name": self.stream, "batch": self.batch}}
        )


def skipped_batch_warnings(streams: Streams, stream: str, batch: int | str) -> tuple[str, ...]:
    """Return the warning for a batch whose number is below the newest. Empty if the table has the
    batch.
    """
    if isinstance(batch, str) or streams.batches[stream][0] == batch:
        return ()
    newest, seq = streams.batches[stream]
    warning = (
        f"batch {batch} of the stream {stream!r} was not written: the stream is at batch {newest}"
        f" (commit {seq}), and smaller numbers count as written; to write an older batch, give it a"
        f" text id: t.once({stream!r}, '{batch}')"
    )
    return (warning,)


def _dropped_id_warnings(streams: Streams, stream: str, batch: int | str) -> tuple[str, ...]:
    """Return the warning for the text id that the table forgets when it takes this batch."""
    oldest = streams.next_evicted(stream) if isinstance(batch, str) else None
    if oldest is None:
        return ()
    warning = (
        f"the table keeps the latest {STREAM_IDS_MAX} text ids of batches and drops {oldest[1]!r}"
        f" of the stream {oldest[0]!r}: a batch with this id would be written again"
    )
    return (warning,)
