"""Random histories of tables whose keys repeat, beside a list of rows: after each step our scans
and hudi-rs see what it holds.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from counting import count
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from reader import BY_POSITION, bag, bag_of, hudi_table
from strategies import Row, Shape, rows, shapes
from worlds import join_small_files

import mdt
from mdt.errors import Invalid, Unsupported
from mdt.services.layout import small_files
from mdt.services.reclaiming import cleaning
from mdt.stores.storage import LocalStorage


def _rank(row: Row) -> Any:
    return (row["ts"], math.copysign(1.0, row["ts"])) if isinstance(row["ts"], float) else row["ts"]


class RepeatedAgainstList(RuleBasedStateMachine):
    """The model: a list of rows.  Whoever upserts a key replaces all of its rows, unless one of
    them has a larger ordering value.
    """

    kind_of_table = mdt.Table

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="mdt-model-"))
        self.model: list[Row] = []
        self.past: dict[int, list[Row]] = {}

    @initialize(shape=shapes())
    def create(self, shape: Shape) -> None:
        key_index = "record" if shape.has_buckets else shape.key_index
        ordering = "long" if shape.ordering == "text" else shape.ordering
        self.shape = shape = replace(
            shape, moves=True, remembers=False, key_index=key_index, ordering=ordering
        )
        small_files.JOINED_MIN = shape.joined_min
        arguments = shape.arguments()
        arguments["options"] |= {"mdt.keys.repeat": True}
        mdt.create(self._storage(), shape.schema, **arguments)
        self.table = self.kind_of_table(self._storage())

    def teardown(self) -> None:
        small_files.JOINED_MIN = 8
        if hasattr(self, "table"):
            report = self.table.check()
            assert report.ok and not report.warnings, str(report)
        shutil.rmtree(self.folder)

    @rule(data=st.data())
    def insert_without_look_up(self, data: st.DataObject) -> None:
        batch = data.draw(rows(self.shape, min_size=2, max_size=8))
        if self.model:
            batch += data.draw(st.lists(st.sampled_from(self.model), min_size=1, max_size=3))
        newest = self._newest(batch)
        repeated = sum(bool(self._of(one)) for one in newest)
        count("rows that the model inserts beside others of their key", repeated)
        done = self.table.insert(self._arrow(batch), check=False)
        self._expect(
            done, inserted=len(newest), updated=0, deleted=0, late=len(batch) - len(newest)
        )
        self.model += newest.values()

    @rule(data=st.data())
    def insert(self, data: st.DataObject) -> None:
        batch = list(self._newest(data.draw(rows(self.shape, max_size=4))).values())
        if any(self._of(self.shape.identity(row)) for row in batch):
            with pytest.raises(Invalid, match="takes new keys only"):
                self.table.insert(self._arrow(batch))
        else:
            self._expect(self.table.insert(self._arrow(batch)), inserted=len(batch))
            self.model += batch

    @rule(data=st.data())
    def upsert(self, data: st.DataObject) -> None:
        batch = self._in_known_partitions(data.draw(rows(self.shape, max_size=8)))
        if self.model:
            batch += data.draw(st.lists(st.sampled_from(self.model), max_size=3))
        newest = self._newest(batch)
        counts = {"inserted": 0, "updated": 0, "deleted": 0, "late": len(batch) - len(newest)}
        for identity, row in newest.items():
            old = self._of(identity)
            if self.shape.ordering and any(_rank(row) < _rank(one) for one in old):
                counts["late"] += 1
                continue
            counts["updated" if old else "inserted"] += 1
            counts["deleted"] += max(0, len(old) - 1)
            self._forget(identity)
            self.model.append(row)
        self._expect(self.table.upsert(self._arrow(batch)), **counts)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        batch = data.draw(rows(self.shape, max_size=3))
        if self.model and data.draw(st.booleans()):
            batch += data.draw(st.lists(st.sampled_from(self.model), max_size=3))
        identities = {self.shape.identity(row) for row in batch}
        gone, missing = (
            sum(len(self._of(one)) for one in identities),
            sum(not self._of(one) for one in identities),
        )
        names = dict.fromkeys(
            (*self.shape.key, *(self.shape.partition_by if self.shape.scope == "partition" else ()))
        )
        done = self.table.delete(self._arrow(batch).select(list(names)))
        for identity in identities:
            self._forget(identity)
        self._expect(done, deleted=gone, missing=missing)

    @rule(deletes=st.booleans(), sub=st.integers(0, 1))
    def change_by_a_condition(self, deletes: bool, sub: int) -> None:
        """One of several rows of a key may be changed alone."""
        if deletes:
            self.table.delete_where(f"sub = {sub} and x is null")
            self.model = [row for row in self.model if row["sub"] != sub or row["x"] is not None]
        else:
            self.table.update_where(values={"note": "b"}, where=f"sub = {sub} and x >= 0")
            hit = [
                row["sub"] == sub and row["x"] is not None and not row["x"] < 0
                for row in self.model
            ]
            self.model = [
                row | {"note": "b"} if one else row
                for row, one in zip(self.model, hit, strict=True)
            ]

    @rule(data=st.data())
    def insert_overwrite(self, data: st.DataObject) -> None:
        newest = self._newest(data.draw(rows(self.shape, max_size=4)))
        replaced = {self.shape.partition(row) for row in newest.values()}
        self.table.insert_overwrite(self._arrow(list(newest.values())))
        self.model = [r for r in self.model if self.shape.partition(r) not in replaced]
        for identity in newest:
            self._forget(identity)
        self.model += newest.values()

    @rule(
        by=st.lists(st.sampled_from(("x", "note", "ts", "id")), min_size=1, max_size=2, unique=True)
    )
    def cluster(self, by: list[str]) -> None:
        if self.table.cluster(by).instant:
            count("clusterings of tables whose keys repeat")

    @rule(joins=st.booleans())
    def compact_and_join(self, joins: bool) -> None:
        self.table.compact()
        if joins and join_small_files(self.table):
            count("joins of tables whose keys repeat")

    @rule(kept=st.integers(1, 3))
    def clean(self, kept: int) -> None:
        self.table.metadata.compact()
        with patch.object(cleaning, "ARCHIVE_RECORDS_MIN", 1):
            self.table.clean(retain_commits=kept)
        horizon = self.table.snapshot().retention.horizon
        self.past = {seq: state for seq, state in self.past.items() if seq >= horizon}

    @precondition(lambda self: len(self.past) > 1)
    @rule(data=st.data(), mode=st.sampled_from(("net", "all")))
    def changes_make_the_newer_rows_of_the_older_ones(self, data: st.DataObject, mode: str) -> None:
        since, until = sorted(
            data.draw(st.lists(st.sampled_from(sorted(self.past)), min_size=2, max_size=2))
        )
        names = self.shape.schema.names
        copy = Counter(bag_of(self.past[since], names))
        for change in self.table.changes(since, until, mode=mode).to_arrow().to_pylist():
            row = bag_of([{name: change[name] for name in names}], names)
            if change["_change"] in ("delete", "update_before"):
                assert not Counter(row) - copy, "a row died that was not there"
                copy -= Counter(row)
            else:
                copy += Counter(row)
        assert copy == Counter(bag_of(self.past[until], names)), f"{mode} from {since} to {until}"

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def look_a_key_up(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from(self.model))
        known = [r for r in self.model if all(r[name] == row[name] for name in self.shape.key)]
        found = self.table.scan([(name, "=", row[name]) for name in self.shape.key]).to_arrow()
        assert bag(found) == bag_of(known, self.shape.schema.names)
        asked = {name: row[name] for name in (*self.shape.key, *self.shape.partition_by)}
        there = [r for r in known if self.shape.partition(r) == self.shape.partition(row)]
        if len(there) > 1:
            with pytest.raises(Invalid, match="1 keys live in several rows"):
                self.table.get(asked)
        else:
            assert bag_of([self.table.get(asked)], self.shape.schema.names) == bag_of(
                there, self.shape.schema.names
            )

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def refuse_to_restore(self, data: st.DataObject) -> None:
        with pytest.raises(Unsupported, match="live more than once"):
            self.table.restore(data.draw(st.sampled_from(sorted(self.past))))

    @invariant()
    def all_readers_see_the_model(self) -> None:
        if not hasattr(self, "table"):
            return
        expected = bag_of(self.model, self.shape.schema.names)
        assert bag(self.table.scan().to_arrow()) == expected
        assert bag(hudi_table(self.folder / "table", self.shape.schema)) == expected, (
            "hudi-rs, by key"
        )
        if self.shape.table_type == "MERGE_ON_READ":
            assert (
                bag(hudi_table(self.folder / "table", self.shape.schema, BY_POSITION)) == expected
            ), "by position"
        self.past[self.table.snapshot().seq] = list(self.model)
        count("steps of tables whose keys repeat")

    def _in_known_partitions(self, batch: list[Row]) -> list[Row]:
        """Return the rows with a partition of their key in place of none: under table scope an
        upsert without one is refused.
        """
        if self.shape.scope == "partition":
            return batch
        return [row | self._known_partition(row) for row in batch]

    def _known_partition(self, row: Row) -> Row:
        absent = [name for name in self.shape.partition_by if row[name] is None]
        known = self._of(self.shape.identity(row))
        return {name: old[name] for name in absent for old in known if old[name] is not None}

    def _of(self, identity: Any) -> list[Row]:
        return [row for row in self.model if self.shape.identity(row) == identity]

    def _forget(self, identity: Any) -> None:
        self.model = [row for row in self.model if self.shape.identity(row) != identity]

    def _newest(self, batch: list[Row]) -> dict[Any, Row]:
        """Return of rows with the same identity the one that is written."""
        found: dict[Any, Row] = {}
        for row in batch:
            rival = found.get(self.shape.identity(row))
            if rival is None or not self.shape.ordering or _rank(row) >= _rank(rival):
                found[self.shape.identity(row)] = row
        return found

    def _storage(self) -> LocalStorage:
        return LocalStorage(self.folder / "table", durable=False)

    def _arrow(self, batch: list[Row]) -> pa.Table:
        return pa.Table.from_pylist(batch, schema=self.shape.schema)

    def _expect(self, result: mdt.WriteResult, **counts: int) -> None:
        assert {name: getattr(result, name) for name in counts} == counts
        assert result.attempts == 1 and not result.warnings
