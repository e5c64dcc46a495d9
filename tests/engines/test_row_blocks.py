"""Tagged rows in blocks: nothing is lost on the way, and what stands beside them says what is in
them.
"""

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


def deal_of(places, buckets):
    """Return what deals rows: place, number of a file group, bounds of keys, and who takes what
    lies between them.
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
    """Draw tagged rows of all sorts, some of which no bucket takes."""
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


def made(rows):
    with mock.patch.object(blocks, "_ROWS_MAX", 5), mock.patch.object(blocks, "MARK_ROWS", 2):
        return list(blocks.tagged_blocks(iter(rows.combine_chunks().to_batches()), KEY))


def counted(rows):
    expected = {}
    for row in rows.to_pylist():
        at = tuple(row[name] for name in tasks.COUNTED.names)
        n, total = expected.get(at, (0, 0))
        expected[at] = n + 1, total + row["__mdt_n"]
    return expected


def heads(found):
    """Return what the JVM takes of each: RowBlocks.java."""
    return [data[: 5 + int.from_bytes(data[1:5], "little")] for data in found]


@given(tagged())
def test_rows_come_back_and_what_stands_beside_them_is_true(rows):
    found = made(rows)
    assert bag(pa.Table.from_batches(blocks.read_blocks(found), SCHEMA)) == bag(rows)
    for data in found:
        head, inside = blocks.head_of(data), blocks.read_block(data).read_all()
        assert blocks.sum_counts([data]) == counted(inside)
        assert data[0] == (head["place"] is None) == (inside["__mdt_kind"][0].as_py() >= DROPPED), (
            "as the JVM sees it"
        )
        if head["marks"]:
            keys = sort_keys(inside, KEY).cast(pa.binary()).to_pylist()
            marks = [mark for _, mark in blocks.marks_in([head["place"]], [data])]
            assert keys == sorted(keys) and (marks[0], marks[-1]) == (keys[0], keys[-1])
            assert {row["__mdt_kind"] for row in inside.to_pylist()} == {INSERT}
            assert not list(blocks.marks_in([head["place"] + "z"], [data]))
    assert blocks.sum_counts(heads(found)) == counted(rows)
    count("blocks of tagged rows", len(found))


@given(tagged(), st.lists(st.tuples(st.text(max_size=2), st.integers(-2, 2)), max_size=4))
def test_cut_blocks_are_dealt_as_rows_are(rows, cuts):
    """But for partition ``y`` and file group 2, which have no bucket."""
    bounds = bounds_of(cuts)
    places = [(path, -1, bounds, list(range(len(bounds) + 1))) for path in ("", "x")]
    deal = deal_of([*places, *(("", group, [], [9 + group]) for group in range(2))], 3)
    dealt = list(blocks.bucket_blocks(deal, made(rows)))
    schema = SCHEMA.append(pa.field(BUCKET, pa.int32()))
    found = pa.Table.from_batches(blocks.read_blocks(data for _, data in reversed(dealt)), schema)
    expected = pa.Table.from_batches(
        tasks.assign_buckets(deal, iter(rows.combine_chunks().to_batches())), schema
    )
    assert bag(found) == bag(expected)
    assert found[BUCKET].to_pylist() == sorted(found[BUCKET].to_pylist()), "in the order of buckets"
    assert all(blocks.head_of(data)["bucket"] == number for number, data in dealt)
    for number, data in dealt:
        first = blocks.head_of(data)["first"]
        assert first is None or b64decode(first) >= (bounds[number - 1] if number else b"")


@given(
    st.lists(st.tuples(st.text(max_size=2) | st.none(), st.integers(-2, 2)), max_size=40),
    st.integers(1, 5),
)
def test_rows_that_come_together_keep_the_order_of_the_input(rows, parts):
    given_rows = pa.table(
        {"k": [k for k, _ in rows], "n": [n for _, n in rows], "at": range(len(rows))},
        schema=columns("k string, n int64, at int64"),
    )
    halves = [given_rows.slice(0, len(rows) // 2), given_rows.slice(len(rows) // 2)]
    dealt = {}
    with mock.patch.object(tasks, "_BATCH_BYTES", 100):
        for part, half in enumerate(halves):
            batches = iter(half.to_batches(max_chunksize=3))
            for number, data in blocks.grouped_blocks(part, batches, KEY, parts):
                dealt.setdefault(number, []).insert(0, data)
    found = {
        number: pa.Table.from_batches(blocks.read_blocks(some)).to_pylist()
        for number, some in dealt.items()
    }
    assert sorted(row["at"] for some in found.values() for row in some) == list(range(len(rows)))
    where = {}
    for number, some in found.items():
        assert 0 <= number < parts and [row["at"] for row in some] == sorted(
            row["at"] for row in some
        )
        for row in some:
            assert where.setdefault((row["k"], row["n"]), number) == number, "equal keys meet"
    count("rows that come together", len(rows))


@given(tagged(), st.lists(st.tuples(st.text(max_size=2), st.integers(-2, 2)), max_size=2))
def test_each_row_goes_to_the_bucket_of_its_place_and_key(rows, cuts):
    """Partition ``y`` and file group 2 have no bucket, so their rows go nowhere."""
    bounds = bounds_of(cuts)
    takers = list(range(5, 6 + len(bounds)))
    places = [("", -1, [], [3]), ("x", -1, bounds, takers), ("", 0, [], [1]), ("", 1, [], [2])]
    batches = iter(rows.combine_chunks().to_batches(max_chunksize=25))
    found = {}
    for batch in tasks.assign_buckets(deal_of(places, 3), batches):
        for row in batch.to_pylist():
            found.setdefault(row.pop(BUCKET), []).append(row)
    expected = {}
    keys = sort_keys(rows, KEY).cast(pa.binary()).to_pylist()
    for row, key in zip(rows.to_pylist(), keys, strict=True):
        named = row["__mdt_partition"] if row["__mdt_kind"] == INSERT else "", row["__mdt_group"]
        place = next(
            (one for one in places if one[:2] == named and row["__mdt_kind"] < DROPPED), None
        )
        if place is not None:
            expected.setdefault(place[3][sum(bound <= key for bound in place[2])], []).append(row)
    assert found == expected, "in the order in which they came"


def test_rows_of_many_partitions_are_dealt_in_one_go():
    """Not partition by partition, each time looking at all rows."""
    count = 2_000
    row = {"__mdt_kind": INSERT, "__mdt_group": -1, "__mdt_position": 0, "__mdt_n": 0}
    rows = pa.Table.from_pylist(
        [{"k": str(n), "n": n, "__mdt_partition": f"p{n}", **row} for n in range(count)], SCHEMA
    )
    deal = deal_of([(f"p{n}", -1, [], [n]) for n in range(count)], count)
    (dealt,) = tasks.assign_buckets(deal, iter(rows.to_batches()))
    found = dealt.column(BUCKET).to_pylist()
    assert sorted(found) == list(range(count))
    assert dealt.column("__mdt_partition").to_pylist() == [f"p{n}" for n in found]


@given(st.lists(st.lists(st.integers(0, 4), max_size=6), min_size=1, max_size=4))
def test_rows_of_a_bucket_stand_side_by_side_in_their_order(buckets):
    schema = pa.schema([(BUCKET, pa.int32()), ("at", pa.int64())])
    numbers = iter(range(100))
    parts = [
        pa.Table.from_pylist([{BUCKET: b, "at": next(numbers)} for b in part], schema)
        for part in buckets
    ]
    given_rows = pa.concat_tables(parts)
    found, places = sort_by_bucket(given_rows)
    expected = {}
    for row in given_rows.to_pylist():
        expected.setdefault(row[BUCKET], []).append(row["at"])
    assert {
        number: found["at"][rows.start : rows.stop].to_pylist() for number, rows in places.items()
    } == expected
    assert len(found) == len(given_rows) and (len(places) < 2 or found["at"].num_chunks == 1)


@given(tagged(), st.sampled_from([INSERT, READ, ABSENT]))
def test_chosen_rows_are_those_of_the_kind(rows, kind):
    names = ["__mdt_segment", "__mdt_kind"]
    found = pa.Table.from_batches(blocks.select_rows(kind, names, made(rows)))
    assert bag(found) == bag(
        pa.Table.from_pylist(
            [r for r in rows.to_pylist() if r["__mdt_kind"] == kind], SCHEMA
        ).select(names)
    )
