"""Loads of rows that cannot match stored rows skip tagging. Tasks of another engine read the input
once and produce what a write in process produces.
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
UNTAGGED_KINDS = [
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
TAGGED_KINDS = [
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
    """Return ``count`` rows with at most ``keys`` distinct keys.

    Under table scope a third of the keys have no city, since a key cannot move there. Under
    partition scope a third of all rows have none.
    """
    cities = ["ä/b", "y z"]
    rows = [
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
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def on(folder):
    return LocalStorage(folder, durable=False)


def pair(folder, kind):
    """Return two equal tables. Rows of the first are written by processes."""
    options = {"mdt.max.file.bytes": 1024, "mdt.small.file.bytes": 0, **kind.get("options", {})}
    for name in ("there", "here"):
        mdt.create(on(folder / name), SCHEMA, **{"ordering": "ts", **kind, "options": options})
    return PooledTable(on(folder / "there")), mdt.open(on(folder / "here"))


def counts(result):
    return [getattr(result, name) for name in COUNTS]


def no_tag(*arguments):
    raise AssertionError("rows of a load are not tagged")


@pytest.mark.parametrize("name", ["upsert", "insert_overwrite", "insert_overwrite_table"])
@pytest.mark.parametrize("kind", UNTAGGED_KINDS, ids=str)
def test_a_load_in_tasks_gives_the_rows_and_counts_of_a_load_in_process(
    tmp_path, kind, name, monkeypatch
):
    in_tasks, in_process = pair(tmp_path, kind)
    rows = drawn(random.Random(f"{kind}{name}"), 900, 700, kind["scope"])
    with monkeypatch.context() as patch:
        patch.setattr(tasks, "tag", no_tag)
        result = getattr(in_tasks, name)(rows)
    assert result.late > 0 and result.engine == "processes"
    assert counts(result) == counts(getattr(in_process, name)(rows))
    assert in_tasks.history().to_pylist()[-1]["late"] == result.late
    partitions = in_tasks.files()["partition"].to_pylist()
    assert len(partitions) > len(set(partitions)), "a partition is split into files at keys"
    agreed(in_tasks, expected=in_process.scan().to_arrow())
    more = drawn(random.Random(1), 300, 900, kind["scope"])
    assert counts(getattr(in_tasks, name)(more)) == counts(getattr(in_process, name)(more))
    agreed(in_tasks, expected=in_process.scan().to_arrow())
    assert_clean(in_tasks.storage)


@pytest.mark.parametrize("name", ["insert", "bulk_insert"])
def test_a_checked_insert_of_existing_keys_is_refused_and_leaves_no_files(tmp_path, name):
    in_tasks, _ = pair(tmp_path, UNTAGGED_KINDS[0])
    rows = drawn(random.Random(5), 50, 1_000_000)
    twice = pa.concat_tables([rows, rows.slice(7, 1)])
    why = f"{name} takes new keys only; 1 rows repeat a key: .*{rows['id'][7]}"
    with pytest.raises(Invalid, match=why):
        getattr(in_tasks, name)(twice)
    assert in_tasks.scan().count() == 0 and len(in_tasks.files()) == 0
    assert getattr(in_tasks, name)(rows).inserted == 50
    with pytest.raises(Invalid, match=r"2 keys exist already: \['k\d+', 'k\d+'\]"):
        getattr(in_tasks, name)(rows.slice(7, 2))
    assert_clean(in_tasks.storage)


@pytest.mark.parametrize("kind", TAGGED_KINDS, ids=str)
def test_rows_that_may_match_stored_rows_are_tagged(tmp_path, kind, monkeypatch):
    in_tasks, in_process = pair(tmp_path, kind)
    rows = drawn(random.Random(3), 200, 150, kind.get("scope", "partition"))
    monkeypatch.setattr(loading, "label", no_tag)
    assert counts(in_tasks.upsert(rows)) == counts(in_process.upsert(rows))


@pytest.mark.parametrize("key", [["id"], ["sub", "id"]])
def test_a_load_with_a_null_key_is_refused_at_any_row_position(tmp_path, key):
    in_tasks, _ = pair(tmp_path, {**UNTAGGED_KINDS[0], "key": key, "table_type": "MERGE_ON_READ"})
    rows = drawn(random.Random(9), 300, 1_000_000)
    for at in (0, 150, 299):
        ids = rows["id"].to_pylist()
        ids[at] = None
        with pytest.raises(Invalid, match="id"):
            in_tasks.upsert(rows.set_column(0, "id", pa.array(ids)))
        assert in_tasks.scan().count() == 0
        assert_clean(in_tasks.storage)


def test_a_load_whose_shuffle_loses_or_repeats_rows_raises_conflict(tmp_path, monkeypatch):
    in_tasks, _ = pair(tmp_path, UNTAGGED_KINDS[0])
    rows = drawn(random.Random(10), 50, 1_000_000)
    shuffle = LocalEngine.shuffle_to_buckets
    for change in (lambda parts: [part.slice(1) for part in parts], lambda parts: [*parts, *parts]):
        monkeypatch.setattr(
            LocalEngine,
            "shuffle_to_buckets",
            lambda *arguments, change=change: change(shuffle(*arguments)),
        )
        with pytest.raises(Conflict, match="the rows changed while they were read"):
            in_tasks.upsert(rows)
        assert in_tasks.scan().count() == 0
        assert_clean(in_tasks.storage)


def test_errors_in_tasks_name_keys_and_values_and_no_row_numbers(tmp_path):
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
