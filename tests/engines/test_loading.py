"""Rows that meet none of the table are not tagged: tasks of another engine see them once, and leave
what a write in process leaves.
"""

import random

import pyarrow as pa
import pytest
from pooled import PooledTable
from reader import agreed
from texts import columns
from worlds import assert_clean

import mdt
from mdt.engines import loading, tasks
from mdt.errors import Conflict, Invalid
from mdt.stores.storage import LocalStorage
from mdt.testing.local_engine import LocalEngine

SCHEMA = columns("id string not null, sub int32, city string, day date32, ts int64, x float64")
COUNTS = ("inserted", "updated", "deleted", "late", "missing")
LOADED = [
    {"key": ["id"], "partition_by": ["city"], "scope": "partition"},
    {
        "key": ["sub", "id"],
        "partition_by": ["day", "city"],
        "scope": "partition",
        "table_type": "MERGE_ON_READ",
    },
    {
        "key": ["id"],
        "partition_by": [],
        "scope": "table",
        "key_index": "record",
        "table_type": "MERGE_ON_READ",
    },
]
TAGGED = [
    {"key": ["id"], "partition_by": ["city"], "scope": "table"},
    {"key": ["id"], "partition_by": [], "key_index": "bucket(buckets='3')"},
    {
        "key": ["id"],
        "partition_by": ["city"],
        "scope": "partition",
        "options": {"mdt.delete.keeps.ordering": True},
    },
    {
        "key": ["id"],
        "partition_by": ["city"],
        "scope": "partition",
        "key_index": "bucket(buckets='3', partitions='z$,2')",
    },
]


def drawn(draw, count, keys, scope="table"):
    """Return ``count`` rows of at most ``keys`` keys.

    Under table scope those of a third of the keys have no city, since a key does not move there;
    under partition scope a third of all.
    """
    cities = ["ä/b", "y z"]
    made = [
        {
            "id": f"k{n}",
            "sub": draw.randrange(2),
            "city": draw.choice(
                [*cities, None] if scope == "partition" else cities if n % 3 else [None]
            ),
            "ts": draw.randrange(5),
            "day": draw.choice([0, 400, None]),
            "x": draw.choice([None, draw.random()]),
        }
        for n in (draw.randrange(keys) for _ in range(count))
    ]
    return pa.Table.from_pylist(made, schema=SCHEMA)


def on(folder):
    return LocalStorage(folder, durable=False)


def pair(folder, kind):
    """Return two tables of one kind; rows of the first are written by processes."""
    options = {"mdt.max.file.bytes": 1024, "mdt.small.file.bytes": 0, **kind.get("options", {})}
    for name in ("there", "here"):
        mdt.create(on(folder / name), SCHEMA, **{"ordering": "ts", **kind, "options": options})
    return PooledTable(on(folder / "there")), mdt.open(on(folder / "here"))


def counts(result):
    return [getattr(result, name) for name in COUNTS]


def no_tag(*arguments):
    raise AssertionError("rows of a load are not tagged")


@pytest.mark.parametrize("name", ["upsert", "insert_overwrite", "insert_overwrite_table"])
@pytest.mark.parametrize("kind", LOADED, ids=str)
def test_a_load_leaves_the_rows_counts_and_files_of_one_in_process(
    tmp_path, kind, name, monkeypatch
):
    there, here = pair(tmp_path, kind)
    rows = drawn(random.Random(f"{kind}{name}"), 900, 700, kind["scope"])
    with monkeypatch.context() as patch:
        patch.setattr(tasks, "tag", no_tag)
        done = getattr(there, name)(rows)
    assert done.late > 0 and done.engine == "processes"
    assert counts(done) == counts(getattr(here, name)(rows))
    assert there.history().to_pylist()[-1]["late"] == done.late
    partitions = there.files()["partition"].to_pylist()
    assert len(partitions) > len(set(partitions)), "a partition is cut at keys"
    agreed(there, expected=here.scan().to_arrow())
    more = drawn(random.Random(1), 300, 900, kind["scope"])
    assert counts(getattr(there, name)(more)) == counts(getattr(here, name)(more))
    agreed(there, expected=here.scan().to_arrow())
    assert_clean(there.storage)


@pytest.mark.parametrize("name", ["insert", "bulk_insert"])
def test_a_checked_insert_of_keys_that_are_not_new_is_refused_and_leaves_nothing(tmp_path, name):
    there, _ = pair(tmp_path, LOADED[0])
    rows = drawn(random.Random(5), 50, 1_000_000)
    twice = pa.concat_tables([rows, rows.slice(7, 1)])
    why = f"{name} takes new keys only; 1 rows repeat a key: .*{rows['id'][7]}"
    with pytest.raises(Invalid, match=why):
        getattr(there, name)(twice)
    assert there.scan().count() == 0 and len(there.files()) == 0
    assert getattr(there, name)(rows).inserted == 50
    with pytest.raises(Invalid, match=r"2 keys exist already: \['k\d+', 'k\d+'\]"):
        getattr(there, name)(rows.slice(7, 2))
    assert_clean(there.storage)


@pytest.mark.parametrize("kind", TAGGED, ids=str)
def test_rows_that_may_meet_others_are_tagged(tmp_path, kind, monkeypatch):
    there, here = pair(tmp_path, kind)
    rows = drawn(random.Random(3), 200, 150, kind.get("scope", "partition"))
    monkeypatch.setattr(loading, "label", no_tag)
    assert counts(there.upsert(rows)) == counts(here.upsert(rows))


@pytest.mark.parametrize("name", ["insert", "bulk_insert"])
def test_a_checked_insert_of_a_key_that_occurs_twice_is_refused_and_leaves_nothing(tmp_path, name):
    there, _ = pair(tmp_path, LOADED[0])
    rows = drawn(random.Random(5), 50, 1_000_000)
    twice = pa.concat_tables([rows, rows.slice(7, 1)])
    with pytest.raises(
        Invalid, match=f"{name} takes new keys only; 1 rows repeat a key: .*{rows['id'][7]}"
    ):
        getattr(there, name)(twice)
    assert there.scan().count() == 0 and len(there.files()) == 0
    assert getattr(there, name)(rows).inserted == 50
    assert_clean(there.metadata.storage)


@pytest.mark.parametrize("key", [["id"], ["sub", "id"]])
def test_a_load_with_a_null_key_is_refused_wherever_the_row_stands(tmp_path, key):
    there, _ = pair(tmp_path, {**LOADED[0], "key": key, "table_type": "MERGE_ON_READ"})
    rows = drawn(random.Random(9), 300, 1_000_000)
    for at in (0, 150, 299):
        ids = rows["id"].to_pylist()
        ids[at] = None
        with pytest.raises(Invalid, match="id"):
            there.upsert(rows.set_column(0, "id", pa.array(ids)))
        assert there.scan().count() == 0
        assert_clean(there.storage)


def test_rows_of_a_load_that_are_lost_or_come_twice_are_no_success(tmp_path, monkeypatch):
    there, _ = pair(tmp_path, LOADED[0])
    rows = drawn(random.Random(10), 50, 1_000_000)
    dealt = LocalEngine.shuffle_to_buckets
    for change in (lambda parts: [part.slice(1) for part in parts], lambda parts: [*parts, *parts]):
        monkeypatch.setattr(
            LocalEngine, "shuffle_to_buckets", lambda *given, change=change: change(dealt(*given))
        )
        with pytest.raises(Conflict, match="the rows changed while they were read"):
            there.upsert(rows)
        assert there.scan().count() == 0
        assert_clean(there.storage)


def test_errors_of_tasks_name_keys_and_values_and_no_numbers_of_rows(tmp_path):
    mdt.create(on(tmp_path / "t"), columns("id string, n int16 not null"), key=["id"])
    table = PooledTable(on(tmp_path / "t"))
    ids, numbers = [f"k{n}" for n in range(50)], list(range(50))
    for write in (table.bulk_insert, table.upsert, table.insert_overwrite_table):
        for name, value, why in (
            ("n", 70_000, r"row \(id='k33'\) has 70000"),
            ("n", None, r"column 'n' is required, but null in 1 rows\n"),
            ("id", "", r"key column 'id' is (null|empty) in 1 rows\n"),
        ):
            data = {"id": list(ids), "n": list(numbers)}
            data[name][33] = value
            with pytest.raises(Invalid, match=why):
                write(pa.table(data))
