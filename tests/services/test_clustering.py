"""Clustering: rows stay what they are, stand in few files for every query, and writers may go on
meanwhile.
"""

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


def table_of(path=None, count=6_000, **more):
    """Return a table whose files overlap in every column but the key."""
    storage = MemoryStorage() if path is None else path
    options = {**SMALL, **more.pop("options", {})}
    table = mdt.create(storage, data(0, 0).schema, ["id"], options=options, **more)
    for first in range(0, count, 600):
        table.bulk_insert(data(first, min(600, count - first), seed=first))
    return table


def files_read(table, where):
    return table.scan(where).explain().files_read


KINDS = list(itertools.product(trees.TABLE_TYPES, ("bloom", "record"), CURVES))


BY_DAY = KINDS[:6:2] + KINDS[7::2]
"""Each curve, key index and type of table beside each value of the others."""


@pytest.mark.parametrize(
    "table_type, key_index, curve",
    [pytest.param(*kind, marks=() if kind in BY_DAY else pytest.mark.nightly) for kind in KINDS],
)
def test_every_reader_sees_the_same_rows_after_clustering(table_type, key_index, curve, tmp_path):
    table = table_of(
        tmp_path / "t",
        table_type=table_type,
        key_index=key_index,
        partition_by=["city"],
        indexes=["bitmap(s)", "bloom(b)"],
        count=3_000,
    )
    table.upsert(data(100, 300, seed=2))
    table.delete(data(50, 20))
    before, meta = table.scan().to_arrow(), _meta(table)
    done = table.cluster(["a", "b"], curve=curve)
    assert done.rows == len(before) == 2_980
    agreed(table, expected=before)
    assert not (table.files()["kind"].to_numpy() == LOG).any(), "log files are merged"
    assert set(table.indexes()["coverage"].to_pylist()) == {100.0}
    names = table.files()["name"].to_pylist()
    for key, row in _meta(table).items():
        assert row.pop("_hoodie_file_name") in names
        del meta[key]["_hoodie_file_name"]
        assert row == meta[key]
    assert table.upsert(data(0, 3_000, seed=3)).updated == 2_980, (
        "keys are found where they moved to"
    )
    assert table.delete(data(0, 10)).deleted == 10
    table.compact()
    table.metadata.compact()
    assert mdt.open(tmp_path / "t").insert(data(9_000, 10)).inserted == 10
    assert table.get([60])["id"].to_pylist() == [60]
    agreed(table)


def _meta(table):
    """Return Hudi's own columns of each row by its key, as hudi-rs reads them."""
    names = ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")
    schema = columns(", ".join(f"_hoodie_{name} string" for name in names))
    found = hudi_table(table.path.removeprefix("file://"), schema).to_pylist()
    return {row["_hoodie_record_key"]: row for row in found}


def test_queries_read_fewer_files_after_sorting_and_along_a_curve_for_each_column():
    one, both = "a between 0.30 and 0.31", "b between 300 and 310"
    sorted_, curved = table_of(), table_of()
    assert files_read(sorted_, one) == files_read(sorted_, both) == len(sorted_.files())
    sorted_.cluster("a")
    assert files_read(sorted_, one) <= 2
    assert files_read(sorted_, both) == len(sorted_.files())
    curved.cluster(["a", "b"], curve="hilbert")
    assert files_read(curved, one) <= len(curved.files()) / 2
    assert files_read(curved, both) <= len(curved.files()) / 2


@pytest.mark.parametrize("curve", CURVES)
def test_a_second_clustering_finds_nothing_to_gain(curve):
    table = table_of()
    assert table.cluster(["s", "a"], curve=curve).instant
    again = table.cluster(["s", "a"], curve=curve)
    assert again.instant == "" and again.seq == table.snapshot().seq
    assert again.overlap["s"][0] == again.overlap["s"][1]


def test_rows_that_are_moved_in_pieces_stand_as_those_that_are_moved_at_once(
    monkeypatch,
):
    def clustered():
        table = table_of(count=1_800)
        assert table.cluster("a").groups_made > 2
        files = map(table.snapshot().segment, table.snapshot().live_numbers.tolist())
        schema = pa.schema([table.schema.field("a")])
        read = partial(read_columns, table.storage, table.definition)
        return [read(file, schema)["a"].to_pylist() for file in files]

    at_once = clustered()
    monkeypatch.setattr(arrangement, "_MOVED_BYTES", 1)
    assert clustered() == at_once
    together = [value for of_file in at_once for value in of_file]
    assert together == sorted(together)


def test_an_order_by_other_columns_is_made_anew():
    table = table_of()
    for by, curve in (
        ("a", "sort"),
        (["a", "b"], "zorder"),
        ("b", "sort"),
        (["b", "a"], "hilbert"),
        ("a", "sort"),
    ):
        assert table.cluster(by, curve=curve).instant, (by, curve)
    assert overlaps(table.snapshot(), ["a"]) == {"a": 1.0}


def test_only_files_that_overlap_are_written_again():
    table = table_of(count=9_000)
    table.cluster("a")
    old = set(table.files()["file_id"].to_pylist())
    new = data(20_000, 900)
    new = new.set_column(1, "a", pa.array(0.5 + np.linspace(0, 0.05, 900)))
    table.bulk_insert(new)
    table.bulk_insert(new.set_column(0, "id", pc.add(new["id"], 5_000)))
    done = table.cluster("a")
    kept = old & set(table.files()["file_id"].to_pylist())
    assert done.instant and len(kept) >= 0.7 * len(old)
    assert done.overlap["a"][1] < done.overlap["a"][0]


def test_small_files_are_joined_though_none_overlap():
    table = mdt.create(MemoryStorage(), data(0, 0).schema, ["id"], options=SMALL)
    for first in range(0, 1_000, 100):
        table.bulk_insert(data(first, 100))
    assert len(table.files()) == 10
    done = table.cluster("id")
    assert (done.groups_replaced, done.groups_made, done.rows) == (10, len(table.files()), 1_000)
    assert len(table.files()) <= 5


def test_partitions_are_clustered_alone_and_may_be_chosen():
    table = table_of(partition_by=["city"])
    other = [row for row in table.files().to_pylist() if row["partition"] == "city=y"]
    assert table.cluster(["a"], partitions="city=x").instant
    assert [row for row in table.files().to_pylist() if row["partition"] == "city=y"] == other
    assert table.cluster("a", partitions=["city=*"]).instant
    assert overlaps(table.snapshot(), ["a"], ["city=x", "city=y"]) == {"a": 1.0}
    with pytest.raises(Invalid, match="there is no partition"):
        table.cluster("a", partitions="city=z")


def test_a_clustered_file_keeps_its_order_when_it_is_rewritten():
    for table_type in trees.TABLE_TYPES:
        table = table_of(table_type=table_type, count=1_000)
        table.cluster("a")
        table.upsert(data(0, 10, seed=5))
        table.compact()
        found = table.scan(columns=["id", "a"]).to_arrow()
        kept = [row["a"] for row in found.to_pylist() if row["id"] >= 10]
        rises = np.diff(kept) >= 0
        assert rises.mean() > 0.99, "only where one file ends and the next begins may it fall"


def test_a_partition_whose_rows_have_all_died_is_left_without_files():
    table = table_of(count=1_200)
    table.delete(data(0, 1_200))
    done = table.cluster("a")
    assert (done.groups_replaced > 1, done.groups_made, done.rows) == (True, 0, 0)
    assert len(table.files()) == 0 and table.scan().count() == 0 and table.check().ok
    assert table.insert(data(0, 5)).inserted == 5


def test_fields_of_structs_and_nulls_are_columns_like_others():
    table = table_of()
    table.cluster(["at.lat", "s"], curve="zorder")
    before = overlaps(table.snapshot(), ["at.lat", "s"])
    assert all(depth < 0.8 * len(table.files()) for depth in before.values())


def test_auto_takes_the_columns_that_queries_filter_on():
    table = table_of(options={"mdt.usage.counts": True})
    with pytest.raises(Invalid, match="no query was counted"):
        table.cluster()
    for n in range(6):
        table.scan(f"b = {n}").count()
        table.scan(f"a > 0.{n} and id > 3").count()
    done = table.cluster("auto")
    assert set(done.by) == {"a", "b"} and done.curve == "hilbert", "files do not overlap in the key"
    assert done.files_read is not None and done.files_read[1] < done.files_read[0]


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
def test_what_cannot_be_clustered_by_is_refused(by, more, message):
    with pytest.raises(Invalid, match=message):
        table_of(count=10).cluster(by, **more)


def test_units_have_no_more_bytes_than_the_option_says():
    table = table_of(options={"mdt.cluster.unit.bytes": 100_000})
    found = units(table.snapshot(), table.options, ["a"], "sort")
    size = {row["file_id"]: row["size"] for row in table.files().to_pylist()}
    groups = table.snapshot().file_groups
    assert len(found) > 1
    assert all(sum(size[name] for name in groups.names(unit.groups)) <= 100_000 for unit in found)
    before = bag(table.scan().to_arrow())
    done = table.cluster("a")
    assert done.overlap["a"][1] < done.overlap["a"][0] and bag(table.scan().to_arrow()) == before


def clustering(table, by=("a",), curve="sort"):
    return Clustering(table.metadata, table.options, by, curve)


def test_units_that_another_writer_changed_are_left_out_with_their_files():
    table = table_of(partition_by=["city"])
    before = table.scan().count()
    other = mdt.open(table.storage)
    with meanwhile(Clustering, lambda: other.upsert(data(0, 1))):
        done = run(table.metadata, clustering(table))
    assert done.attempts == 1 and set(done.record.replaced) == {"city=y"}
    left = done.record.header["left_out"]
    assert left and all(name.startswith("city=x/") for name in left)
    assert all(table.storage.size(name) is None for name in left)
    assert table.scan().count() == before and table.check().ok


def test_where_nothing_is_gained_nothing_is_left():
    table = table_of(count=3_000)
    table.cluster(["a", "b"], curve="zorder")
    assert units(table.snapshot(), table.options, ["a", "b"], "zorder"), (
        "along a curve, ranges of columns meet"
    )
    files = {info.path for info in table.storage.list("")}
    with pytest.raises(NothingGained):
        for _ in steps(table.metadata, clustering(table, ("a", "b"), "zorder")):
            pass
    assert {info.path for info in table.storage.list("")} == files


def test_what_a_clustering_tells_hudi_is_its_plan_and_which_groups_end():
    storage = spread(MOR, "record")
    table = mdt.open(storage)
    ended = {row["file_id"] for row in table.files().to_pylist()}
    done = table.cluster("fare")
    names = sorted(info.path for info in storage.list_dir(paths.HUDI) if done.instant in info.path)
    states = [name.partition(".replacecommit")[2] for name in names]
    assert states == ["", ".inflight", ".requested"]
    told = json.loads(storage.read(names[0]))
    assert told["operationType"] == "CLUSTER" and not told["compacted"]
    assert {name for of in told["partitionToReplaceFileIds"].values() for name in of} == ended
    for stat in itertools.chain(*told["partitionToWriteStats"].values()):
        assert stat["prevCommit"] == "null" and stat["numInserts"] == stat["numWrites"] == 6
    [plan] = list(fastavro.reader(storage.open(names[2])))
    groups = plan["clusteringPlan"]["inputGroups"]
    slices = [one for group in groups for one in group["slices"]]
    assert {one["fileId"] for one in slices} == ended
    assert [group["numOutputFileGroups"] for group in groups] == [1, 1]
    assert any(one["deltaFilePaths"] for one in slices)


def test_check_notices_a_group_that_hudi_takes_for_replaced_and_that_lives(
    monkeypatch,
):
    table = mdt.open(spread(MOR, "record"))
    table.cluster("fare")
    table.upsert(rows([0], 9, 9.0))
    assert table.check().ok
    read, live = commit_log.read, table.files()["file_id"][0].as_py()

    def forged(storage, seq):
        record = read(storage, seq)
        if record is not None and record.replaced:
            record.header["replaced"]["city=x"].append(live)
        return record

    monkeypatch.setattr(commit_log, "read", forged)
    assert any("replaced" in problem.text for problem in table.check().problems)


def test_a_single_file_gets_narrow_row_groups():
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
            written = pq.read_schema(pa.BufferReader(table.storage.read(name)))
            assert not written.field("id").nullable and not written.field("a").nullable
