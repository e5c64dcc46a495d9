"""Small segments of one commit share a summary of each index that knows positions; nobody sees it but in time and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

import mdt
from indexes.bitmap import BitmapIndex
from indexes.text import TextIndex
from mdt.errors import Unsupported
from mdt.metadata import index_summaries as summaries
from mdt.metadata.file_group import Joint, NewFile, SummaryRef
from mdt.metadata.index_summaries import Asked
from mdt.parquet.segment_rows import read_rows
from mdt.stores.object_range import ObjectRange
from mdt.stores.storage import MemoryStorage
from mdt.write import summarize, transfer

SCHEMA = pa.schema(
    [
        ("id", pa.string()), ("city", pa.string()), ("n", pa.int64()), ("note", pa.string()),
        ("at", pa.struct([("zip", pa.string())])),
    ]
)  # fmt: skip
SHARED = ("bitmap/1(n)", "bitmap/1(at.zip)", "text/1(note, tokenizer='word')")
SPECS = (*SHARED, "bloom/1(id)")
CITIES = 5
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")
QUESTIONS = (
    "n = 7", "n between 3 and 9", "n is null", "n <> 7", "n = 7 or n = 11", "n > 8 and match(note, 'alpha')",
    "match(note, 'gamma word3')", "note like 'beta%'", "at.zip = 'z4'", "at.zip is null and n < 5", "n = 12345",
    "id = 'k0005' and n is not null", "city = 'c2' and n in (1, 2, 3)",
)  # fmt: skip


def rows(numbers: Sequence[int], step: int = 1) -> pa.Table:
    found = [
        {
            "id": f"k{i:04}", "city": f"c{i % CITIES}", "n": None if i % 11 == 0 else i * step % 23,
            "note": f"{WORDS[i * step // 3 % 5]} word{i % 9}", "at": None if i % 13 == 0 else {"zip": f"z{i * step % 7}"},
        }
        for i in numbers
    ]  # fmt: skip
    return pa.Table.from_pylist(found, schema=SCHEMA)


def made(**options: Any) -> mdt.Table:
    """Return a table with base files of one commit and log files of two, 48, 24 and 16 rows each."""
    table = mdt.create(
        MemoryStorage(), SCHEMA, ["id"], partition_by=["city"], table_type="MERGE_ON_READ", key_index="record",
        indexes=list(SPECS), options={"mdt.table.name": "joint", **options},
    )  # fmt: skip
    table.insert(rows(range(240)))
    table.upsert(rows(range(0, 240, 2), 3))
    table.upsert(rows(range(0, 240, 3), 5))
    return table


def refs(table: mdt.Table, spec: str) -> list[SummaryRef | None]:
    snapshot = table.snapshot()
    return snapshot.index_summaries(spec, snapshot.live_numbers)


def objects_of(table: mdt.Table, spec: str) -> list[ObjectRange]:
    return [ref.stored for ref in refs(table, spec) if isinstance(ref, Joint)]


def assert_answers(table: mdt.Table) -> None:
    """Assert that every question is answered as by the rows themselves."""
    whole = table.scan().to_arrow()
    keeper = mdt.create(MemoryStorage(), SCHEMA, ["id"])
    keeper.insert(whole)
    for where in QUESTIONS:
        expected = sorted(keeper.scan(where).to_arrow()["id"].to_pylist())
        assert sorted(table.scan(where).to_arrow()["id"].to_pylist()) == expected, where
        assert table.scan(where).count() == len(expected), where


def reason(table: mdt.Table, where: str, kind: str) -> str:
    return next(n.reason for n in table.scan(where).explain().indexes if n.index.startswith(kind))


def test_the_small_segments_of_each_commit_share_one_summary_of_each_index_that_knows_positions() -> None:
    table = made()
    for spec in SHARED:
        found = objects_of(table, spec)
        assert len(found) == len(table.files()) == 3 * CITIES and len(set(found)) == 3
        firsts = [ref.first for ref in refs(table, spec) if isinstance(ref, Joint)]
        counts = table.snapshot().rows.tolist()
        for start in range(0, len(found), CITIES):
            assert firsts[start : start + CITIES] == [sum(counts[start : start + n]) for n in range(CITIES)]
        assert table.snapshot().index_bytes(spec) == sum(stored.length for stored in set(found))
    assert not objects_of(table, SPECS[-1]) and None not in refs(table, SPECS[-1])
    assert_answers(table)
    assert table.check().ok


def test_an_index_is_asked_once_for_all_that_share_a_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    table = made()
    asked: list[int] = []
    plain = BitmapIndex.rows_within

    def counted(self: BitmapIndex, found: Any, *rest: Any) -> Any:
        asked.append(len(found))
        return plain(self, found, *rest)

    monkeypatch.setattr(BitmapIndex, "rows_within", counted)
    assert len(table.scan("n = 7").plan.segments) and sum(asked) == 3
    asked.clear()
    assert len(table.scan("n = 7 and city = 'c2'").plan.segments) and sum(asked) == 3


def test_large_segments_and_single_ones_have_summaries_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summarize, "JOINT_SEGMENT_ROWS_MAX", 30)
    table = made()
    snapshot = table.snapshot()
    for ref, count in zip(refs(table, SHARED[0]), snapshot.rows.tolist(), strict=True):
        assert isinstance(ref, Joint) == (count <= 30)
    assert len(set(objects_of(table, SHARED[0]))) == 2
    table.upsert(rows([6], 4))
    assert not isinstance(refs(table, SHARED[0])[-1], Joint)
    assert_answers(table)
    assert table.check().ok


def test_a_joint_summary_has_a_limit_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summarize, "JOINT_SUMMARY_ROWS_MAX", 90)
    table = made()
    found = objects_of(table, SHARED[0])
    assert [found.count(stored) for stored in dict.fromkeys(found)] == [3, 2, 5], (
        "a single one has a summary of its own"
    )
    assert_answers(table)
    assert table.check().ok


def test_shares_outlive_others_of_their_summary_and_the_compaction_of_metadata() -> None:
    table = made()
    before = set(objects_of(table, SHARED[0]))
    table.compact()
    table.upsert(rows(range(2, 240, CITIES), 9))
    table.upsert(rows(range(3, 240, CITIES), 9))
    table.compact()
    left = objects_of(table, SHARED[0])
    assert not before & set(left)
    assert [left.count(stored) for stored in dict.fromkeys(left)] == [CITIES - 2, 2], "two were rewritten together"
    for reopened in (table, mdt.open(table.storage)):
        reopened.metadata.compact()
        assert_answers(reopened)
        assert objects_of(mdt.open(table.storage), SHARED[0]) == left
    assert_answers(mdt.open(table.storage))
    assert mdt.open(table.storage).check().ok


def own_bytes(table: mdt.Table, spec: str) -> int:
    """Return the bytes of an index by its summaries, each distinct one once."""
    found = [ref.stored if isinstance(ref, Joint) else ref for ref in refs(table, spec)]
    inline = sum(len(ref) for ref in found if isinstance(ref, bytes))
    return inline + sum(stored.length for stored in {ref for ref in found if isinstance(ref, ObjectRange)})


@pytest.mark.parametrize("every", [0, 1, 2, 3])
def test_the_bytes_of_an_index_count_each_joint_summary_once_while_any_of_its_segments_lives(every: int) -> None:
    table = made()
    whole = sum(table.indexes()["bytes"].to_pylist())
    objects = {stored.path for spec in SHARED for stored in objects_of(table, spec)}
    assert whole <= sum(info.size for info in table.storage.list("") if info.path in objects) + own_bytes(
        table, SPECS[-1]
    )
    partly = [lambda city=city: table.upsert(rows(range(city, 240, CITIES), 9 + city)) for city in (0, 3)]
    steps = [
        *partly, table.compact, *partly, table.compact, lambda: table.drop_index(SHARED[0]), partly[0],
        lambda: table.create_index(SHARED[0]), partly[1], table.compact, lambda: table.rebuild_index(SHARED[1]), table.compact,
    ]  # fmt: skip
    shared = 0
    for n, step in enumerate(steps):
        step()
        if every and n % every == 0:
            table.metadata.compact()
        for seen in (table, mdt.open(table.storage)):
            expected = [own_bytes(seen, spec) for spec in seen.definition.indexes]
            assert seen.indexes()["bytes"].to_pylist() == expected, n
        shared += any(not isinstance(ref, Joint) or ref.first for ref in refs(table, SHARED[1])[:1])
    assert shared, "somewhere the first segment of a summary had left"
    assert table.check().ok


def test_indexes_are_dropped_added_and_rebuilt() -> None:
    table = made(**{"mdt.metadata.compact.records": 2})
    table.drop_index(SHARED[0])
    assert_answers(table)
    result = table.create_index(SHARED[0])
    assert len(set(objects_of(table, SHARED[0]))) == 1 and result.files == len(table.files())
    assert result.bytes == table.snapshot().index_bytes(SHARED[0])
    table.rebuild_index()
    assert all(len(set(objects_of(table, spec))) == 1 for spec in SHARED)
    assert set(table.indexes()["coverage"].to_pylist()) == {100.0}
    assert_answers(table)
    assert table.check().ok


def test_a_damaged_joint_summary_is_named_and_costs_no_row() -> None:
    table = made()
    stored = objects_of(table, SHARED[0])[0]
    storage = table.storage.copy()
    data = bytearray(MemoryStorage.read(storage, stored.path))
    data[stored.offset : stored.offset + stored.length] = bytes(
        255 - b for b in data[stored.offset : stored.offset + stored.length]
    )
    storage.replace(stored.path, bytes(data))
    damaged = mdt.open(storage)
    assert_answers(damaged)
    assert reason(damaged, "n = 7", "bitmap/1(n)") == "damaged" and reason(table, "n = 7", "bitmap/1(n)") == "used"
    note = next(n for n in damaged.scan("n = 7").explain().indexes if n.index == SHARED[0])
    assert note.detail.startswith("1 summaries cannot be read") and note.covered == 3 * CITIES
    assert len(damaged.check().problems) == CITIES
    damaged.rebuild_index(SHARED[0])
    assert damaged.check().ok and reason(damaged, "n = 7", "bitmap/1(n)") == "used"


def test_an_index_that_fails_leaves_all_of_them_uncovered(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Any, values: pa.Array) -> bytes:
        raise RuntimeError("out of order")

    with monkeypatch.context() as patched:
        patched.setattr(BitmapIndex, "summarize", fails)
        table = made()
        with pytest.raises(Unsupported, match="summaries could not be made"):
            table.build_indexes()
    assert dict(zip(table.indexes()["index"].to_pylist(), table.indexes()["coverage"].to_pylist(), strict=True)) == {
        "bitmap(n)": 0.0, "bitmap(at.zip)": 0.0, "text(note, tokenizer='word')": 100.0, "bloom(id)": 100.0,
    }  # fmt: skip
    assert_answers(table)
    table.build_indexes()
    assert set(table.indexes()["coverage"].to_pylist()) == {100.0}
    assert_answers(table)


@pytest.mark.parametrize("kind", [BitmapIndex, TextIndex])
def test_check_finds_a_joint_summary_of_other_rows(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = kind.summarize

    def rotated(self: Any, values: pa.Array) -> bytes:
        return bytes(plain(self, pa.concat_arrays([values.slice(1), values.slice(0, 1)])))

    with monkeypatch.context() as patched:
        patched.setattr(kind, "summarize", rotated)
        table = made()
    problems = table.check().problems
    assert {p.text for p in problems} == {
        f"the summary of {spec} differs from the rows" for spec in SHARED if spec.startswith(kind.name)
    }


def test_tables_of_more_segments_than_are_kept_answer_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "SEGMENTS_KNOWN_MAX", 1)
    assert_answers(made())


def test_joint_summaries_are_smaller_than_those_of_each_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    joint = sum(made().indexes()["bytes"].to_pylist())
    monkeypatch.setattr(summarize, "JOINT_SEGMENT_ROWS_MAX", 0)
    alone = made()
    assert not objects_of(alone, SHARED[0])
    assert joint < 0.7 * sum(alone.indexes()["bytes"].to_pylist())


def test_shares_pass_from_tasks_to_the_driver() -> None:
    extent = ObjectRange("a", 8, 5, 77)
    stored = (("x", Joint(extent, 0)), ("x", Joint(extent, 12)), ("y", extent), ("z", b"bytes"))
    file = NewFile("", "f", "n", 1, "1", 1, 2, 3, 4, 5, 6, 0, 0, (4,), 0, 4, 0, extent, summaries=stored)
    assert transfer.decode(transfer.encode(transfer.Finished([file], [], [], {}))).files[0].summaries == stored


@given(st.data())
def test_each_segment_gets_its_own_part_of_what_a_summary_answers(data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=4))
    answers: list[BitMap | None] = [
        data.draw(st.none() | st.sets(st.integers(0, sum(part) - 1)).map(BitMap)) for part in counts
    ]
    members = [
        (n, sum(part[:at]) if len(part) > 1 else -1, part[at])
        for n, part in enumerate(counts)
        for at in range(len(part))
    ]
    chosen = data.draw(st.permutations(members))[: data.draw(st.integers(1, len(members)))]
    of, first, rows_ = (np.array(column, np.int64) for column in zip(*chosen, strict=True))
    found = Asked(np.arange(len(counts)), of, first).spread(answers, rows_)
    for (n, begin, count), mine in zip(chosen, found, strict=True):
        hits = answers[n]
        begin = max(begin, 0)
        assert mine == (None if hits is None else BitMap(p - begin for p in hits if begin <= p < begin + count))


def test_a_joint_summary_numbers_the_rows_of_its_segments_one_after_the_other() -> None:
    table = made()
    snapshot, stored = table.snapshot(), refs(table, SHARED[0])
    for extent in dict.fromkeys(objects_of(table, SHARED[0])):
        mine = [i for i, ref in enumerate(stored) if isinstance(ref, Joint) and ref.stored == extent]
        joined = pa.concat_tables([read_rows(table.storage, snapshot.segment(i), SCHEMA) for i in mine])[
            "n"
        ].combine_chunks()
        assert table.metadata.objects.read(extent, verify=True).to_pybytes() == BitmapIndex().summarize(joined)
