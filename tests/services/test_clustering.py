"""Clustering keeps all rows, lets queries read fewer files, and runs beside other writers."""

import itertools
import json
from functools import partial

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import trees
from reader import agreed, bag, hudi_table
from texts import columns
from worlds import MOR, meanwhile, rows, spread

import mdt
from mdt.commit.transaction import run, steps
from mdt.errors import Invalid
from mdt.metadata.files import paths
from mdt.metadata.files.file_group import LOG
from mdt.metadata.log import commit_log
from mdt.parquet.segment_rows import read_columns
from mdt.services.layout import arrangement
from mdt.services.layout.clustering import Clustering, NothingGained
from mdt.services.layout.clustering_plan import units
from mdt.services.layout.ranges import overlaps
from mdt.stores.storage import MemoryStorage

SMALL = {"mdt.max.file.bytes": 30_000, "mdt.small.file.bytes": 0, "mdt.durable": False}
CURVES = ["sort", "zorder", "hilbert"]


def data(first, count, seed=1):
    rng = np.random.default_rng(seed)
    city = np.array(["x", "y"])[np.arange(first, first + count) % 2]
    return pa.table(
        {
            "id": pa.array(np.arange(first, first + count)),
            "a": rng.random(count),
            "b": rng.integers(0, 1_000, count),
            "s": pa.array(
                [None if v == 7 else f"w{v:03}" for v in rng.integers(0, 50, count)], pa.string()
            ),
            "at": pa.array(
                [{"lat": v} for v in rng.random(count)], pa.struct([("lat", pa.float64())])
            ),
            "city": pa.array(city),
        }
    )


def table_with_overlaps(path=None, count=6_000, **more):
    """Return a table whose files overlap in every column except the key."""
    storage = MemoryStorage() if path is None else path
    options = {**SMALL, **more.pop("options", {})}
    table = mdt.create(storage, data(0, 0).schema, ["id"], options=options, **more)
    for first in range(0, count, 600):
        table.bulk_insert(data(first, min(600, count - first), seed=first))
    return table


def files_read(table, where):
    return table.scan(where).explain().files_read


KINDS = list(itertools.product(trees.TABLE_TYPES, ("bloom", "record"), CURVES))


DAILY = KINDS[:6:2] + KINDS[7::2]
"""Each curve, key index and table type together with each value of the others."""


@pytest.mark.parametrize(
    "table_type, key_index, curve",
    [pytest.param(*kind, marks=() if kind in DAILY else pytest.mark.nightly) for kind in KINDS],
)
def test_every_reader_sees_the_same_rows_after_clustering(table_type, key_index, curve, tmp_path):
    table = table_with_overlaps(
        tmp_path / "t",
        table_type=table_type,
        key_index=key_index,
        partition_by=["city"],
        indexes=["bitmap(s)", "bloom(b)"],
        count=3_000,
    )
    table.upsert(data(100, 300, seed=2))
    table.delete(data(50, 20))
    before, meta = table.scan().to_arrow(), _meta_columns_by_key(table)
    result = table.cluster(["a", "b"], curve=curve)
    assert result.rows == len(before) == 2_980
    agreed(table, expected=before)
    assert not (table.files()["kind"].to_numpy() == LOG).any(), (
        "log files are merged into base files"
    )
    assert set(table.indexes()["coverage"].to_pylist()) == {100.0}
    names = table.files()["name"].to_pylist()
    for key, row in _meta_columns_by_key(table).items():
        assert row.pop("_hoodie_file_name") in names
        del meta[key]["_hoodie_file_name"]
        assert row == meta[key]
    assert table.upsert(data(0, 3_000, seed=3)).updated == 2_980, (
        "keys are located in their new files"
    )
    assert table.delete(data(0, 10)).deleted == 10
    table.compact()
    table.metadata.compact()
    assert mdt.open(tmp_path / "t").insert(data(9_000, 10)).inserted == 10
    assert table.get([60])["id"].to_pylist() == [60]
    agreed(table)


def _meta_columns_by_key(table):
    """Return Hudi's meta columns of each row by its key, as hudi-rs reads them."""
    names = ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")
    schema = columns(", ".join(f"_hoodie_{name} string" for name in names))
    rows_found = hudi_table(table.path.removeprefix("file://"), schema).to_pylist()
    return {row["_hoodie_record_key"]: row for row in rows_found}


def test_queries_read_fewer_files_for_the_sort_column_or_for_each_column_of_a_curve():
    on_a, on_b = "a between 0.30 and 0.31", "b between 300 and 310"
    sorted_, curved = table_with_overlaps(), table_with_overlaps()
    assert files_read(sorted_, on_a) == files_read(sorted_, on_b) == len(sorted_.files())
    sorted_.cluster("a")
    assert files_read(sorted_, on_a) <= 2
    assert files_read(sorted_, on_b) == len(sorted_.files())
    curved.cluster(["a", "b"], curve="hilbert")
    assert files_read(curved, on_a) <= len(curved.files()) / 2
    assert files_read(curved, on_b) <= len(curved.files()) / 2


@pytest.mark.parametrize("curve", CURVES)
def test_a_second_clustering_by_the_same_columns_commits_nothing(curve):
    table = table_with_overlaps()
    assert table.cluster(["s", "a"], curve=curve).instant
    second = table.cluster(["s", "a"], curve=curve)
    assert second.instant == "" and second.seq == table.snapshot().seq
    assert second.overlap["s"][0] == second.overlap["s"][1]


def test_rows_moved_in_pieces_have_the_order_of_rows_moved_at_once(
    monkeypatch,
):
    def clustered():
        table = table_with_overlaps(count=1_800)
        assert table.cluster("a").groups_made > 2
        files = map(table.snapshot().segment, table.snapshot().live_numbers.tolist())
        schema = pa.schema([table.schema.field("a")])
        read = partial(read_columns, table.storage, table.definition)
        return [read(file, schema)["a"].to_pylist() for file in files]

    at_once = clustered()
    monkeypatch.setattr(arrangement, "_MOVED_BYTES", 1)
    assert clustered() == at_once
    all_values = [value for file_values in at_once for value in file_values]
    assert all_values == sorted(all_values)


def test_clustering_by_other_columns_or_curves_rewrites_the_table():
    table = table_with_overlaps()
    for by, curve in (
        ("a", "sort"),
        (["a", "b"], "zorder"),
        ("b", "sort"),
        (["b", "a"], "hilbert"),
        ("a", "sort"),
    ):
        assert table.cluster(by, curve=curve).instant, (by, curve)
    assert overlaps(table.snapshot(), ["a"]) == {"a": 1.0}


def test_only_files_that_overlap_are_rewritten():
    table = table_with_overlaps(count=9_000)
    table.cluster("a")
    old = set(table.files()["file_id"].to_pylist())
    new = data(20_000, 900)
    new = new.set_column(1, "a", pa.array(0.5 + np.linspace(0, 0.05, 900)))
    table.bulk_insert(new)
    table.bulk_insert(new.set_column(0, "id", pc.add(new["id"], 5_000)))
    result = table.cluster("a")
    kept_files = old & set(table.files()["file_id"].to_pylist())
    assert result.instant and len(kept_files) >= 0.7 * len(old)
    assert result.overlap["a"][1] < result.overlap["a"][0]


def test_small_files_are_merged_even_if_none_overlap():
    table = mdt.create(MemoryStorage(), data(0, 0).schema, ["id"], options=SMALL)
    for first in range(0, 1_000, 100):
        table.bulk_insert(data(first, 100))
    assert len(table.files()) == 10
    result = table.cluster("id")
    assert (result.groups_replaced, result.groups_made, result.rows) == (
        10,
        len(table.files()),
        1_000,
    )
    assert len(table.files()) <= 5


def test_partitions_are_clustered_separately_and_can_be_selected():
    table = table_with_overlaps(partition_by=["city"])
    other = [row for row in table.files().to_pylist() if row["partition"] == "city=y"]
    assert table.cluster(["a"], partitions="city=x").instant
    assert [row for row in table.files().to_pylist() if row["partition"] == "city=y"] == other
    assert table.cluster("a", partitions=["city=*"]).instant
    assert overlaps(table.snapshot(), ["a"], ["city=x", "city=y"]) == {"a": 1.0}
    with pytest.raises(Invalid, match="there is no partition"):
        table.cluster("a", partitions="city=z")


def test_clustered_files_keep_their_order_when_they_are_rewritten():
    for table_type in trees.TABLE_TYPES:
        table = table_with_overlaps(table_type=table_type, count=1_000)
        table.cluster("a")
        table.upsert(data(0, 10, seed=5))
        table.compact()
        rows_found = table.scan(columns=["id", "a"]).to_arrow()
        values = [row["a"] for row in rows_found.to_pylist() if row["id"] >= 10]
        is_ascending = np.diff(values) >= 0
        assert is_ascending.mean() > 0.99, "values decrease only between files"


def test_clustering_a_partition_without_live_rows_leaves_no_files():
    table = table_with_overlaps(count=1_200)
    table.delete(data(0, 1_200))
    result = table.cluster("a")
    assert (result.groups_replaced > 1, result.groups_made, result.rows) == (True, 0, 0)
    assert len(table.files()) == 0 and table.scan().count() == 0 and table.check().ok
    assert table.insert(data(0, 5)).inserted == 5


def test_tables_can_be_clustered_by_struct_fields_and_columns_with_nulls():
    table = table_with_overlaps()
    table.cluster(["at.lat", "s"], curve="zorder")
    before = overlaps(table.snapshot(), ["at.lat", "s"])
    assert all(depth < 0.8 * len(table.files()) for depth in before.values())


def test_auto_clusters_by_the_columns_that_queries_filter_on():
    table = table_with_overlaps(options={"mdt.usage.counts": True})
    with pytest.raises(Invalid, match="no query was counted"):
        table.cluster()
    for n in range(6):
        table.scan(f"b = {n}").count()
        table.scan(f"a > 0.{n} and id > 3").count()
    result = table.cluster("auto")
    assert set(result.by) == {"a", "b"} and result.curve == "hilbert", (
        "the files do not overlap in the key column"
    )
    assert result.files_read is not None and result.files_read[1] < result.files_read[0]


@pytest.mark.parametrize(
    "by, more, message",
    [
        (["nothing"], {}, "there is no column 'nothing'"),
        (["at"], {}, "cannot be sorted by"),
        ([], {}, "0 columns"),
        (["a"], {"curve": "peano"}, "curve='peano'"),
        (7, {}, "by takes text"),
    ],
)
def test_invalid_columns_and_curves_are_refused(by, more, message):
    with pytest.raises(Invalid, match=message):
        table_with_overlaps(count=10).cluster(by, **more)


def test_units_have_at_most_the_configured_number_of_bytes():
    table = table_with_overlaps(options={"mdt.cluster.unit.bytes": 100_000})
    clustering_units = units(table.snapshot(), table.options, ["a"], "sort")
    size = {row["file_id"]: row["size"] for row in table.files().to_pylist()}
    groups = table.snapshot().file_groups
    assert len(clustering_units) > 1
    assert all(
        sum(size[name] for name in groups.names(unit.groups)) <= 100_000
        for unit in clustering_units
    )
    before = bag(table.scan().to_arrow())
    result = table.cluster("a")
    assert (
        result.overlap["a"][1] < result.overlap["a"][0] and bag(table.scan().to_arrow()) == before
    )


def new_clustering(table, by=("a",), curve="sort"):
    return Clustering(table.metadata, table.options, by, curve)


def test_units_that_another_writer_changed_are_skipped_and_their_files_deleted():
    table = table_with_overlaps(partition_by=["city"])
    before = table.scan().count()
    other = mdt.open(table.storage)
    with meanwhile(Clustering, lambda: other.upsert(data(0, 1))):
        result = run(table.metadata, new_clustering(table))
    assert result.attempts == 1 and set(result.record.replaced) == {"city=y"}
    skipped_files = result.record.header["left_out"]
    assert skipped_files and all(name.startswith("city=x/") for name in skipped_files)
    assert all(table.storage.size(name) is None for name in skipped_files)
    assert table.scan().count() == before and table.check().ok


def test_a_clustering_without_gain_raises_and_leaves_no_files():
    table = table_with_overlaps(count=3_000)
    table.cluster(["a", "b"], curve="zorder")
    assert units(table.snapshot(), table.options, ["a", "b"], "zorder"), (
        "along a curve the ranges of columns still overlap"
    )
    files = {info.path for info in table.storage.list("")}
    with pytest.raises(NothingGained):
        for _ in steps(table.metadata, new_clustering(table, ("a", "b"), "zorder")):
            pass
    assert {info.path for info in table.storage.list("")} == files


def test_a_clustering_writes_a_replacecommit_with_its_plan_and_the_replaced_groups():
    storage = spread(MOR, "record")
    table = mdt.open(storage)
    replaced_groups = {row["file_id"] for row in table.files().to_pylist()}
    result = table.cluster("fare")
    names = sorted(
        info.path for info in storage.list_dir(paths.HUDI) if result.instant in info.path
    )
    states = [name.partition(".replacecommit")[2] for name in names]
    assert states == ["", ".inflight", ".requested"]
    commit = json.loads(storage.read(names[0]))
    assert commit["operationType"] == "CLUSTER" and not commit["compacted"]
    assert {
        name for ids in commit["partitionToReplaceFileIds"].values() for name in ids
    } == replaced_groups
    for stat in itertools.chain(*commit["partitionToWriteStats"].values()):
        assert stat["prevCommit"] == "null" and stat["numInserts"] == stat["numWrites"] == 6
    [plan] = list(fastavro.reader(storage.open(names[2])))
    groups = plan["clusteringPlan"]["inputGroups"]
    slices = [slice_ for group in groups for slice_ in group["slices"]]
    assert {slice_["fileId"] for slice_ in slices} == replaced_groups
    assert [group["numOutputFileGroups"] for group in groups] == [1, 1]
    assert any(slice_["deltaFilePaths"] for slice_ in slices)


def test_check_reports_a_live_file_group_that_a_record_lists_as_replaced(
    monkeypatch,
):
    table = mdt.open(spread(MOR, "record"))
    table.cluster("fare")
    table.upsert(rows([0], 9, 9.0))
    assert table.check().ok
    read, live_group = commit_log.read, table.files()["file_id"][0].as_py()

    def read_with_wrong_group(storage, seq):
        record = read(storage, seq)
        if record is not None and record.replaced:
            record.header["replaced"]["city=x"].append(live_group)
        return record

    monkeypatch.setattr(commit_log, "read", read_with_wrong_group)
    assert any("replaced" in problem.text for problem in table.check().problems)


def test_clustering_a_single_file_narrows_its_row_groups():
    table = mdt.create(
        MemoryStorage(), data(0, 0).schema, ["id"], options={"mdt.row.group.rows": 100}
    )
    table.bulk_insert(data(0, 2_000))
    where = "a between 0.30 and 0.31"
    before = table.scan(where).explain().row_groups_read
    assert table.cluster("a").groups_made == 1
    after = table.scan(where).explain()
    assert after.row_groups_read <= 2 < before and table.check().ok
    assert not table.cluster("a").instant


def test_a_required_column_stays_required_in_files_that_services_write():
    schema = columns("id int64 not null, a double not null")
    table = mdt.create(MemoryStorage(), schema, ["id"], options=SMALL)
    for first in range(0, 300, 100):
        random = np.random.default_rng(first).random(100)
        table.bulk_insert(pa.table([range(first, first + 100), random], schema=schema))
    table.upsert(pa.table([range(5), [0.0] * 5], schema=schema))
    for service in (table.compact, lambda: table.cluster("a")):
        service()
        for name in table.files()["name"].to_pylist():
            file_schema = pq.read_schema(pa.BufferReader(table.storage.read(name)))
            assert not file_schema.field("id").nullable and not file_schema.field("a").nullable
