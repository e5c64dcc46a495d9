"""Blocks of tagged rows: no row is lost, and the block headers describe the rows of their blocks."""

from base64 import b64decode
from collections import Counter
from unittest import mock

import pyarrow as pa
from counting import count
from hypothesis import given
from hypothesis import strategies as st
from texts import columns

from mdt.engines import blocks, tasks
from mdt.engines.engine import BucketAssignment
from mdt.engines.tasks import ABSENT, BUCKET, DROPPED, INSERT, READ, UPDATE, tagged_schema
from mdt.engines.write_tasks import sort_by_bucket
from mdt.hudi.record_keys import sort_keys


def assignment_of(places, buckets):
    """Return a bucket assignment from tuples: place (partition path), number of a file group,
    bounds of keys, and the buckets for the key ranges between the bounds.
    """
    types = (pa.string(), pa.int64(), pa.list_(pa.binary()), pa.list_(pa.int32()))
    arrays = [pa.array([place[i] for place in places], type) for i, type in enumerate(types)]
    return BucketAssignment(pa.table(arrays, ["place", "number", "bounds", "takers"]), KEY, buckets)


def bounds_of(cuts):
    rows = pa.Table.from_pylist([{"k": k, "n": n} for k, n in cuts], columns("k string, n int64"))
    return sorted(sort_keys(rows, KEY).cast(pa.binary()).to_pylist())


SCHEMA = tagged_schema(columns("k string, n int64, at timestamp[ns]"))
KEY = ("k", "n")


@st.composite
def tagged(draw):
    """Draw tagged rows of all kinds. Some belong to no bucket."""
    rows = []
    for _ in range(draw(st.integers(1, 60))):
        kind = draw(st.sampled_from([INSERT, INSERT, UPDATE, DROPPED, READ, ABSENT]))
        group = -1 if kind == INSERT else draw(st.integers(0, 2))
        rows.append(
            {
                "k": draw(st.text(max_size=3)),
                "n": draw(st.integers(-3, 3)),
                "at": draw(st.none() | st.integers(0, 9)),
                "__mdt_kind": kind,
                "__mdt_partition": (
                    draw(st.sampled_from(["", "x", "y"])) if group < 0 else f"g{group}"
                ),
                "__mdt_key": None,
                "__mdt_group": group,
                "__mdt_segment": draw(st.integers(0, 9)),
                "__mdt_position": 1,
                "__mdt_n": draw(st.integers(0, 9)),
            }
        )
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def bag(rows):
    return Counter(tuple(row.items()) for row in rows.to_pylist())


def blocks_of(rows):
    with mock.patch.object(blocks, "_ROWS_MAX", 5), mock.patch.object(blocks, "MARK_ROWS", 2):
        return list(blocks.tagged_blocks(iter(rows.combine_chunks().to_batches()), KEY))


def counts_of(rows):
    expected = {}
    for row in rows.to_pylist():
        at = tuple(row[name] for name in tasks.COUNTED.names)
        n, total = expected.get(at, (0, 0))
        expected[at] = n + 1, total + row["__mdt_n"]
    return expected


def heads(encoded):
    """Return the part of each block that the JVM reads (RowBlocks.java): the kind and the header."""
    return [data[: 5 + int.from_bytes(data[1:5], "little")] for data in encoded]


@given(tagged())
def test_rows_survive_a_round_trip_and_block_headers_are_correct(rows):
    encoded = blocks_of(rows)
    assert bag(pa.Table.from_batches(blocks.read_blocks(encoded), SCHEMA)) == bag(rows)
    for data in encoded:
        head, inside = blocks.head_of(data), blocks.read_block(data).read_all()
        assert blocks.sum_counts([data]) == counts_of(inside)
        assert data[0] == (head["place"] is None) == (inside["__mdt_kind"][0].as_py() >= DROPPED), (
            "the first byte that the JVM reads"
        )
        if head["marks"]:
            keys = sort_keys(inside, KEY).cast(pa.binary()).to_pylist()
            marks = [mark for _, mark in blocks.marks_in([head["place"]], [data])]
            assert keys == sorted(keys) and (marks[0], marks[-1]) == (keys[0], keys[-1])
            assert {row["__mdt_kind"] for row in inside.to_pylist()} == {INSERT}
            assert not list(blocks.marks_in([head["place"] + "z"], [data]))
    assert blocks.sum_counts(heads(encoded)) == counts_of(rows)
    count("blocks of tagged rows", len(encoded))


@given(tagged(), st.lists(st.tuples(st.text(max_size=2), st.integers(-2, 2)), max_size=4))
def test_blocks_are_assigned_to_buckets_as_their_rows_are(rows, cuts):
    """Partition ``y`` and file group 2 have no bucket."""
    bounds = bounds_of(cuts)
    places = [(path, -1, bounds, list(range(len(bounds) + 1))) for path in ("", "x")]
    assignment = assignment_of([*places, *(("", group, [], [9 + group]) for group in range(2))], 3)
    bucketed = list(blocks.bucket_blocks(assignment, blocks_of(rows)))
    schema = SCHEMA.append(pa.field(BUCKET, pa.int32()))
    assigned = pa.Table.from_batches(
        blocks.read_blocks(data for _, data in reversed(bucketed)), schema
    )
    expected = pa.Table.from_batches(
        tasks.assign_buckets(assignment, iter(rows.combine_chunks().to_batches())), schema
    )
    assert bag(assigned) == bag(expected)
    assert assigned[BUCKET].to_pylist() == sorted(assigned[BUCKET].to_pylist()), (
        "rows are sorted by bucket"
    )
    assert all(blocks.head_of(data)["bucket"] == number for number, data in bucketed)
    for number, data in bucketed:
        first = blocks.head_of(data)["first"]
        assert first is None or b64decode(first) >= (bounds[number - 1] if number else b"")


@given(
    st.lists(st.tuples(st.text(max_size=2) | st.none(), st.integers(-2, 2)), max_size=40),
    st.integers(1, 5),
)
def test_rows_grouped_by_key_keep_the_order_of_the_input(rows, parts):
    given_rows = pa.table(
        {"k": [k for k, _ in rows], "n": [n for _, n in rows], "at": range(len(rows))},
        schema=columns("k string, n int64, at int64"),
    )
    halves = [given_rows.slice(0, len(rows) // 2), given_rows.slice(len(rows) // 2)]
    data_of_parts = {}
    with mock.patch.object(tasks, "_BATCH_BYTES", 100):
        for part, half in enumerate(halves):
            batches = iter(half.to_batches(max_chunksize=3))
            for number, data in blocks.grouped_blocks(part, batches, KEY, parts):
                data_of_parts.setdefault(number, []).insert(0, data)
    rows_of_parts = {
        number: pa.Table.from_batches(blocks.read_blocks(members)).to_pylist()
        for number, members in data_of_parts.items()
    }
    assert sorted(row["at"] for members in rows_of_parts.values() for row in members) == list(
        range(len(rows))
    )
    part_of_key = {}
    for number, members in rows_of_parts.items():
        assert 0 <= number < parts and [row["at"] for row in members] == sorted(
            row["at"] for row in members
        )
        for row in members:
            assert part_of_key.setdefault((row["k"], row["n"]), number) == number, (
                "equal keys get the same part"
            )
    count("rows that come together", len(rows))


@given(tagged(), st.lists(st.tuples(st.text(max_size=2), st.integers(-2, 2)), max_size=2))
def test_each_row_is_assigned_to_the_bucket_of_its_place_and_key(rows, cuts):
    """Partition ``y`` and file group 2 have no bucket, so their rows are dropped."""
    bounds = bounds_of(cuts)
    takers = list(range(5, 6 + len(bounds)))
    places = [("", -1, [], [3]), ("x", -1, bounds, takers), ("", 0, [], [1]), ("", 1, [], [2])]
    batches = iter(rows.combine_chunks().to_batches(max_chunksize=25))
    assigned = {}
    for batch in tasks.assign_buckets(assignment_of(places, 3), batches):
        for row in batch.to_pylist():
            assigned.setdefault(row.pop(BUCKET), []).append(row)
    expected = {}
    keys = sort_keys(rows, KEY).cast(pa.binary()).to_pylist()
    for row, key in zip(rows.to_pylist(), keys, strict=True):
        named = row["__mdt_partition"] if row["__mdt_kind"] == INSERT else "", row["__mdt_group"]
        place = next(
            (
                candidate
                for candidate in places
                if candidate[:2] == named and row["__mdt_kind"] < DROPPED
            ),
            None,
        )
        if place is not None:
            expected.setdefault(place[3][sum(bound <= key for bound in place[2])], []).append(row)
    assert assigned == expected, "rows keep the order of the input"


def test_rows_of_many_partitions_are_assigned_in_one_pass():
    """One pass over all rows, not one pass for each partition."""
    count = 2_000
    row = {"__mdt_kind": INSERT, "__mdt_group": -1, "__mdt_position": 0, "__mdt_n": 0}
    rows = pa.Table.from_pylist(
        [{"k": str(n), "n": n, "__mdt_partition": f"p{n}", **row} for n in range(count)], SCHEMA
    )
    assignment = assignment_of([(f"p{n}", -1, [], [n]) for n in range(count)], count)
    (assigned,) = tasks.assign_buckets(assignment, iter(rows.to_batches()))
    buckets = assigned.column(BUCKET).to_pylist()
    assert sorted(buckets) == list(range(count))
    assert assigned.column("__mdt_partition").to_pylist() == [f"p{n}" for n in buckets]


@given(st.lists(st.lists(st.integers(0, 4), max_size=6), min_size=1, max_size=4))
def test_rows_of_a_bucket_are_contiguous_and_keep_their_order(buckets):
    schema = pa.schema([(BUCKET, pa.int32()), ("at", pa.int64())])
    numbers = iter(range(100))
    parts = [
        pa.Table.from_pylist([{BUCKET: b, "at": next(numbers)} for b in part], schema)
        for part in buckets
    ]
    given_rows = pa.concat_tables(parts)
    ordered, places = sort_by_bucket(given_rows)
    expected = {}
    for row in given_rows.to_pylist():
        expected.setdefault(row[BUCKET], []).append(row["at"])
    assert {
        number: ordered["at"][rows.start : rows.stop].to_pylist() for number, rows in places.items()
    } == expected
    assert len(ordered) == len(given_rows) and (len(places) < 2 or ordered["at"].num_chunks == 1)


@given(tagged(), st.sampled_from([INSERT, READ, ABSENT]))
def test_select_rows_returns_the_rows_of_the_given_kind(rows, kind):
    names = ["__mdt_segment", "__mdt_kind"]
    selected = pa.Table.from_batches(blocks.select_rows(kind, names, blocks_of(rows)))
    assert bag(selected) == bag(
        pa.Table.from_pylist(
            [r for r in rows.to_pylist() if r["__mdt_kind"] == kind], SCHEMA
        ).select(names)
    )
