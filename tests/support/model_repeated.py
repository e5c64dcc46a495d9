"""Random histories of tables whose keys repeat, beside a list of rows: after each step, mdt's scans
and hudi-rs must see its content.
"""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from counting import count
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from reader import BY_POSITION, bag, bag_of, hudi_table
from strategies import rows, shapes
from worlds import join_small_files

import mdt
from mdt.errors import Invalid, Unsupported
from mdt.services.layout import small_files
from mdt.services.reclaiming import cleaning
from mdt.stores.storage import LocalStorage


class RepeatedAgainstList(RuleBasedStateMachine):
    """The model: a list of rows. An upsert of a key replaces all of its rows, unless one of them
    has a larger ordering value.
    """

    kind_of_table = mdt.Table

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="mdt-model-"))
        self.model = []
        self.past = {}

    @initialize(shape=shapes())
    def create(self, shape):
        key_index = "record" if shape.has_buckets else shape.key_index
        ordering = "long" if shape.ordering == "text" else shape.ordering
        self.shape = shape = replace(
            shape,
            moves=True,
            remembers=False,
            key_index=key_index,
            ordering=ordering,
            all_indexes=False,
        )
        small_files.JOINED_MIN = shape.joined_min
        arguments = shape.arguments()
        arguments["options"] |= {"mdt.keys.repeat": True}
        mdt.create(self._storage(), shape.schema, **arguments)
        self.table = self.kind_of_table(self._storage())

    def teardown(self):
        small_files.JOINED_MIN = 8
        if hasattr(self, "table"):
            report = self.table.check()
            assert report.ok and not report.warnings, str(report)
        shutil.rmtree(self.folder)

    @rule(data=st.data())
    def insert_without_look_up(self, data):
        batch = data.draw(rows(self.shape, min_size=2, max_size=8))
        batch += self._known(data, min_size=1, max_size=3)
        newest = self._newest(batch)
        repeated = sum(bool(self._of(identity)) for identity in newest)
        count("rows that the model inserts beside others of their key", repeated)
        result = self.table.insert(self._arrow(batch), check=False)
        late = len(batch) - len(newest)
        self._expect(result, inserted=len(newest), updated=0, deleted=0, late=late)
        self.model += newest.values()

    @rule(data=st.data())
    def insert(self, data):
        newest = self._newest(data.draw(rows(self.shape, max_size=4)))
        batch = list(newest.values())
        if any(map(self._of, newest)):
            with pytest.raises(Invalid, match="takes new keys only"):
                self.table.insert(self._arrow(batch))
        else:
            self._expect(self.table.insert(self._arrow(batch)), inserted=len(batch))
            self.model += batch

    @rule(data=st.data())
    def upsert(self, data):
        batch = self._in_known_partitions(data.draw(rows(self.shape, max_size=8)))
        batch += self._known(data, max_size=3)
        newest = self._newest(batch)
        counts = {"inserted": 0, "updated": 0, "deleted": 0, "late": len(batch) - len(newest)}
        for identity, row in newest.items():
            old = self._of(identity)
            if any(self.shape.is_older(row, old_row) for old_row in old):
                counts["late"] += 1
                continue
            counts["updated" if old else "inserted"] += 1
            counts["deleted"] += max(0, len(old) - 1)
            self._forget(identity)
            self.model.append(row)
        self._expect(self.table.upsert(self._arrow(batch)), **counts)

    @rule(data=st.data())
    def delete(self, data):
        batch = data.draw(rows(self.shape, max_size=3))
        if data.draw(st.booleans()):
            batch += self._known(data, max_size=3)
        identities = {self.shape.identity(row) for row in batch}
        row_counts = [len(self._of(identity)) for identity in identities]
        result = self.table.delete(self._arrow(batch).select(list(self.shape.identified_by)))
        for identity in identities:
            self._forget(identity)
        self._expect(result, deleted=sum(row_counts), missing=row_counts.count(0))

    @rule(deletes=st.booleans(), sub=st.integers(0, 1))
    def change_by_a_condition(self, deletes, sub):
        """One of several rows of a key can be changed alone."""
        if deletes:
            self.table.delete_where(f"sub = {sub} and x is null")
            self.model = [row for row in self.model if row["sub"] != sub or row["x"] is not None]
            return
        self.table.update_where(values={"note": "b"}, where=f"sub = {sub} and x >= 0")
        for at, row in enumerate(self.model):
            if row["sub"] == sub and row["x"] is not None and not row["x"] < 0:
                self.model[at] = row | {"note": "b"}

    @rule(data=st.data())
    def insert_overwrite(self, data):
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
    def cluster(self, by):
        if self.table.cluster(by).instant:
            count("clusterings of tables whose keys repeat")

    @rule(joins=st.booleans())
    def compact_and_join(self, joins):
        self.table.compact()
        if joins and join_small_files(self.table):
            count("joins of tables whose keys repeat")

    @rule(kept=st.integers(1, 3))
    def clean(self, kept):
        self.table.metadata.compact()
        with patch.object(cleaning, "ARCHIVE_RECORDS_MIN", 1):
            self.table.clean(retain_commits=kept)
        horizon = self.table.snapshot().retention.horizon
        self.past = {seq: state for seq, state in self.past.items() if seq >= horizon}

    @precondition(lambda self: len(self.past) > 1)
    @rule(data=st.data(), mode=st.sampled_from(("net", "all")))
    def changes_make_the_newer_rows_of_the_older_ones(self, data, mode):
        two = st.lists(st.sampled_from(sorted(self.past)), min_size=2, max_size=2)
        since, until = sorted(data.draw(two))
        copy = self._bag(self.past[since])
        for change in self.table.changes(since, until, mode=mode).to_arrow().to_pylist():
            row = self._bag([change])
            if change["_change"] in ("delete", "update_before"):
                assert not row - copy, "a deleted row was not live"
                copy -= row
            else:
                copy += row
        assert copy == self._bag(self.past[until]), f"{mode} from {since} to {until}"

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def look_a_key_up(self, data):
        row = data.draw(st.sampled_from(self.model))
        key = {name: row[name] for name in self.shape.key}
        known = [live_row for live_row in self.model if key.items() <= live_row.items()]
        read = self.table.scan([(name, "=", value) for name, value in key.items()]).to_arrow()
        assert bag(read) == self._bag(known)
        values = {name: row[name] for name in self.shape.located_by}
        matches = [r for r in known if self.shape.partition(r) == self.shape.partition(row)]
        if len(matches) > 1:
            with pytest.raises(Invalid, match="1 keys exist in several rows"):
                self.table.get(values)
        else:
            assert self._bag([self.table.get(values)]) == self._bag(matches)

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def refuse_to_restore(self, data):
        with pytest.raises(Unsupported, match="keys may repeat"):
            self.table.restore(data.draw(st.sampled_from(sorted(self.past))))

    @invariant()
    def all_readers_see_the_model(self):
        if not hasattr(self, "table"):
            return
        assert bag(self.table.scan().to_arrow()) == self._bag(self.model)
        options_of_reads = [{}, BY_POSITION] if self.shape.table_type == "MERGE_ON_READ" else [{}]
        for options in options_of_reads:
            read = hudi_table(self.folder / "table", self.shape.schema, options)
            assert bag(read) == self._bag(self.model), f"hudi-rs {options}"
        self.past[self.table.snapshot().seq] = list(self.model)
        count("steps of tables whose keys repeat")

    def _bag(self, batch):
        return bag_of(batch, self.shape.schema.names)

    def _known(self, data, **sizes):
        if not self.model:
            return []
        return data.draw(st.lists(st.sampled_from(self.model), **sizes))

    def _in_known_partitions(self, batch):
        """Replace a null partition by a partition of the key. Under table scope, an upsert without
        a partition is refused.
        """
        if self.shape.scope == "partition":
            return batch
        return [row | self._known_partition(row) for row in batch]

    def _known_partition(self, row):
        absent = [name for name in self.shape.partition_by if row[name] is None]
        known = self._of(self.shape.identity(row))
        return {name: old[name] for name in absent for old in known if old[name] is not None}

    def _of(self, identity):
        return [row for row in self.model if self.shape.identity(row) == identity]

    def _forget(self, identity):
        self.model = [row for row in self.model if self.shape.identity(row) != identity]

    def _newest(self, batch):
        """Return identity -> the row that is written."""
        newest = {}
        for row in batch:
            identity = self.shape.identity(row)
            if identity not in newest or not self.shape.is_older(row, newest[identity]):
                newest[identity] = row
        return newest

    def _storage(self):
        return LocalStorage(self.folder / "table", durable=False)

    def _arrow(self, batch):
        return pa.Table.from_pylist(batch, schema=self.shape.schema)

    def _expect(self, result, **counts):
        assert {name: getattr(result, name) for name in counts} == counts
        assert result.attempts == 1 and not result.warnings
