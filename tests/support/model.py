"""Random histories of a table and a dictionary: after each step, mdt's scans and hudi-rs must see
the content of the dictionary.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from counting import count
from format_views import VIEWS
from hidden import HiddenMetadata
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from losing import lose
from model_merge import MergeRules
from model_past import PastRules
from reader import BY_POSITION, bag, bag_of, hudi_table
from spilled import SpilledTable
from strategies import KEYS, rank, rows, shapes, smallest_ordering_value
from worlds import compact_logs

import mdt
from indexes.predicate import matches
from indexes.registry import parse_spec
from indexes.testing import predicates
from mdt.errors import Invalid, Unsupported
from mdt.hudi import properties
from mdt.metadata.files.file_group import LOG
from mdt.metadata.history.foreign_writers import read_properties
from mdt.schema.convert import convert
from mdt.services.checking.keys import check_placement
from mdt.services.checking.state import TableState
from mdt.services.layout import small_files, split_groups
from mdt.services.layout.curves import CURVES
from mdt.services.reclaiming import cleaning
from mdt.stores.storage import LocalStorage

pytestmark = pytest.mark.usefixtures("records_decoded_once")

_STEPS = 12
DEFAULTS = small_files.JOINED_MIN, small_files.REWRITTEN_BYTES_MAX, small_files.LOG_SHARE
CUT = split_groups.PART_BYTES, split_groups.PART_ROWS
INDEXES = (
    "bitmap(note)",
    "bitmap(x)",
    "bitmap(ts)",
    "bitmap(day)",
    "bitmap(id)",
    "bloom(id)",
    "bloom(x)",
    "bloom(city)",
    "text(note)",
    "text(note, tokenizer='ngram(2)')",
    "column_stats(sub)",
)


class TableAgainstDictionary(MergeRules, PastRules):
    """The model: identity -> row. A larger ordering value wins, at equal values the later write. A
    delete is absolute.
    """

    kind_of_table: type[mdt.Table] = mdt.Table
    kind_of_other: type[mdt.Table] = SpilledTable

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="mdt-model-"))
        self.path = self.folder / "table"
        self.model = {}
        self.past = {}
        self.graves = {}
        self.graves_then = {}
        self.tags = {}
        self.schemas = {}
        self.alters = []
        self.steps = 0

    @initialize(shape=shapes())
    def create(self, shape):
        self.shape = shape
        self.schema = shape.schema
        small_files.JOINED_MIN = shape.joined_min
        if shape.joins_logs:
            small_files.REWRITTEN_BYTES_MAX, small_files.LOG_SHARE = 0, 0
        # otherwise, its parts are joined again
        split_groups.PART_BYTES, split_groups.PART_ROWS = (500, 1) if shape.joined_min > 2 else CUT
        mdt.create(self._storage(), shape.schema, **shape.arguments())
        self.table, self.other = self._opened(), self._opened(self.kind_of_other)

    def teardown(self):
        small_files.JOINED_MIN, small_files.REWRITTEN_BYTES_MAX, small_files.LOG_SHARE = DEFAULTS
        split_groups.PART_BYTES, split_groups.PART_ROWS = CUT
        if hasattr(self, "table") and sys.exc_info()[0] is None:
            # otherwise, report the step that failed
            joined = self.table.history()["operation"].to_pylist().count("log_compact")
            count("log compactions in the model", joined)
            self.check_all()
            self._check_the_past()
        count("histories of the model, every commit of each read again at its end")
        count("steps of the model, each compared with scan, pruned scan and hudi-rs", self.steps)
        shutil.rmtree(self.folder)

    # Writes

    @rule(data=st.data())
    def upsert(self, data):
        self._upsert(data, data.draw(self._rows()))

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def update(self, data):
        known = self._known(data, min_size=2, max_size=8)
        kept = list(self.shape.key)
        kept += [] if data.draw(st.booleans(), label="moves") else self.shape.partition_by
        kept += [] if data.draw(st.booleans(), label="other ordering values") else ["ts"]
        self._upsert(data, self._with_parts_of(data, known, kept))

    @rule(data=st.data(), bulk=st.booleans())
    def insert(self, data, bulk):
        batch = data.draw(self._rows(max_size=6))
        writer = self._writer(data)
        write = writer.bulk_insert if bulk else writer.insert
        identities = [self.shape.identity(row) for row in batch]
        if len(set(identities)) < len(batch) or self.model.keys() & set(identities):
            with pytest.raises(Invalid, match="takes new keys only"):
                write(self._arrow(batch))
        else:
            self._expect(write(self._arrow(batch)), self._put(batch))
        self._compare_pruned(data)

    @rule(data=st.data())
    def delete(self, data):
        batch = data.draw(self._rows(max_size=4))
        if data.draw(st.booleans()):
            batch += self._known(data, max_size=4)
        at = self.shape.keeps_deletes and data.draw(st.booleans(), label="at an ordering value")
        self._expect(self._writer(data).delete(self._keys(batch, at)), self._remove(batch, at))
        self._compare_pruned(data)
        if self.graves and data.draw(st.booleans(), label="again"):
            self.bring_deleted_keys_again(data)

    @precondition(lambda self: self.graves)
    @rule(data=st.data())
    def bring_deleted_keys_again(self, data):
        """Write rows of deleted keys with ordering values below, at and above those of
        the deletes.
        """
        how = data.draw(st.sampled_from(("upsert", "insert", "merge")), label="how")
        deleted = [row for identity, row in self.graves.items() if identity not in self.model]
        batch = self._with_parts_of(data, deleted, self.shape.located_by)
        counts = self._put(batch)
        writer, rows = self._writer(data), self._arrow(batch)
        if how == "merge":
            result = writer.merge(rows).when_not_matched().insert().execute()
            counts = {name: counts[name] for name in ("inserted", "late")}
        else:
            result = writer.upsert(rows) if how == "upsert" else writer.insert(rows)
        self._expect(result, counts)
        late = "rows that the model leaves out as older than the delete of their key"
        count(late, counts["late"])
        count("rows that the model revives", counts["inserted"])
        self._compare_pruned(data)

    @precondition(lambda self: self.model and self.shape.ordering and not self.shape.keeps_deletes)
    @rule(data=st.data(), between=st.booleans())
    def delete_and_insert_again_with_a_smaller_ordering_value(self, data, between):
        row = max(self.model.values(), key=lambda r: r["ts"])
        again = row | {"ts": smallest_ordering_value(self.shape)}
        if self._is_as_made("note"):
            again["note"] = "again"
        writer = self._writer(data)
        self._expect(writer.delete(self._keys([row])), self._remove([row]))
        if between:
            self.all_readers_see_the_model()
        self._upsert(data, [again])

    @precondition(lambda self: self.model)
    @rule(data=st.data(), others=st.integers(0, 2))
    def delete_and_insert_again_beside_new_keys(self, data, others):
        """The new keys make room for the old ones elsewhere. The old keys must return to the file
        groups of their deleted rows.
        """
        known = self._known(data, min_size=1, max_size=4)
        self._expect(self._writer(data).delete(self._keys(known)), self._remove(known))
        for _ in range(others):
            self._upsert(data, data.draw(self._rows(max_size=4)))
        again = list(self._absent(known).values())
        if again:
            writer = self._writer(data)
            writes = (writer.upsert, writer.insert, writer.bulk_insert)
            write = data.draw(st.sampled_from(writes), label="how")
            self._expect(write(self._arrow(again)), self._put(again))
        self._compare_pruned(data)

    def _absent(self, rows):
        """Return identity -> row of the rows that are not live."""
        by_identity = {self.shape.identity(row): row for row in rows}
        return {
            identity: row for identity, row in by_identity.items() if identity not in self.model
        }

    @precondition(lambda self: len(self.past) > 1)
    @rule(data=st.data(), rolls_back=st.booleans())
    def restore(self, data, rolls_back):
        seq = data.draw(st.sampled_from(sorted(self.past)), label="seq")
        writer = self._writer(data)
        before = self.table.snapshot().definition
        if rolls_back and seq + 1 <= self.table.snapshot().seq:
            writer.rollback(seq + 1)
        else:
            writer.restore(seq)
        self.model = {self.shape.identity(row): row for row in self.past[seq]}
        self.graves = dict(self.graves_then[seq])
        self._have_columns_again(seq, before)
        self._compare_pruned(data)

    # Operations that change no row

    @rule(data=st.data(), name=st.sampled_from(("a", "b", "c")), is_savepoint=st.booleans())
    def tag_or_untag(self, data, name, is_savepoint):
        writer = self._writer(data)
        if name in self.tags:
            assert writer.snapshot(name).seq == self.tags.pop(name)
            writer.untag(name)
            self._forget_what_went()
        elif self.past and not (is_savepoint and any(self.table.tags()["savepoint"].to_pylist())):
            at = data.draw(st.sampled_from(sorted(self.past)), label="at")
            self.tags[name] = writer.savepoint(name, at) if is_savepoint else writer.tag(name, at)
        assert dict(self.table.snapshot().tags.seqs) == self.tags

    @rule(data=st.data())
    def compact(self, data):
        self._writer(data).compact()
        assert not self.table.files().filter(pc.equal(self.table.files()["kind"], LOG)).num_rows
        self._compare_pruned(data)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), commits=st.sampled_from((2, 0)))
    def compact_logs(self, data, commits):
        """Log files of similar size are joined, also those of a few commits made just before."""
        row = data.draw(st.sampled_from(list(self.model.values())), label="again")
        for _ in range(commits):
            self._upsert(data, [row])
        compact_logs(self._writer(data))
        self._compare(data)

    @rule(
        data=st.data(),
        by=st.lists(
            st.sampled_from(("x", "note", "day", "ts", "id")), min_size=1, max_size=3, unique=True
        ),
        curve=st.sampled_from(CURVES),
    )
    def cluster(self, data, by, curve):
        writer = self._writer(data)
        batch = data.draw(self._rows(max_size=6), label="new file groups")
        batch = list(self._absent(batch).values())
        if batch:
            self._expect(writer.bulk_insert(self._arrow(batch)), self._put(batch))
        if self.shape.has_buckets:
            with pytest.raises(Unsupported, match="bucket key index"):
                writer.cluster("id")
            return
        by = [name for name in by if self._is_as_made(name)]
        done = writer.cluster(by or ["id"], curve=curve)
        if done.instant:
            count("clusterings in the model that wrote")
        assert done.attempts == 1 and not done.warnings
        self._compare(data)

    @rule(
        data=st.data(),
        kept=st.integers(1, 4),
        twice=st.booleans(),
        name=st.sampled_from(("a", "b", None)),
    )
    def clean(self, data, kept, twice, name):
        """Old states and their files are deleted, except those with a tag. With two checkpoints
        before the horizon, old records are archived, too.
        """
        writer = self._writer(data)
        if name is not None and name not in self.tags:
            self.tag_or_untag(data, name, False)
        if twice:
            writer.metadata.compact()
        with patch.object(cleaning, "ARCHIVE_RECORDS_MIN", 1):
            writer.clean(retain_commits=kept)
        self._forget_what_went()
        retention = self.table.snapshot().retention
        count("cleanings in the model" + (" of tables with an archive" if retention.first else ""))
        self._compare(data)

    def _forget_what_went(self):
        """States before the horizon can be read if they have a tag. Changes after them cannot be
        read.
        """
        horizon = self.table.snapshot().retention.horizon
        for seq in [seq for seq in self.past if seq < horizon]:
            with pytest.raises(mdt.Expired):
                self.table.changes(seq).to_arrow()
            if seq in self.tags.values():
                self._check_state(self.table.scan(as_of=seq), seq)
                count("states in the model that only a tag keeps")
                continue
            del self.past[seq]
            with pytest.raises(mdt.Expired):
                self.table.scan(as_of=seq)

    @rule()
    def check_all(self):
        report = self.table.check()
        assert report.ok and not report.warnings, str(report)
        if self.shape.all_indexes:
            stored = read_properties(self.table.storage)
            for name in stored.get(properties.METADATA_PARTITIONS, "").split(","):
                count(f"checks in the model of Hudi's {re.sub('index_.+', 'index', name)}")

    @rule(data=st.data(), draw=st.randoms(use_true_random=False))
    def repair(self, data, draw):
        lose(self.table, draw)
        assert self._writer(data).repair().ok
        self.table, self.other = self._opened(), self._opened(self.kind_of_other)
        self._compare_pruned(data)

    @rule(data=st.data(), reopen=st.booleans())
    def compact_the_metadata_or_open_again(self, data, reopen):
        if reopen:
            self.table = self._opened()
        else:
            self._writer(data).metadata.compact()
        self._compare_pruned(data)

    @rule(
        data=st.data(),
        specs=st.lists(st.sampled_from(INDEXES), min_size=1, max_size=3, unique=True),
    )
    def create_indexes(self, data, specs):
        specs = [spec for spec in specs if all(map(self._is_as_made, parse_spec(spec).columns))]
        if specs:
            self._writer(data).create_index(
                specs, mode=data.draw(st.sampled_from(("sync", "async")), label="mode")
            )
        self._compare_pruned(data)

    @precondition(lambda self: self.table.definition.indexes)
    @rule(data=st.data(), change=st.sampled_from(("drop", "rebuild", "forget", "build")))
    def change_an_index(self, data, change):
        spec = data.draw(st.sampled_from(self.table.snapshot().definition.indexes))
        writer = self._writer(data)
        if change == "drop":
            writer.drop_index(spec)
        elif change == "build":
            writer.build_indexes()
            assert set(writer.indexes()["coverage"].to_pylist()) == {100.0}
        else:
            writer.rebuild_index(spec, mode="sync" if change == "rebuild" else "async")
        assert self.table.snapshot().seq == writer.snapshot().seq
        self._compare_pruned(data)

    # Invariants after every step

    @invariant()
    def all_readers_see_the_model(self):
        if not hasattr(self, "table"):
            return
        self.steps += 1
        assert not list(check_placement(TableState(self.table.metadata, self.table.snapshot()))), (
            "a Hudi writer would find a deleted row"
        )
        names = self.schema.names
        expected = bag_of(self.model.values(), names)
        assert bag(self.table.scan().to_arrow()) == expected
        assert self.table.scan().count() == len(self.model)
        self.past[self.table.snapshot().seq] = list(self.model.values())
        self.graves_then[self.table.snapshot().seq] = dict(self.graves)
        self.schemas[self.table.snapshot().seq] = self.schema
        self._remember(self.table.snapshot().seq)
        self._compare_formats(expected)
        if not self._hudi_knows():
            return
        assert bag(hudi_table(self.path, self.schema)) == expected, "hudi-rs, by key"
        other = mdt.open(HiddenMetadata(self.table.storage))
        assert other.storage.is_imported
        assert bag(self._as_declared(other)) == expected, "our reader of other writers' tables"
        if self.shape.table_type == "MERGE_ON_READ":
            assert bag(hudi_table(self.path, self.schema, BY_POSITION)) == expected, (
                "hudi-rs, by position"
            )

    def _compare_formats(self, expected):
        storage, seq = self._storage(), self.table.snapshot().seq
        for name in self.shape.formats:
            view = VIEWS[name]
            assert view.newest_version(storage) == seq
            assert bag(view.rows(storage, self.schema, None)) == expected, (
                f"{name}, by our own reader"
            )
            self._compare_readers(view.others_rows, expected)

    def _compare_readers(self, others_rows, expected):
        for name, read in others_rows(self.path, self.schema, None):
            assert bag(read) == expected, name
            count(f"steps of the model, each compared with {name}")

    def _as_declared(self, other):
        """Return the rows of a table that is read without mdt's metadata, in the declared types."""
        rows = other.scan().to_arrow().select(self.schema.names)
        columns = [convert(rows[field.name].combine_chunks(), field.type) for field in self.schema]
        return pa.table(columns, schema=self.schema)

    def _compare_pruned(self, data):
        """Compare one scan with a random filter, and one that looks up a key."""
        table = self._arrow(list(self.model.values()))
        scan = self.table.scan()
        scan.predicate = data.draw(predicates(self.schema, table))
        expected = table.filter(matches(scan.predicate, table))
        assert bag(scan.to_arrow()) == bag(expected), scan.explain()
        assert scan.count() == len(expected)
        row = {"id": KEYS[self.shape.key_type][0].as_py(), "sub": 0}
        if self.model:
            row = data.draw(st.sampled_from(list(self.model.values())))
        key = {name: row[name] for name in self.shape.key}
        scan = self.table.scan([(name, "=", value) for name, value in key.items()])
        matching = [live_row for live_row in self.model.values() if key.items() <= live_row.items()]
        assert bag(scan.to_arrow()) == bag_of(matching, self.schema.names)
        assert scan.explain().files_read == len(matching), "each live key is in one segment"

    def _compare_look_ups(self, data):
        """Compare rows by key, of live, deleted and unknown keys, in a random order."""
        batch = data.draw(self._rows(max_size=6), label="looked up")
        requested = data.draw(st.permutations([*batch, *self._known(data, max_size=6)]))
        expected = [self._live(row) or dict.fromkeys(self.schema.names) for row in requested]
        answer = self.table.get(self._arrow(requested).select(list(self.shape.located_by)))
        ids = [row["id"] for row in expected]
        assert answer["id"].to_pylist() == ids, "rows come in the order of the keys"
        assert bag(answer) == bag_of(expected, self.schema.names)

    def _compare(self, data):
        self._compare_pruned(data)
        self._compare_look_ups(data)

    def _live(self, row):
        """Return the live row with the key and partition of ``row``. Under table scope, a key may
        be live in another partition.
        """
        known = self.model.get(self.shape.identity(row))
        if known is None or self.shape.partition(known) != self.shape.partition(row):
            return None
        return known if all(known[name] == row[name] for name in self.shape.key) else None

    def _known(self, data, **sizes):
        """Draw rows of the model, if there are any."""
        if not self.model:
            return []
        return data.draw(st.lists(st.sampled_from(list(self.model.values())), **sizes), "known")

    def _with_parts_of(self, data, rows, names):
        """Draw as many rows, with the values of ``rows`` in the columns ``names``."""
        fresh = data.draw(self._rows(min_size=len(rows), max_size=len(rows)))
        pairs = zip(rows, fresh, strict=True)
        return [new | {name: old[name] for name in names} for old, new in pairs]

    def _in_known_partitions(self, batch):
        """Replace a null partition by that of the live row with the key. Under table scope, rows
        without a partition are refused.
        """
        if self.shape.scope == "partition" or not self.shape.moves:
            return batch
        return [row | self._known_partition(row) for row in batch]

    def _known_partition(self, row):
        old = self.model.get(self.shape.identity(row), row)
        return {name: old[name] for name in self.shape.partition_by if row[name] is None}

    def _upsert(self, data, batch):
        """Upsert rows, or give the first row and the others to a writer that gathers them."""
        table, batch = self._writer(data), self._in_known_partitions(batch)
        rows = self._arrow(batch)
        if data.draw(st.integers(0, 3), label="gathered") < 3:
            result = table.upsert(rows)
        else:
            with table.writer(max_seconds=3600) as writer:
                futures = [writer.upsert(part) for part in (rows[:1], rows[1:])]
            count("upserts that the model gathers")
            assert futures[0].result() is futures[1].result()
            result = futures[0].result()
        self._expect(result, self._put(batch))
        self._compare(data)

    def _check_the_past(self):
        for seq in self.past:
            self._check_state(mdt.open(self._storage(), as_of=seq).scan(), seq)

    def _check_state(self, scan, seq):
        expected = bag_of(self.past[seq], self.schemas[seq].names)
        assert bag(scan.to_arrow()) == expected, f"as of commit {seq}"

    def _storage(self):
        return LocalStorage(self.path, durable=False)

    def _opened(self, kind=None):
        return (kind or self.kind_of_table)(self._storage())

    def _writer(self, data):
        return data.draw(st.sampled_from((self.table, self.other)), label="writer")

    def _arrow(self, batch, schema=None):
        return pa.Table.from_pylist(batch, schema=schema or self.schema)

    # Methods that the model of altered tables overrides

    def _rows(self, **sizes):
        """Return a strategy for rows of the table as it is."""
        return rows(self.shape, **sizes).map(self._in_known_partitions)

    def _is_as_made(self, name):
        """Return whether a column is as it was when the table was created."""
        return name in self.schema.names

    def _remember(self, seq):
        """Remember the columns after commit ``seq``."""

    def _have_columns_again(self, seq, before):
        """Give the model the columns after commit ``seq``, to which the table was restored. The
        model has its rows already. ``before`` is the definition before the restore.
        """

    def _hudi_knows(self, *seqs):
        """Return whether Hudi's readers see the same as mdt for the states after commits ``seqs``,
        by default the newest one.
        """
        return True

    def _altered(self, seq, until):
        """Return the rows after commit ``seq`` with the columns after commit ``until``."""
        altered_rows = self.past[seq]
        for at, change in self.alters:
            if seq < at <= until:
                altered_rows = [change(row) for row in altered_rows]
        return altered_rows

    def _keys(self, batch, at=False):
        return self._arrow(batch).select([*self.shape.identified_by, *["ts"] * at])

    def _bury(self, identity, at=None):
        """Delete a row of the model, at its own ordering value or at that of the row ``at``."""
        row = self.model.pop(identity)
        if self.shape.keeps_deletes:
            self.graves[identity] = row if at is None else at

    def _is_outlived(self, identity, row):
        """Return whether the key of a row that is not live was deleted at a larger
        ordering value.
        """
        return identity in self.graves and rank(row) < rank(self.graves[identity])

    def _put(self, batch):
        """Upsert into the model. Return the counts that the table must give."""
        newest = {}
        for row in batch:
            identity = self.shape.identity(row)
            if identity not in newest or not self.shape.is_older(row, newest[identity]):
                newest[identity] = row
        late = len(batch) - len(newest)
        counts = {"inserted": 0, "updated": 0, "deleted": 0, "late": late, "missing": 0}
        for identity, row in newest.items():
            old = self.model.get(identity)
            if self._is_outlived(identity, row) if old is None else self.shape.is_older(row, old):
                counts["late"] += 1
            else:
                counts["inserted" if old is None else "updated"] += 1
                self.model[identity] = self.shape.updated(old, row)
        return counts

    def _remove(self, batch, at=False):
        """Delete from the model, at the ordering values of the batch if ``at``, otherwise at those
        of the rows. Return the counts that the table must give.
        """
        counts = {"inserted": 0, "updated": 0, "deleted": 0, "late": 0, "missing": 0}
        named = {}
        for row in sorted(batch, key=rank) if at else batch:
            named[self.shape.identity(row)] = row
        for identity, row in named.items():
            old = self.model.get(identity)
            if old is None:
                counts["missing"] += 1
                if at and not self._is_outlived(identity, row):
                    self.graves[identity] = row
            elif at and rank(row) < rank(old):
                counts["late"] += 1
            else:
                counts["deleted"] += 1
                self._bury(identity, row if at else None)
        return counts

    def _expect(self, result, counts):
        assert {name: getattr(result, name) for name in counts} == counts
        assert result.attempts == 1 and not result.warnings


def histories(examples):
    """Return settings that run so many histories."""
    return settings(
        max_examples=examples,
        stateful_step_count=_STEPS,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
