"""The segments of a commit are divided into shards, and every index has one summary per shard. This
changes only time and bytes, not results.
"""

from dataclasses import replace
from itertools import groupby

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from texts import columns

import mdt
from indexes.base import SkippingIndex
from indexes.bitmap import BitmapIndex
from indexes.registry import parse_spec
from indexes.text import TextIndex
from mdt.commit.operation import Changes
from mdt.errors import Unsupported
from mdt.metadata.files.attachments import AttachmentWriter
from mdt.metadata.files.file_group import NewFile, Shard, shards_of, summary_length
from mdt.metadata.statistics import index_summaries as summaries
from mdt.stores.object_range import ObjectRange
from mdt.stores.storage import MemoryStorage
from mdt.write import summarize, transfer

SCHEMA = columns("id string, city string, n int64, note string").append(
    pa.field("at", pa.struct([("zip", pa.string())]))
)
SHARED = ("bitmap/1(n)", "bitmap/1(at.zip)", "text/1(note, tokenizer='word')")
SPECS = (*SHARED, "bloom/1(id)")
CITIES = 5
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")
QUESTIONS = (
    "n = 7",
    "n between 3 and 9",
    "n is null",
    "n <> 7",
    "n = 7 or n = 11",
    "n > 8 and match(note, 'alpha')",
    "match(note, 'gamma word3')",
    "note like 'beta%'",
    "at.zip = 'z4'",
    "at.zip is null and n < 5",
    "n = 12345",
    "id = 'k0005' and n is not null",
    "city = 'c2' and n in (1, 2, 3)",
)


def rows(numbers, step=1):
    records = [
        {
            "id": f"k{i:04}",
            "city": f"c{i % CITIES}",
            "n": None if i % 11 == 0 else i * step % 23,
            "note": f"{WORDS[i * step // 3 % 5]} word{i % 9}",
            "at": None if i % 13 == 0 else {"zip": f"z{i * step % 7}"},
        }
        for i in numbers
    ]
    return pa.Table.from_pylist(records, schema=SCHEMA)


def create_table(specs=SPECS, **options):
    """Return a table with base files of one commit and log files of two commits, with 48, 24 and 16
    rows each.
    """
    table = mdt.create(
        MemoryStorage(),
        SCHEMA,
        ["id"],
        partition_by=["city"],
        table_type="MERGE_ON_READ",
        key_index="record",
        indexes=list(specs),
        options={"mdt.table.name": "joint", **options},
    )
    table.insert(rows(range(240)))
    table.upsert(rows(range(0, 240, 2), 3))
    table.upsert(rows(range(0, 240, 3), 5))
    return table


def summaries_of(table, spec):
    """Return the summaries of the live shards in an index."""
    snapshot = table.snapshot()
    return snapshot.index_summaries(spec, snapshot.live_shards)


def files_per_shard(table):
    """Return the number of live files in each live shard."""
    snapshot = table.snapshot()
    return [int(n) for n in np.bincount(snapshot.shards.of_file[snapshot.live]) if n]


def assert_checked_and_right(table):
    """Assert that a check finds no problem and every query returns the right rows."""
    assert table.check().ok
    assert_right_rows(table)


def assert_right_rows(table):
    """Assert that every query returns the same rows as from a table without indexes."""
    all_rows = table.scan().to_arrow()
    table_without_indexes = mdt.create(MemoryStorage(), SCHEMA, ["id"])
    table_without_indexes.insert(all_rows)
    for where in QUESTIONS:
        expected = sorted(table_without_indexes.scan(where).to_arrow()["id"].to_pylist())
        assert sorted(table.scan(where).to_arrow()["id"].to_pylist()) == expected, where
        assert table.scan(where).count() == len(expected), where


def note_of(table):
    """Return the note of a plan on the first index."""
    return next(n for n in table.scan("n = 7").explain().indexes if n.index == SHARED[0])


def test_the_segments_of_a_commit_form_one_shard_with_one_summary_per_index():
    table = create_table()
    snapshot = table.snapshot()
    assert files_per_shard(table) == [CITIES] * 3 and len(snapshot.shards) == 3
    rows_, first = snapshot.rows.tolist(), snapshot.files.numpy("first_row").tolist()
    for start in range(0, 3 * CITIES, CITIES):
        assert first[start : start + CITIES] == [
            sum(rows_[start : start + n]) for n in range(CITIES)
        ]
    for spec in SPECS:
        stored = summaries_of(table, spec)
        assert len(stored) == 3 and None not in stored
    assert_checked_and_right(table)


def test_a_query_reads_one_summary_per_shard(monkeypatch):
    table = create_table()
    counts = []
    original = BitmapIndex.rows_within

    def record_count(self, batch, *rest):
        counts.append(len(batch))
        return original(self, batch, *rest)

    monkeypatch.setattr(BitmapIndex, "rows_within", record_count)
    assert len(table.scan("n = 7").plan.segments) and sum(counts) == 3
    counts.clear()
    assert len(table.scan("n = 7 and city = 'c2'").plan.segments) and sum(counts) == 3


@pytest.mark.parametrize(
    ("limit", "value", "expected"),
    [
        ("SHARD_ROWS_MAX", 90, [1, 1, 1, 1, 1, 3, 2, 5]),
        ("SHARD_SEGMENT_ROWS_MAX", 30, [1, 1, 1, 1, 1, 5, 5]),
    ],
)
def test_shards_and_their_segments_have_limits_of_rows(limit, value, expected, monkeypatch):
    monkeypatch.setattr(summarize, limit, value)
    table = create_table()
    assert files_per_shard(table) == expected
    assert_checked_and_right(table)


def test_a_shard_has_a_limit_of_bytes_with_and_without_indexes(
    monkeypatch,
):
    monkeypatch.setattr(summarize, "SHARD_BYTES_MAX", 6000)
    indexed, table_without_indexes = create_table(), create_table(specs=[])
    assert (
        files_per_shard(indexed) == files_per_shard(table_without_indexes)
        and len(files_per_shard(table_without_indexes)) > 3
    )
    table_without_indexes.create_index(SPECS)
    for spec in SPECS:
        assert bytes_of(indexed, spec) == bytes_of(table_without_indexes, spec), (
            "an index that is built later has the same summaries"
        )
    assert_checked_and_right(table_without_indexes)


def bytes_of(table, spec):
    """Return the bytes of the summaries in an index."""
    return [
        table.metadata.objects.read(summary, verify=True).to_pybytes()
        if isinstance(summary, ObjectRange)
        else summary
        for summary in summaries_of(table, spec)
    ]


def test_remaining_files_of_a_shard_keep_it_when_others_leave_or_the_metadata_are_compacted():
    table = create_table()
    before = set(table.snapshot().shards.number.tolist())
    table.compact()
    table.upsert(rows(range(2, 240, CITIES), 9))
    table.upsert(rows(range(3, 240, CITIES), 9))
    table.compact()
    snapshot = table.snapshot()
    numbers_left = snapshot.shards.number[snapshot.live_shards].tolist()
    assert not before & set(numbers_left)
    assert files_per_shard(table) == [CITIES - 2, 2], "two files were rewritten together"
    table.metadata.compact()
    for reopened in (table, mdt.open(table.storage)):
        assert_checked_and_right(reopened)
        assert reopened.snapshot().shards.number.tolist() == numbers_left


def test_an_index_built_after_files_have_left_a_shard_numbers_rows_like_the_others():
    table = create_table(specs=SPECS[:1])
    table.compact()
    for city in (0, 3):  # the first file of a shard, and one in its middle
        table.upsert(rows(range(city, 240, CITIES), 9 + city))
    table.compact()
    assert files_per_shard(table) == [CITIES - 2, 2]
    table.create_index(SPECS[1:])
    assert_checked_and_right(table)
    earlier_summaries = bytes_of(table, SPECS[0])
    table.rebuild_index(SPECS[0])
    rebuilt = bytes_of(table, SPECS[0])
    assert earlier_summaries[1:] == rebuilt[1:] and earlier_summaries[:1] != rebuilt[:1], (
        "rows of removed files are null in the rebuilt summary"
    )
    assert_checked_and_right(table)


@pytest.mark.parametrize("every", [0, 1, 2, 3])
def test_the_reported_bytes_of_an_index_are_those_of_the_shards_with_live_files(every):
    table = create_table()

    def upsert(city):
        table.upsert(rows(range(city, 240, CITIES), 9 + city))

    steps = [
        lambda: upsert(0),
        lambda: upsert(3),
        table.compact,
        lambda: upsert(0),
        table.compact,
        lambda: table.drop_index(SHARED[0]),
        lambda: upsert(0),
        lambda: table.create_index(SHARED[0]),
        lambda: upsert(3),
        table.compact,
        lambda: table.rebuild_index(SHARED[1]),
    ]
    gaps = 0
    for n, step in enumerate(steps):
        step()
        if every and n % every == 0:
            table.metadata.compact()
        for each_table in (table, mdt.open(table.storage)):
            expected = [
                sum(
                    summary_length(summary)
                    for summary in summaries_of(each_table, spec)
                    if summary is not None
                )
                for spec in each_table.definition.indexes
            ]
            assert each_table.indexes()["bytes"].to_pylist() == expected, n
        snapshot = table.snapshot()
        gaps += bool(snapshot.files.numpy("first_row")[snapshot.live_numbers[0]])
    assert gaps, "after some step, the first segment of a shard is removed"
    assert_checked_and_right(table)


def test_a_damaged_summary_is_reported_and_loses_no_rows():
    table = create_table()
    stored = summaries_of(table, SHARED[0])[0]
    assert isinstance(stored, ObjectRange)
    storage = table.storage.copy()
    data = bytearray(storage.read(stored.path))
    end = stored.offset + stored.length
    data[stored.offset : end] = bytes(255 - byte for byte in data[stored.offset : end])
    storage.replace(stored.path, bytes(data))
    damaged = mdt.open(storage)
    assert_right_rows(damaged)
    note = note_of(damaged)
    assert note.detail.startswith("1 summaries cannot be read") and note.covered == 3 * CITIES
    assert (note.reason, note_of(table).reason) == ("damaged", "used")
    assert [(p.path, p.offset) for p in damaged.check().problems] == [(stored.path, stored.offset)]
    damaged.rebuild_index(SHARED[0])
    assert note_of(damaged).reason == "used"
    assert_checked_and_right(damaged)


def test_a_failing_index_leaves_its_shards_uncovered_until_the_next_build(monkeypatch):
    def raise_error(self, values):
        raise RuntimeError("out of order")

    with monkeypatch.context() as patched:
        patched.setattr(BitmapIndex, "summarize", raise_error)
        table = create_table()
        with pytest.raises(Unsupported, match="summaries could not be made"):
            table.build_indexes()
    assert table.indexes()["coverage"].to_pylist() == [0.0, 0.0, 100.0, 100.0]
    assert_checked_and_right(table)
    table.build_indexes()
    assert table.indexes()["coverage"].to_pylist() == [100.0] * 4
    assert_checked_and_right(table)


@pytest.mark.parametrize("kind", [BitmapIndex, TextIndex])
def test_check_finds_a_summary_of_other_rows(kind, monkeypatch):
    original = kind.summarize

    def summarize_rotated(self, values):
        return bytes(original(self, pa.concat_arrays([values.slice(1), values.slice(0, 1)])))

    with monkeypatch.context() as patched:
        patched.setattr(kind, "summarize", summarize_rotated)
        table = create_table()
    problems = table.check().problems
    assert {p.text for p in problems} == {
        f"the summary of {spec} differs from the rows"
        for spec in SHARED
        if spec.startswith(kind.name)
    }


def test_a_small_cache_of_segments_changes_no_results(
    monkeypatch,
):
    monkeypatch.setattr(summaries, "SEGMENTS_KNOWN_MAX", 1)
    assert_checked_and_right(create_table())


def test_summaries_of_shards_are_smaller_than_summaries_of_each_segment(
    monkeypatch,
):
    together = sum(create_table().indexes()["bytes"].to_pylist())
    monkeypatch.setattr(summarize, "SHARD_SEGMENT_ROWS_MAX", 0)
    alone = create_table()
    assert set(files_per_shard(alone)) == {1}
    assert together < 0.7 * sum(alone.indexes()["bytes"].to_pylist())


def test_tasks_send_files_with_their_shards_to_the_driver():
    extent = ObjectRange("a", 8, 5, 77)
    shards = [Shard((("x", extent), ("z", b"bytes"))), Shard(), Shard()]
    new_file = NewFile("", "f", "n", 1, "1", 1, 2, 3, 4, 5, 6, 0, 0, (4,), 0, 4, 0, extent)
    shards_and_first_rows = [(shards[0], 0), (shards[0], 12), (shards[1], 0), (shards[2], 0)]
    files = [
        replace(new_file, shard=shard, first_row=first) for shard, first in shards_and_first_rows
    ]
    decoded_files = transfer.decode(transfer.encode(Changes(files))).files
    assert shards_of(decoded_files)[1] == [0, 0, 1, 2] and [f.first_row for f in decoded_files] == [
        0,
        12,
        0,
        0,
    ]
    assert [shard.summaries for shard in shards_of(decoded_files)[0]] == [
        shard.summaries for shard in shards
    ]


class Picky(SkippingIndex):
    """An index that refuses more than ten rows."""

    name = "picky/1"
    finds_rows = True
    supports = prune = None  # type: ignore[assignment]

    def summarize(self, values):
        if len(values) > 10:
            raise ValueError("too many")
        return bytes(1000)


Picky.__abstractmethods__ = frozenset()


def test_an_index_that_fails_on_one_shard_still_covers_the_others(
    monkeypatch,
):
    monkeypatch.setattr(summarize, "index_of", lambda text: (parse_spec(text), Picky()))
    monkeypatch.setattr(summarize, "SHARD_ROWS_MAX", 12)
    files = [
        (n, summarize.Indexed({"picky/1(n)": pa.array(range(size))}, {}, size))
        for n, size in enumerate((6, 2, 12))
    ]
    formed = list(summarize.form_shards(AttachmentWriter("x"), files, threads=2))
    assert [(n, first) for n, _, first in formed] == [(0, 0), (1, 6), (2, 0)]
    assert [len(shard.summaries) for _, shard, _ in formed] == [1, 1, 0]
    assert formed[0][1] is formed[1][1]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), max_size=12))
def test_files_are_divided_into_shards_within_the_limits(sizes):
    files = [
        (n, summarize.Indexed({}, {}, count, widest)) for n, (count, widest) in enumerate(sizes)
    ]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(summarize, "SHARD_ROWS_MAX", 12)
        patched.setattr(summarize, "SHARD_SEGMENT_ROWS_MAX", 6)
        patched.setattr(summarize, "SHARD_BYTES_MAX", 60)
        formed = list(summarize.form_shards(AttachmentWriter("x"), files, threads=2))
    assert [n for n, _, _ in formed] == list(range(len(sizes)))
    for _, files_of_shard in groupby(formed, key=lambda item: id(item[1])):
        shard = [(n, first) for n, _, first in files_of_shard]
        counts = [sizes[n][0] for n, _ in shard]
        assert [first for _, first in shard] == [sum(counts[:at]) for at in range(len(shard))]
        if len(shard) > 1:
            assert all(0 < count <= 6 for count in counts) and sum(counts) <= 12
            assert sum(sizes[n][1] for n, _ in shard) <= 60
