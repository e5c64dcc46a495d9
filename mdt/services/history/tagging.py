"""Tags and savepoints: names for snapshots that cleaning must keep.

A savepoint is a tag that Hudi also knows. Its ``savepoint`` instant belongs to the newest commit of
the state, and lists the data files that no Hudi service may delete.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mdt.arguments import shown
from mdt.commit.conflicts import Footprint
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.errors import Invalid, Unsupported
from mdt.limits import NAME_BYTES_MAX
from mdt.metadata.files import paths
from mdt.metadata.log.tags import is_tag
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.header_fields import present

_COMMITS = ("create", "commit", "deltacommit", "compaction", "replacecommit")
"""Actions whose instants are commits for Hudi."""

TAGS = pa.schema(
    [
        ("name", pa.string()),
        ("seq", pa.int64()),
        ("instant", pa.string()),
        ("savepoint", pa.bool_()),
    ]
)
"""Columns of :func:`tags_table`."""


@dataclass(frozen=True, slots=True)
class AddTag(Operation[WritePlan]):
    """Tags the state after commit ``seq``. ``comment`` makes the tag a savepoint."""

    metadata: Metadata
    tag: str
    seq: int
    comment: str | None = None
    name: str = "tag"
    action: str = "tag"

    def prepare(self, snapshot: Snapshot, txn: str) -> WritePlan:
        """Return the plan.

        Raises Invalid for an invalid, overlong or existing name and an overlong comment, and
        Expired for a state that was cleaned.
        """
        _require_short("tag", self.tag)
        _require_short("comment", self.comment or "")
        if not is_tag(self.tag):
            raise Invalid(
                f"{shown(self.tag)} is not a valid tag name",
                hint="use printable text that is not a number or a time",
            )
        self.metadata.at(self.seq)
        existing = snapshot.tags.seqs.get(self.tag)
        if existing is not None:
            raise Invalid(
                f"the tag {self.tag!r} already names commit {existing}",
                hint="untag it first, or use another name",
            )
        if (
            self.comment is not None
            and (savepoint := _savepoint_at(snapshot, commit_time(self.metadata, self.seq)))
            is not None
        ):
            raise Invalid(
                f"the savepoint {savepoint!r} already names that commit",
                hint="a commit can have only one savepoint",
            )
        # these tags may be the only reason why the state is kept
        same_state = {name for name, seq in snapshot.tags.seqs.items() if seq == self.seq}
        return WritePlan(
            Footprint(txn, tags=frozenset({self.tag, *same_state}), needs=self._needs(snapshot))
        )

    def _needs(self, snapshot: Snapshot) -> int | None:
        return self.seq if self.seq >= snapshot.retention.horizon else None

    def write(self, snapshot: Snapshot, plan: WritePlan, claim: Claim) -> Changes:
        """Return the record's fields. Writes no files."""
        fields = {"tags": {"add": {self.tag: self.seq}}}
        if self.comment is not None and snapshot.is_shared:
            raise Unsupported(
                "savepoints of a table that other Hudi writers share are made by them",
                hint="a tag keeps the state for readers of mdt",
            )
        if self.comment is None:
            return Changes(extra=fields)
        time = commit_time(self.metadata, self.seq)
        files = self.metadata.at(self.seq).listing().select(["partition", "name"]).to_pylist()
        saved = [paths.data_file(file["partition"], file["name"]) for file in files]
        return Changes(
            extra={
                **fields,
                "savepoint": {"name": self.tag, "time": time, "comment": self.comment},
            },
            saved=saved,
        )


def _require_short(noun: str, text: str) -> None:
    """Raise Invalid for a text of more than NAME_BYTES_MAX bytes."""
    size = len(text.encode())
    if size > NAME_BYTES_MAX:
        raise Invalid(
            f"the {noun} has {size:,} bytes, more than {NAME_BYTES_MAX:,}",
            hint=f"use a shorter {noun}",
        )


@dataclass(frozen=True, slots=True)
class DropTag(Operation[WritePlan]):
    """Removes a tag."""

    tag: str
    name: str = "untag"
    action: str = "tag"

    def prepare(self, snapshot: Snapshot, txn: str) -> WritePlan:
        """Return the plan. Raises Invalid if the tag does not exist."""
        if self.tag not in snapshot.tags.seqs:
            names = ", ".join(sorted(snapshot.tags.seqs)) or "none"
            raise Invalid(f"there is no tag {shown(self.tag)}", hint=f"tags: {names}")
        return WritePlan(Footprint(txn, tags=frozenset({self.tag})))

    def write(self, snapshot: Snapshot, plan: WritePlan, claim: Claim) -> Changes:
        """Return the record's fields. Writes no files."""
        unsaved = present(unsaved=snapshot.tags.savepoints.get(self.tag))
        return Changes(extra={"tags": {"drop": [self.tag]}, **unsaved})


def commit_time(metadata: Metadata, seq: int) -> str:
    """Return the instant of the newest commit up to ``seq`` that Hudi knows as a commit."""
    commits = _commits_up_to(metadata.newest().history, seq)
    if not len(commits):
        commits = _commits_up_to(metadata.history(), seq)
    return str(commits["instant"][-1].as_py())


def _commits_up_to(history: pa.Table, seq: int) -> pa.Table:
    is_commit = pc.is_in(history["action"], pa.array(_COMMITS))
    return history.filter(pc.and_(pc.less_equal(history["seq"], seq), is_commit))


def _savepoint_at(snapshot: Snapshot, time: str) -> str | None:
    return next((name for name, saved in snapshot.tags.savepoints.items() if saved == time), None)


def tags_table(metadata: Metadata, snapshot: Snapshot) -> pa.Table:
    """Return a table with one row per tag, ordered by seq, schema TAGS."""
    history = metadata.history(since=min(snapshot.tags.states, default=0) - 1)
    instants = dict(zip(history["seq"].to_pylist(), history["instant"].to_pylist(), strict=True))
    tags = snapshot.tags
    rows = [
        {
            "name": name,
            "seq": seq,
            "instant": instants.get(seq),
            "savepoint": name in tags.savepoints,
        }
        for name, seq in sorted(tags.seqs.items(), key=lambda item: (item[1], item[0]))
    ]
    return pa.Table.from_pylist(rows, schema=TAGS)
