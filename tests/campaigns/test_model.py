"""Random histories against a dictionary: after each step our scans and hudi-rs see what the dictionary holds."""

from __future__ import annotations

import math
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from counting import count
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from reader import BY_POSITION, bag, bag_of, hudi_table
from strategies import KEYS, Row, Shape, rows, shapes, smallest_ordering_value

import mdt
from indexes.predicate import matches
from indexes.testing import predicates
from mdt.errors import Invalid
from mdt.hudi import log_file
from mdt.metadata import attachments as blobs
from mdt.metadata.file_group import LOG
from mdt.query import Scan
from mdt.services.check_placement import misplaced_keys
from mdt.stores.storage import LocalStorage, MemoryStorage

pytestmark = pytest.mark.usefixtures("records_decoded_once")

_EXAMPLES = int(os.environ.get("MDT_MODEL_EXAMPLES", "40"))
_STEPS = 12
INDEXES = (
    "bitmap(note)", "bitmap(x)", "bitmap(ts)", "bitmap(day)", "bitmap(id)", "bloom(id)", "bloom(x)", "bloom(city)",
    "text(note)", "text(note, tokenizer='ngram(2)')", "column_stats(sub)",
)  # fmt: skip


def _rank(row: Row) -> Any:
    """Return the ordering value as Hudi's readers compare it: -0.0 is below 0.0."""
    return (row["ts"], math.copysign(1.0, row["ts"])) if isinstance(row["ts"], float) else row["ts"]


class TableAgainstDictionary(RuleBasedStateMachine):
    """The model: identity -> row.  A larger ordering value wins, at equal ones the later write; a delete is absolute."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="mdt-model-"))
        self.path = self.folder / "table"
        self.model: dict[Any, Row] = {}
        self.past: dict[int, list[Row]] = {}
        self.steps = 0

    @initialize(shape=shapes())
    def create(self, shape: Shape) -> None:
        self.shape = shape
        self.table = mdt.create(self._storage(), shape.schema, **shape.arguments())
        self.other = mdt.open(self._storage())

    def teardown(self) -> None:
        if hasattr(self, "table") and sys.exc_info()[0] is None:  # else the step that failed is what to show
            report = self.table.check()
            assert report.ok and not report.warnings, str(report)
            self._check_the_past()
        count("histories of the model, every commit of each read again at its end")
        count("steps of the model, each compared with scan, pruned scan and hudi-rs", self.steps)
        shutil.rmtree(self.folder)

    # Writes

    @rule(data=st.data())
    def upsert(self, data: st.DataObject) -> None:
        self._upsert(data, data.draw(rows(self.shape)))

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def update(self, data: st.DataObject) -> None:
        known = data.draw(st.lists(st.sampled_from(list(self.model.values())), min_size=2, max_size=8))
        fresh = data.draw(rows(self.shape, min_size=len(known), max_size=len(known)))
        kept = list(self.shape.key)
        kept += [] if data.draw(st.booleans(), label="moves") else self.shape.partition_by
        kept += [] if data.draw(st.booleans(), label="other ordering values") else ["ts"]
        self._upsert(data, [new | {name: old[name] for name in kept} for old, new in zip(known, fresh, strict=True)])

    @rule(data=st.data(), bulk=st.booleans())
    def insert(self, data: st.DataObject, bulk: bool) -> None:
        batch = data.draw(rows(self.shape, max_size=6))
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
    def delete(self, data: st.DataObject) -> None:
        batch = data.draw(rows(self.shape, max_size=4))
        if self.model and data.draw(st.booleans()):
            batch += data.draw(st.lists(st.sampled_from(list(self.model.values())), max_size=4))
        self._expect(self._writer(data).delete(self._keys(batch)), self._remove(batch))
        self._compare_pruned(data)

    @precondition(lambda self: self.model and self.shape.ordering)
    @rule(data=st.data(), between=st.booleans())
    def delete_and_insert_again_with_a_smaller_ordering_value(self, data: st.DataObject, between: bool) -> None:
        row = max(self.model.values(), key=lambda r: r["ts"])
        again = row | {"ts": smallest_ordering_value(self.shape), "note": "again"}
        writer = self._writer(data)
        self._expect(writer.delete(self._keys([row])), self._remove([row]))
        if between:
            self.all_readers_see_the_model()
        self._upsert(data, [again])

    @precondition(lambda self: self.model)
    @rule(data=st.data(), others=st.integers(0, 2))
    def delete_and_insert_again_beside_new_keys(self, data: st.DataObject, others: int) -> None:
        """The new keys make room for the old ones elsewhere; the old ones must return to where their dead rows stand."""
        known = data.draw(st.lists(st.sampled_from(list(self.model.values())), min_size=1, max_size=4))
        self._expect(self._writer(data).delete(self._keys(known)), self._remove(known))
        for _ in range(others):
            self._upsert(data, data.draw(rows(self.shape, max_size=4)))
        again = {self.shape.identity(row): row for row in known if self.shape.identity(row) not in self.model}
        if again:
            writer = self._writer(data)
            write = data.draw(st.sampled_from((writer.upsert, writer.insert, writer.bulk_insert)), label="how")
            self._expect(write(self._arrow(list(again.values()))), self._put(list(again.values())))
        self._compare_pruned(data)

    # What must not change any row

    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        self._writer(data).compact()
        assert not self.table.files().filter(pc.equal(self.table.files()["kind"], LOG)).num_rows
        self._compare_pruned(data)

    @rule(data=st.data(), reopen=st.booleans())
    def compact_the_metadata_or_open_again(self, data: st.DataObject, reopen: bool) -> None:
        if reopen:
            self.table = mdt.open(self._storage())
        else:
            self._writer(data).metadata.compact()
        self._compare_pruned(data)

    @rule(data=st.data(), specs=st.lists(st.sampled_from(INDEXES), min_size=1, max_size=3, unique=True))
    def create_indexes(self, data: st.DataObject, specs: list[str]) -> None:
        self._writer(data).create_index(specs, mode=data.draw(st.sampled_from(("sync", "async")), label="mode"))
        self._compare_pruned(data)

    @precondition(lambda self: self.table.definition.indexes)
    @rule(data=st.data(), change=st.sampled_from(("drop", "rebuild", "forget", "build")))
    def change_an_index(self, data: st.DataObject, change: str) -> None:
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

    # What must hold after every step

    @invariant()
    def all_readers_see_the_model(self) -> None:
        if not hasattr(self, "table"):
            return
        self.steps += 1
        assert not list(misplaced_keys(self.table.metadata, self.table.snapshot())), (
            "a Hudi writer would find a dead row"
        )
        names = self.shape.schema.names
        expected = bag_of(self.model.values(), names)
        assert bag(self.table.scan().to_arrow()) == expected
        assert self.table.scan().count() == len(self.model)
        assert bag(hudi_table(self.path, self.shape.schema)) == expected, "hudi-rs, by key"
        if self.shape.table_type == "MERGE_ON_READ":
            assert bag(hudi_table(self.path, self.shape.schema, BY_POSITION)) == expected, "hudi-rs, by position"
        self.past[self.table.snapshot().seq] = list(self.model.values())

    def _compare_pruned(self, data: st.DataObject) -> None:
        """Compare one scan with a random filter, and one that looks up a key."""
        names = self.shape.schema.names
        table = self._arrow(list(self.model.values()))
        scan = self.table.scan()
        scan.predicate = data.draw(predicates(self.shape.schema, table))
        expected = table.filter(matches(scan.predicate, table))
        assert bag(scan.to_arrow()) == bag(expected), scan.explain()
        assert scan.count() == len(expected)
        row = (
            data.draw(st.sampled_from(list(self.model.values())))
            if self.model
            else {"id": KEYS[self.shape.key_type][0].as_py(), "sub": 0}
        )
        scan = self.table.scan([(name, "=", row[name]) for name in self.shape.key])
        wanted = [r for r in self.model.values() if all(r[name] == row[name] for name in self.shape.key)]
        assert bag(scan.to_arrow()) == bag_of(wanted, names)
        assert scan.explain().files_read == len(wanted), "each live key is in one segment"

    def _compare_look_ups(self, data: st.DataObject) -> None:
        """Compare rows by key, of live, dead and unknown keys, in a random order."""
        batch = data.draw(rows(self.shape, max_size=6), label="looked up")
        live = data.draw(st.lists(st.sampled_from(list(self.model.values())), max_size=6)) if self.model else []
        asked = data.draw(st.permutations([*batch, *live]))
        names = list(dict.fromkeys((*self.shape.key, *self.shape.partition_by)))
        expected = [self._live(row, names) or dict.fromkeys(self.shape.schema.names) for row in asked]
        found = self.table.get(self._arrow(asked).select(names))
        assert found["id"].to_pylist() == [row["id"] for row in expected], "rows come in the order of the keys"
        assert bag(found) == bag_of(expected, self.shape.schema.names)

    def _live(self, row: Row, names: list[str]) -> Row | None:
        """Return the live row with the key and partition of ``row``: under table scope a key may live in another partition."""
        known = self.model.get(self.shape.identity(row))
        return known if known is not None and all(known[name] == row[name] for name in names) else None

    def _upsert(self, data: st.DataObject, batch: list[Row]) -> None:
        self._expect(self._writer(data).upsert(self._arrow(batch)), self._put(batch))
        self._compare_pruned(data)
        self._compare_look_ups(data)

    def _check_the_past(self) -> None:
        for seq, expected in self.past.items():
            scan = Scan(self.table.metadata, self.table.snapshot(seq), None, None, self.table.options)
            assert bag(scan.to_arrow()) == bag_of(expected, self.shape.schema.names), f"as of commit {seq}"

    def _storage(self) -> LocalStorage:
        return LocalStorage(self.path, durable=False)

    def _writer(self, data: st.DataObject) -> mdt.Table:
        return data.draw(st.sampled_from((self.table, self.other)), label="writer")

    def _arrow(self, batch: list[Row]) -> pa.Table:
        return pa.Table.from_pylist(batch, schema=self.shape.schema)

    def _keys(self, batch: list[Row]) -> pa.Table:
        names = dict.fromkeys((*self.shape.key, *(self.shape.partition_by if self.shape.scope == "partition" else ())))
        return self._arrow(batch).select(list(names))

    def _put(self, batch: list[Row]) -> dict[str, int]:
        """Upsert into the model; return the counts that the table must give."""
        newest: dict[Any, Row] = {}
        for row in batch:
            rival = newest.get(self.shape.identity(row))
            if rival is None or self.shape.ordering is None or _rank(row) >= _rank(rival):
                newest[self.shape.identity(row)] = row
        counts = {"inserted": 0, "updated": 0, "deleted": 0, "late": len(batch) - len(newest), "missing": 0}
        for identity, row in newest.items():
            old = self.model.get(identity)
            if old is not None and self.shape.ordering is not None and _rank(row) < _rank(old):
                counts["late"] += 1
            else:
                counts["inserted" if old is None else "updated"] += 1
                self.model[identity] = row
        return counts

    def _remove(self, batch: list[Row]) -> dict[str, int]:
        identities = {self.shape.identity(row) for row in batch}
        found = identities & self.model.keys()
        for identity in found:
            del self.model[identity]
        return {"inserted": 0, "updated": 0, "deleted": len(found), "late": 0, "missing": len(identities - found)}

    def _expect(self, result: mdt.WriteResult, counts: dict[str, int]) -> None:
        assert {name: getattr(result, name) for name in counts} == counts
        assert result.attempts == 1 and not result.warnings


def _settings(examples: int) -> settings:
    return settings(
        max_examples=examples, stateful_step_count=_STEPS, deadline=None, print_blob=True, derandomize=False,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


@pytest.mark.timeout(900)
def test_every_reader_sees_what_the_model_holds_after_every_step_of_random_histories() -> None:
    run_state_machine_as_test(TableAgainstDictionary, settings=_settings(_EXAMPLES))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_every_reader_sees_what_the_model_holds_after_twenty_times_as_many_histories() -> None:
    run_state_machine_as_test(TableAgainstDictionary, settings=_settings(20 * _EXAMPLES))


_SMALL = pa.schema([("id", pa.string()), ("ts", pa.int64())])


def _small(*rows: tuple[str, int]) -> pa.Table:
    return pa.table([[key for key, _ in rows], [ts for _, ts in rows]], schema=_SMALL)


def test_a_key_that_returns_with_a_smaller_ordering_value_does_not_bring_its_old_row_back(tmp_path: Path) -> None:
    options = {"hoodie.write.record.positions": True}
    table = mdt.create(tmp_path, _SMALL, ["id"], ordering="ts", key_index="record", options=options)
    table.upsert(_small(("a", 5), ("b", 5)))
    table.delete(_small(("a", 0)))
    table.upsert(_small(("a", 1)))
    expected = bag(_small(("a", 1), ("b", 5)))
    for found in (table.scan().to_arrow(), hudi_table(tmp_path, _SMALL), hudi_table(tmp_path, _SMALL, BY_POSITION)):
        assert bag(found) == expected


def test_positions_of_updates_belong_to_the_rows_that_they_replace(tmp_path: Path) -> None:
    table = mdt.create(tmp_path, _SMALL, ["id"], ordering="ts", options={"hoodie.write.record.positions": True})
    table.upsert(_small(("a", 1), ("b", 5), ("c", 9)))
    table.upsert(_small(("c", 9), ("a", 2), ("b", 6)))
    assert _position_headers(table) == [True]
    assert bag(hudi_table(tmp_path, _SMALL, BY_POSITION)) == bag(_small(("a", 2), ("b", 6), ("c", 9)))


def test_positions_are_left_out_unless_asked_for_because_hudi_0_15_fails_on_them(tmp_path: Path) -> None:
    table = mdt.create(tmp_path, _SMALL, ["id"], ordering="ts")
    table.upsert(_small(("a", 1)))
    table.upsert(_small(("a", 2)))
    assert _position_headers(table) == [False]


def _position_headers(table: mdt.Table) -> list[bool]:
    """Return for each block of each log file whether it has positions and says of which base file."""
    names = [file["name"] for file in table.files().to_pylist() if file["kind"] == LOG]
    blocks = [block for name in names for block in log_file.parse(table.storage.read(name), path=name)]
    return [{log_file.POSITIONS, log_file.BASE_INSTANT} <= block.header.keys() for block in blocks]


def test_many_commits_leave_few_files_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "SUMMARY_FILES_OPEN_MAX", 3)
    table = mdt.create(MemoryStorage(), _SMALL, ["id"], ordering="ts")
    for number in range(12):
        table.upsert(_small(("a", number), (f"k{number}", 0)))
    assert len(table.metadata.blobs._files) <= 3
    assert table.scan("id = 'a'").to_arrow().to_pylist() == [{"id": "a", "ts": 11}]


def test_options_are_kept_under_one_name_and_may_be_overridden_by_the_other() -> None:
    given = {"hoodie.metadata.compact.max.delta.commits": 2, "mdt.column.stats.columns": ["ts"]}
    table = mdt.create(MemoryStorage(), _SMALL, ["id"], options=given)
    assert table.options.column_stats_columns == ("ts",)
    for number in range(3):
        table.upsert(_small((f"k{number}", 0)))
    assert table.metadata.base_seq == 2
    again = mdt.open(table.storage, {"mdt.metadata.compact.records": 5, "hoodie.parquet.max.file.size": 1 << 20})
    assert (again.options.metadata_compact_records, again.options.max_file_bytes) == (5, 1 << 20)
