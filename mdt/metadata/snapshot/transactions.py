"""The transactions in the log: instants, tokens, and which of them were declared dead."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import numbers
from mdt.forking import cached_property
from mdt.metadata.log import trusted_names as names
from mdt.metadata.log.checkpoint_columns import HISTORY, Columns
from mdt.metadata.log.commit_log import CommitRecord


@dataclass(frozen=True)
class History:
    """The transactions up to a checkpoint, and rows of HISTORY of the records ``since``.

    The checkpoint's part is computed once.
    """

    checkpoint: Columns
    since: tuple[Mapping[str, Any], ...]

    @cached_property
    def table(self) -> pa.Table:
        """One row per commit record, oldest first, schema HISTORY."""
        since = pa.Table.from_pylist(list(self.since), schema=HISTORY)
        return pa.concat_tables([self.checkpoint.table("history"), since])

    @cached_property
    def instants(self) -> frozenset[str]:
        """The instants of all records."""
        return self._all("instant").union(row["instant"] for row in self.since)

    @cached_property
    def private_instants(self) -> frozenset[str]:
        """The instants of all records that are not commits of Hudi's timeline. Another writer may
        give one of its commits the same instant.
        """
        older: frozenset[str] = self.checkpoint.memo(
            "private_instants", lambda: _private(self.checkpoint.table("history"))
        )
        return older | _private(pa.Table.from_pylist(list(self.since), schema=HISTORY))

    @cached_property
    def tokens(self) -> frozenset[int]:
        """Tokens of all committed transactions."""
        return self._all("token").union(
            row["token"] for row in self.since if row["token"] is not None
        )

    @cached_property
    def rolled_back(self) -> frozenset[str]:
        """Ids of all transactions declared dead."""
        return self._all_of_lists("rolled_back")

    @cached_property
    def dead_tokens(self) -> frozenset[int]:
        """Tokens of all transactions declared dead."""
        return self._all_of_lists("dead_tokens")

    @cached_property
    def dead_instants(self) -> frozenset[str]:
        """Instants of all transactions declared dead that had a claim."""
        return self._all_of_lists("dead_instants")

    @cached_property
    def transactions(self) -> Mapping[str, int]:
        """Seqs by transaction id."""
        older: dict[str, int] = self.checkpoint.memo(
            "transactions", lambda: _transactions(self.checkpoint)
        )
        return ChainMap({str(row["txn"]): int(row["seq"]) for row in self.since}, older)

    def _all_of_lists(self, name: str) -> frozenset[Any]:
        return self._all(name).union(value for row in self.since for value in row[name])

    def _all(self, name: str) -> frozenset[Any]:
        """Return the values of a column in the checkpoint, without nulls.  Lists are flattened."""
        values: frozenset[Any] = self.checkpoint.memo(
            f"history/{name}", lambda: _values(self.checkpoint, name)
        )
        return values


def _values(checkpoint: Columns, name: str) -> frozenset[Any]:
    values = checkpoint.table("history")[name]
    if pa.types.is_list(values.type):
        values = pc.list_flatten(values)
    return frozenset(values.drop_null().to_pylist())


def _private(history: pa.Table) -> frozenset[str]:
    is_private = pc.or_(
        pc.is_in(history["action"], pa.array(names.NO_INSTANTS)),
        pc.equal(history["operation"], names.ADOPT),
    )
    return frozenset(history["instant"].filter(is_private).to_pylist())


def _transactions(checkpoint: Columns) -> dict[str, int]:
    history = checkpoint.table("history")
    return dict(zip(history["txn"].to_pylist(), history["seq"].to_pylist(), strict=True))


_SHOWN = (
    "seq",
    "instant",
    "time",
    "action",
    "operation",
    "txn",
    "inserted",
    "updated",
    "deleted",
    "late",
    "rolled_back",
    "files",
    "rows",
    "bytes",
    "metadata",
)


def with_times(history: pa.Table) -> pa.Table:
    """Return rows of HISTORY for users: with the time of each instant, timestamp[ms, UTC], and
    without tokens.

    >>> row = {"seq": 0, "instant": "20240229120000123"}
    >>> str(with_times(pa.Table.from_pylist([row], schema=HISTORY))["time"][0].as_py())
    '2024-02-29 12:00:00.123000+00:00'
    """
    instants = history["instant"]
    seconds = pc.strptime(
        pc.utf8_slice_codeunits(instants, 0, 14),
        format="%Y%m%d%H%M%S",
        unit="ms",
        error_is_null=True,
    )
    millis = pc.utf8_slice_codeunits(instants, 14, 17)
    fraction = (
        pc.if_else(pc.equal(pc.utf8_length(millis), 3), millis, "0")
        .cast(pa.int64())
        .cast(pa.duration("ms"))
    )
    time = pc.assume_timezone(pc.add(seconds, fraction), "UTC")
    return history.append_column(pa.field("time", time.type), time).select(_SHOWN)


def history_row(record: CommitRecord) -> dict[str, Any]:
    """Return the row of HISTORY for a record."""
    counts, metadata, files = (
        record.header.get("counts", {}),
        record.header.get("metadata"),
        record.table("files"),
    )
    return {
        "seq": record.seq,
        "instant": record.instant,
        "action": record.action,
        "operation": record.header["operation"],
        "txn": record.txn,
        "rolled_back": list(record.rolled_back),
        "token": record.token,
        "dead_instants": list(record.dead_instants),
        "dead_tokens": list(record.dead_tokens),
        **{name: int(counts.get(name, 0)) for name in ("inserted", "updated", "deleted", "late")},
        "files": len(files),
        "rows": int(numbers(files["rows"]).sum()),
        "bytes": int(numbers(files["size"]).sum()),
        "metadata": None if metadata is None else list(metadata.items()),
    }
