"""Overwrites and dropped partitions: the rows they replace and keep, and the reads they avoid."""

import json
from datetime import date

import numpy as np
import pyarrow as pa
import pytest
from pooled import EVERY_KIND
from reader import agreed
from spilled import SpilledTable
from texts import columns, rows_of
from worlds import MOR, OPTIONS, SCHEMA, ours, rows, theirs

import mdt
from mdt.errors import Corrupt, Invalid, Unsupported
from mdt.hudi.timeline import Instant
from mdt.hudi.v6 import Version6
from mdt.metadata.files import paths
from mdt.metadata.log import commit_log
from mdt.metadata.log import trusted_records as records
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import live_partitions
from mdt.stores.storage import LocalStorage, MemoryStorage
from mdt.write import overwriting

LEVELS = columns("id int64, city string, day date32, v int64")
DAYS = (date(2026, 1, 1), date(2026, 1, 2))


def filled_table(storage=None, table_type=MOR, **settings):
    """Return a table with two commits, and keys 0 to 5: even keys in x and odd keys in y."""
    arguments = {"partition_by": ["city"], "ordering": "ts", "options": OPTIONS, **settings}
    storage = MemoryStorage() if storage is None else storage
    table = mdt.create(storage, SCHEMA, ["id"], table_type=table_type, **arguments)
    table.upsert(rows(range(6), 5, 1.0))
    table.upsert(rows([0, 1], 6, 2.0))
    return table


def assert_consistent(table):
    """Assert that mdt and hudi-rs see the same rows, and that check finds no problem."""
    assert ours(table.storage) == theirs(table.storage)
    report = table.check()
    assert report.ok and not report.warnings, str(report)


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.insert_overwrite(rows([0], 1, 9.0)),
        lambda table: table.delete_partition({"city": "x"}),
        lambda table: table.truncate(),
    ],
)
def test_the_replaced_file_groups_are_determined_once(monkeypatch, change):
    table, calls, partitioned = filled_table(), [], overwriting.partitioned
    monkeypatch.setattr(
        overwriting,
        "partitioned",
        lambda *settings: calls.append(settings) or partitioned(*settings),
    )
    assert change(table).deleted and len(calls) == 1


def test_an_overwrite_replaces_the_partitions_of_its_rows_despite_ordering_values():
    """Changes report keys that existed before as updates."""
    table = filled_table()
    result = table.insert_overwrite(rows([0, 20, 20], 1, 9.0))
    assert (result.inserted, result.deleted, result.late, result.attempts) == (2, 3, 1, 1)
    assert sorted(ours(table.storage)) == ["k0", "k1", "k20", "k3", "k5"]
    assert ours(table.storage)["k0"] == (1, 9.0)
    assert_consistent(table)
    change_rows = table.changes(result.seq - 1).to_arrow().to_pylist()
    assert {(row["_change"], row["id"]) for row in change_rows} == {
        ("update_before", "k0"),
        ("update_after", "k0"),
        ("delete", "k2"),
        ("delete", "k4"),
        ("insert", "k20"),
    }
    dropped = table.changes(table.delete_partition("city=y").seq - 1).to_arrow()
    assert set(dropped["_change"].to_pylist()) == {"delete"}
    assert sorted(dropped["id"].to_pylist()) == ["k1", "k3", "k5"]


@pytest.mark.parametrize("kind", [mdt.Table, SpilledTable])
def test_the_partition_of_a_superseded_row_is_not_overwritten(kind):
    table = filled_table(scope="table")
    newer = rows_of(SCHEMA, "k9 x 1 7", "k9 z 2 7")
    result = kind(table.storage, OPTIONS).insert_overwrite(newer)
    assert (result.inserted, result.deleted, result.late) == (1, 0, 1)
    assert table.scan().count() == 7 and table.get("k9")["city"] == "z"


@EVERY_KIND
def test_named_partitions_are_overwritten_with_or_without_new_rows(tmp_path, kind):
    table = filled_table(LocalStorage(tmp_path, durable=False))
    writer = kind(table.storage, OPTIONS)
    result = writer.insert_overwrite(rows([0], 1, 9.0), partitions=["city=x", {"city": "new"}])
    assert (result.inserted, result.deleted) == (1, 3)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == ["k0", "k1", "k3", "k5"]
    with pytest.raises(
        Invalid, match="partition 'city=y', but the overwrite is limited to 'city=x'"
    ):
        writer.insert_overwrite(rows([0, 1], 1, 9.0), partitions={"city": "x"})
    assert writer.insert_overwrite(rows([0], 1, 9.0), partitions="*").deleted == 4
    assert writer.insert_overwrite(rows([], 1, 9.0), partitions={"city": "x"}).deleted == 1
    assert writer.insert_overwrite(rows([], 1, 9.0), partitions={"city": "x"}).instant == ""
    assert writer.insert_overwrite(rows([], 1, 9.0)).instant == "" == writer.truncate().instant
    agreed(table, expected=rows([], 1, 9.0))


def test_a_table_without_partitions_refuses_partition_names():
    table = filled_table(partition_by=[])
    with pytest.raises(Invalid, match="the table has no partitions"):
        table.insert_overwrite(rows([0], 1, 9.0), partitions="city=x")
    with pytest.raises(Invalid, match="has no partitions"):
        table.delete_partition("*")


def test_overwrites_and_drops_open_no_data_file(monkeypatch):
    table = filled_table()
    opened = []
    read = MemoryStorage.open
    monkeypatch.setattr(
        MemoryStorage, "open", lambda self, path: opened.append(path) or read(self, path)
    )
    table.insert_overwrite(rows([0, 20], 1, 9.0))
    table.delete_partition("city=y")
    assert not [path for path in opened if not path.startswith(paths.PRIVATE)]


def table_with_two_levels():
    table = mdt.create(
        MemoryStorage(), LEVELS, ["id"], partition_by=["city", "day"], options=OPTIONS
    )
    cities = [f"{n} {city} {day} {n}" for n in range(2) for city in ("a/b", "-") for day in DAYS]
    table.upsert(rows_of(LEVELS, *cities))
    return table


@pytest.mark.parametrize(
    "named, left",
    [
        ("city=a%2Fb/day=2026-01-01", 6),
        ("city=a%2Fb/*", 4),
        ("*/day=2026-01-02", 4),
        ({"city": "a/b"}, 4),
        ({"day": DAYS[0]}, 4),
        ({"day": "2026-01-01", "city": None}, 6),
        ([{"city": None}, "city=a%2Fb/day=2026-01-01"], 2),
        (({"city": city} for city in ("a/b", None)), 0),
        ("*", 0),
        ({"city": "nowhere"}, 8),
        ([], 8),
    ],
)
def test_partitions_can_be_named_by_path_by_values_or_by_a_pattern(named, left):
    table = table_with_two_levels()
    result = table.delete_partition(named)
    assert table.scan().count() == left == 8 - result.deleted
    assert table.check().ok


@pytest.mark.parametrize(
    "named, match",
    [
        ("city=a/b/day=2026-01-01", "is not a partition path"),
        ("cty=a/day=2026-01-01", "is not a partition path"),
        ({"id": 3}, "is not a partition column"),
        ({}, "must not be empty"),
        ({"day": "soon"}, "is not a valid date32"),
        ([3], "must be text or a dict"),
        (3, "is not text, a dict or a list"),
    ],
)
def test_invalid_partition_names_are_refused(named, match):
    with pytest.raises(Invalid, match=match):
        table_with_two_levels().delete_partition(named)


def test_a_purge_deletes_the_files_of_dropped_partitions():
    table = filled_table(key_index="record")
    table.insert_overwrite(pa.table([["k0"], ["x"], [1], [9.0]], schema=SCHEMA))
    table.delete_partition("city=y")
    table.purge()
    assert not [
        info.path for info in table.storage.list("city=y") if not info.path.endswith("metadata")
    ]
    assert_consistent(table)


@pytest.mark.parametrize(
    "write, word",
    [
        (lambda t: t.insert_overwrite(rows([0], 1, 1.0)), "INSERT_OVERWRITE"),
        (lambda t: t.insert_overwrite_table(rows([0], 1, 1.0)), "INSERT_OVERWRITE_TABLE"),
        (lambda t: t.delete_partition({"city": "x"}), "DELETE_PARTITION"),
        (lambda t: t.truncate(), "INSERT_OVERWRITE_TABLE"),
    ],
)
def test_replacecommits_have_hudis_operation_type_and_the_replaced_file_groups(write, word):
    table = filled_table()
    files = [row for row in table.files().to_pylist() if row["name"][0] != "."]
    old_groups = {row["partition"]: row["name"].split("_")[0] for row in files}
    result = write(table)
    layout = Version6()
    change_rows = json.loads(
        table.storage.read(layout.completed_path(result.instant, "", "replacecommit"))
    )
    replaced = {
        partition: name for partition, (name,) in change_rows["partitionToReplaceFileIds"].items()
    }
    assert change_rows["operationType"] == word
    assert replaced.items() <= old_groups.items() and "city=x" in replaced
    requested = layout.path_of(Instant(result.instant, "replacecommit", "requested"))
    planned = table.storage.read(requested)
    assert word.encode() in planned and b"CLUSTER" not in planned.partition(b"Obj")[2][-200:]


def test_replacing_more_file_groups_than_a_record_can_list_is_refused(
    monkeypatch,
):
    monkeypatch.setattr(overwriting, "LIST_ITEMS_MAX", 1)
    table = filled_table()
    with pytest.raises(Unsupported, match="2 file groups cannot be replaced in one commit"):
        table.truncate()
    assert table.delete_partition("city=x").deleted == 3


def test_exactly_the_records_that_replace_file_groups_are_replacecommits():
    table = filled_table()
    table.truncate()
    truncated, upserted = (commit_log.read(table.storage, seq) for seq in (3, 2))
    for record, action in ((truncated, "commit"), (upserted, "replacecommit")):
        header = {**record.header, "action": action, "seq": 3}
        with pytest.raises(
            Corrupt, match="the field replaced of a commit record does not match its action"
        ):
            records.check_header(header, 3, "p")


def test_the_record_of_a_truncation_with_deleted_rows_is_small():
    table = mdt.create(MemoryStorage(), LEVELS, ["id"], options=OPTIONS)
    n = 200_000
    columns = [range(n), ["a"] * n, [DAYS[0]] * n, range(n)]
    table.upsert(
        pa.table(
            [pa.array(column, field.type) for column, field in zip(columns, LEVELS, strict=True)],
            schema=LEVELS,
        )
    )
    table.delete(pa.table({"id": [5, 99_999]}))
    table.truncate()
    size = table.storage.size(paths.commit(3))
    assert size is not None and size < 5_000
    assert Metadata(table.storage).newest().seq == 3


def test_the_star_is_the_only_wildcard_when_partitions_are_dropped():
    table = table_with_two_levels()
    for path in set(table.files()["partition"].to_pylist()):
        for pattern in (f"{path[:-1]}?", f"{path[:-1]}[{path[-1]}]"):
            assert not table.delete_partition(pattern).deleted
    assert table.scan().count() == 8


def test_a_partition_named_by_value_is_looked_up_without_patterns_or_splitting(
    monkeypatch,
):
    split, parts = np.split, []
    monkeypatch.setattr(
        live_partitions,
        "fnmatchcase",
        lambda path, glob: pytest.fail(f"{path} is compared with {glob}"),
    )
    monkeypatch.setattr(
        live_partitions.np, "split", lambda array, at: parts.append(len(at) + 1) or split(array, at)
    )
    table = mdt.create(MemoryStorage(), LEVELS, ["id"], partition_by=["v"])
    table.upsert({"id": range(50), "city": ["x"] * 50, "day": DAYS[:1] * 50, "v": range(50)})
    parts.clear()
    table.delete_partition({"v": 7})
    table.compact(partitions="v=8")
    assert parts and max(parts) == 1
