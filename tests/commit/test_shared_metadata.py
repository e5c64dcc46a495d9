"""Hudi's metadata table of a table that Hudi's writers share: commits of mdt maintain it, and
readers find the files, the bounds and the keys of the table in it.
"""

from __future__ import annotations

import json
import random
from datetime import date
from decimal import Decimal
from functools import partial

import index_files
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hidden import HiddenMetadata
from hudi import HudiTable
from hudi_tables import bag, fixture
from other_writer import OtherWriter
from partition_bounds import require_bounds_of_partitions
from shared_tables import batch, other_table, rows_of

import mdt
from mdt.commit import shared_metadata
from mdt.commit.metadata_partitions import PARTITIONS, partitions_in
from mdt.commit.upgrading import replace_properties
from mdt.hudi import properties
from mdt.hudi.metadata_table_files import LAYOUTS
from mdt.hudi.read.key_indexes import load_key_indexes
from mdt.hudi.read.loading import load_properties
from mdt.hudi.timeline import REQUESTED, Instant, instant_us
from mdt.metadata.files import paths
from mdt.metadata.history.foreign_writers import read_properties
from mdt.metadata.metadata import Metadata
from mdt.stores.storage import LocalStorage, MemoryStorage
from mdt.testing.faulty import Crash, FaultyStorage
from mdt.testing.slow import CountingStorage

ALL = {"files", "column_stats", "record_index"}
OPTIONS = {
    "hoodie.metadata.enable": "true",
    "mdt.hudi.column.stats": "true",
    "mdt.hudi.record.index": "true",
}
FOLDER = ".hoodie/metadata"

versions = pytest.mark.parametrize("version", [6, 9])
kinds = pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])


def shared(version, table_type="MERGE_ON_READ", **adoption):
    """Return the storage of an adopted table, whose other writer keeps a metadata table."""
    storage = MemoryStorage()
    theirs = other_table(storage, table_type, version, scope="table", options=OPTIONS)
    theirs.upsert(batch(list(range(10)), 1))
    assert active_partitions(storage) == ALL
    mdt.adopt(storage, scope="table", **adoption)
    return storage


def active_partitions(storage):
    """Return the partitions that the properties name."""
    return partitions_in(read_properties(storage))


def problems(storage):
    """Return the problems that a reader without mdt's metadata reports: it compares the files, the
    bounds of columns, and the keys with the rows.
    """
    return mdt.open(HiddenMetadata(storage)).check().problems


@versions
@kinds
def test_the_metadata_table_has_the_files_and_keys_after_each_commit_of_two_writers(
    version, table_type
):
    storage = shared(version, table_type)
    draw, t = random.Random(version), mdt.open(storage)
    for turn in range(24):
        ids = draw.sample(range(100), 5)
        city = draw.choice(["Oslo", "Rome", "São Paulo"])
        new_rows, ids_only = batch(ids, turn, city), ids[:3]
        steps = [
            partial(t.upsert, new_rows),
            partial(t.upsert, new_rows),
            partial(t.delete, ids_only),
            partial(t.delete_where, "v < 3"),
            partial(t.cluster, by=["v"]),
            t.clean,
        ]
        if table_type == "MERGE_ON_READ":
            steps.append(t.compact)
        draw.choice(steps)()
        assert active_partitions(storage) >= {"files", "record_index"}
        assert problems(storage) == (), turn
        if draw.random() < 0.4:
            mdt.open(OtherWriter(storage)).upsert(batch(ids, 100 + turn, city))
            assert problems(storage) == (), turn
    assert rows_of(t) == rows_of(mdt.open(HiddenMetadata(storage)))
    assert t.check().ok


@versions
def test_a_commit_is_announced_before_its_log_files(version):
    """Hudi's next writer can then roll back the log files of a crashed mdt writer."""
    storage = CountingStorage(shared(version))
    t = mdt.open(storage)
    made = len(storage.made)
    t.upsert(batch([100], 0))
    puts = [name for _, name in storage.made[made:] if f"put_if_absent {FOLDER}" in name]
    requested, inflight, *logs, done = (name.partition(" ")[2] for name in puts)
    assert requested.endswith(".requested") and inflight.endswith(".inflight")
    assert len(logs) > 2 and all(".log." in name for name in logs) and done.endswith("commit")
    content = storage.read(inflight)
    file_ids = {name.rpartition("/.")[2].partition("_")[0] for name in logs if version == 6}
    stats = json.loads(content or b'{"partitionToWriteStats": {}}')["partitionToWriteStats"]
    assert {stat["fileId"] for stat_list in stats.values() for stat in stat_list} == file_ids


@versions
def test_new_keys_in_many_partitions_need_as_many_round_trips_as_in_one(version):
    """It looks for older commits, reads both properties and both timelines, lists the files, reads
    the schema of a base file and the keys, and puts log files and instants.
    """

    def waits(cities):
        storage = CountingStorage(shared(version))
        t = mdt.open(storage)
        for turn in range(2):
            made = len(storage.made)
            new_rows = batch([100 + 10 * turn + n for n in range(len(cities))], turn)
            t.upsert(new_rows.set_column(1, "city", pa.array(cities)))
        last = storage.made[made:]
        committed = max(
            at for at, operation in last if "put_if_absent .hoodie/.mdt/log" in operation
        )
        return max(at for at, operation in last if FOLDER in operation) - committed

    assert waits(["c"]) == waits([f"c{n}" for n in range(8)]) == 11


@versions
def test_new_keys_go_to_the_file_groups_of_their_hashes(version):
    storage = shared(version)
    t = mdt.open(storage)
    t.upsert(batch(list(range(5, 500)), 7))
    t.delete_where("id < 20")
    records = load_key_indexes(storage).records("record_index")
    assert sorted(records["key"].to_pylist()) == sorted(map(str, range(20, 500)))
    assert problems(storage) == ()


@versions
@kinds
def test_the_next_write_after_a_crash_at_any_change_leaves_a_correct_metadata_table(
    version, table_type
):
    storage, fail_at, crashed = shared(version, table_type), 0, True
    mdt.open(storage).upsert(batch([1, 70], 3))
    while crashed:
        fail_at += 1
        copy = storage.copy()
        try:
            mdt.open(FaultyStorage(copy, fail_at, "before")).upsert(batch([2, 80], 5))
            crashed = False
        except Crash:
            pass
        for is_ours in (True, False):
            after = copy.copy()
            mdt.open(after if is_ours else OtherWriter(after)).upsert(batch([2, 90], 6))
            assert problems(after) == (), fail_at
            assert rows_of(mdt.open(after)) == rows_of(mdt.open(HiddenMetadata(after))), fail_at
    assert fail_at > 15


def pend(storage, version):
    """Leave a pending compaction, as a crashed writer of Hudi does."""
    instant = Instant("20990101000000000", "compaction", REQUESTED)
    storage.create(LAYOUTS[version].path_of(instant), b"")


def forget(storage, version):
    """Remove the last commit from the metadata table, as if its writer did not know the metadata
    table.
    """
    folder = LAYOUTS[version].timeline
    paths = [info.path for info in storage.list_dir(folder)]
    storage.delete(max(path for path in paths if path.endswith("deltacommit")))


def begin_index(storage, version):
    name = "hoodie.table.metadata.partitions.inflight"
    replace_properties(Metadata(storage), {**read_properties(storage), name: "bloom_filters"})


def lose_listing(storage, version):
    stored = {**read_properties(storage), PARTITIONS: "column_stats"}
    replace_properties(Metadata(storage), stored)


def add_file_groups(storage, version):
    """Add a file group with an unexpected name to a partition."""
    name = "other-0000-0_0-1-0_00000000000000001.hfile"
    storage.create(f"{FOLDER}/column_stats/{name}", b"")


def add_listing(storage, version):
    """Add a second file group to the listing, which always has one."""
    storage.create(f"{FOLDER}/files/files-0001-0_0-1-0_00000000000000001.hfile", b"")


def repeat_listing(storage, version):
    """Add another file group with the number of the listing."""
    storage.create(f"{FOLDER}/files/files-0000-1_0-1-0_00000000000000001.hfile", b"")


def damage(storage, version):
    storage.replace(f"{FOLDER}/hoodie.properties", b"")
    storage.delete(f"{FOLDER}/.hoodie/hoodie.properties")


def empty(storage, version):
    """Remove all file groups of a partition."""
    storage.delete_many([info.path for info in storage.list_dir(f"{FOLDER}/column_stats")])


SPOILS = (
    empty,
    pend,
    forget,
    begin_index,
    lose_listing,
    add_file_groups,
    add_listing,
    repeat_listing,
    damage,
)


@versions
@pytest.mark.parametrize("spoil", SPOILS)
def test_a_metadata_table_that_commits_cannot_maintain_is_removed(version, spoil, caplog):
    storage = shared(version)
    t = mdt.open(storage)
    t.upsert(batch([1], 3))
    spoil(storage, version)
    t.upsert(batch([2, 60], 4))
    assert active_partitions(storage) == set() and not storage.list(FOLDER)
    assert "cannot keep Hudi's metadata table" in caplog.text
    assert rows_of(t) == rows_of(mdt.open(HiddenMetadata(storage)))


def test_a_metadata_table_with_the_largest_log_file_number_is_removed():
    storage = shared(6)
    paths = [info.path for info in storage.list_dir(f"{FOLDER}/files")]
    last = max(path for path in paths if ".log." in path)
    head, number, _ = last.rpartition(".log.")
    storage.create(f"{head}{number}999999999_0-9-0", storage.read(last))
    mdt.open(storage).upsert(batch([2, 60], 4))
    assert active_partitions(storage) == set() and problems(storage) == ()


@versions
def test_the_metadata_table_is_removed_after_many_commits_without_a_hudi_writer(
    version, monkeypatch, caplog
):
    storage = shared(version)
    monkeypatch.setattr(shared_metadata, "_LOGS_MAX", 6)
    t = mdt.open(storage)
    for turn in range(4):
        t.upsert(batch([turn], 3))
    assert active_partitions(storage) == ALL
    for turn in range(4):
        t.upsert(batch([turn], 4))
    assert (
        active_partitions(storage) == set() and "no writer of Hudi has compacted it" in caplog.text
    )


@versions
@pytest.mark.parametrize("shift", [0, 3_600_000])
def test_a_metadata_table_with_a_record_index_in_another_time_zone_is_removed(
    version, shift, monkeypatch
):
    storage = shared(version)
    stored = read_properties(storage)
    assert stored.pop("hoodie.table.timeline.timezone") == "UTC"
    replace_properties(Metadata(storage), stored)
    sampled = shared_metadata.sampled_times
    monkeypatch.setattr(
        shared_metadata, "sampled_times", lambda *arguments: pc.add(sampled(*arguments), shift)
    )
    mdt.open(storage).upsert(batch([3, 61], 4))
    # an instant of the index shows that it is UTC
    assert active_partitions(storage) == (set() if shift else ALL)
    assert read_properties(storage)["hoodie.table.timeline.timezone"] == "UTC"


@versions
def test_commits_do_not_warn_if_the_other_writer_has_removed_the_metadata_table(version, caplog):
    storage = shared(version)
    storage.delete_many([info.path for info in storage.list(FOLDER)])
    replace_properties(Metadata(storage), {**read_properties(storage), PARTITIONS: ""})
    t = mdt.open(storage)
    t.upsert(batch([3, 61], 4))
    assert "metadata table" not in caplog.text and t.check().ok


def test_a_metadata_table_with_partition_names_that_no_folder_can_have_is_removed(tmp_path):
    storage = shared(9)
    local = LocalStorage(str(tmp_path / "table"))
    for info in storage.list(""):
        local.create(info.path, storage.read(info.path))
    names = f"column_stats,files,record_index,{'漢' * 100},../a,hoodie.properties"
    replace_properties(Metadata(local), {**read_properties(local), PARTITIONS: names})
    mdt.open(local).upsert(batch([3, 61], 4))
    assert active_partitions(local) == set() and problems(local) == ()


@pytest.mark.parametrize(
    "name", ["cow_v9_txns_simple_overwrite", "mor_avro_v9_txns_simple_overwrite"]
)
def test_bounds_of_partitions_of_hudis_own_table_contain_our_rows(name, tmp_path):
    path = fixture(name, tmp_path)
    storage = LocalStorage(str(path))
    stored = read_properties(storage) | {PARTITIONS: "column_stats,files,partition_stats"}
    storage.replace(paths.PROPERTIES, properties.encode(stored))
    t = mdt.adopt(path)
    row = t.scan(limit=1).to_arrow()
    amount = row.schema.field("amount")
    highest = pa.array([Decimal("99999.99")], amount.type)
    t.upsert(row.set_column(row.schema.get_field_index("amount"), amount, highest))
    assert active_partitions(storage) >= {"files", "column_stats", "partition_stats"}
    assert problems(storage) == ()
    by_hudi_rs = pa.Table.from_batches(map(pa.record_batch, HudiTable(str(path)).read()))
    assert bag(by_hudi_rs.select(t.schema.names)) == rows_of(t)
    assert require_bounds_of_partitions(storage, t) > 20


@versions
def test_check_reports_instants_that_the_listing_lacks_and_repair_removes_it(version):
    storage = shared(version)
    t = mdt.open(storage)
    t.upsert(batch([1, 71], 3))
    forget(storage, version)
    [problem] = mdt.open(storage).check().problems
    assert "lacks instants" in problem.text
    assert mdt.repair(storage).ok and active_partitions(storage) == set()
    assert mdt.open(storage).check().ok


SECONDARY = {"secondary_index_merchant_idx", "secondary_index_txn_date_idx"}
SECONDARY_TABLES = [
    f"{kind}_v9_txns_{form}_meta" for kind in ("cow", "mor_avro") for form in ("nonpart", "simple")
]


@pytest.mark.parametrize("kind", ["cow", "mor_avro"])
def test_check_reports_keys_that_indexes_of_hudi_lack_and_repair_removes_them(kind, tmp_path):
    path = fixture(f"{kind}_v9_txns_simple_meta", tmp_path)
    set_instants_in_utc(path)
    t = mdt.adopt(path)
    assert t.check().ok
    [key] = t.scan(columns=t.definition.key, limit=1).to_arrow().to_pylist()
    [key] = key.values()
    index_files.compact(path, "record_index", rename={key: "never"})
    lacking, unknown = mdt.open(path).check().problems
    assert repr(key) in lacking.text and "'never'" in unknown.text
    assert {lacking.path, unknown.path} == {f"{FOLDER}/record_index"}
    assert mdt.repair(path).ok and active_partitions(LocalStorage(str(path))) == set()
    assert mdt.open(path).check().ok


def changed(rows, draw, **columns):
    """Return rows with values of columns drawn from lists."""
    for name, values in columns.items():
        place = rows.schema.get_field_index(name)
        drawn = [draw.choice(values) for _ in range(len(rows))]
        rows = rows.set_column(place, rows.schema.field(name), [pa.array(drawn, rows[name].type)])
    return rows


def set_instants_in_utc(folder):
    """Change the record index of a fixture, whose instants were in a zone with DST."""
    storage = LocalStorage(str(folder))
    table = shared_metadata._load(storage, load_properties(storage))
    known = {instant_us(instant) // 1000 for instant in table.data.completed}

    def change(key, record):
        location = record["recordIndexMetadata"][1]
        times = {location["instantTime"] - hours * 3_600_000 for hours in (5, 6)}
        [location["instantTime"]] = times & known
        return record

    index_files.compact(folder, "record_index", change)


@pytest.mark.parametrize("name", SECONDARY_TABLES)
def test_secondary_indexes_of_hudis_own_table_have_the_values_of_our_rows(name, tmp_path):
    path, draw = fixture(name, tmp_path), random.Random(name)
    storage = LocalStorage(str(path))
    set_instants_in_utc(path)
    assert mdt.adopt(path, dry_run=True).lost_partitions == ()
    t = mdt.adopt(path)
    assert t.definition.scope == "table"
    everything = t.scan().to_arrow()
    merchants = ["Uber", "a$b", "\\", "\0", "", "S\u00e3o $ \\ Paulo", None]
    days = [date(2024, 1, 15), date(1969, 12, 31), None]
    for turn in range(8):
        rows = everything.take(draw.sample(range(len(everything)), 5))
        rows = changed(rows, draw, merchant_name=merchants, txn_date=days, txn_ts=[10**15 + turn])
        ids = rows["txn_id"].to_pylist()
        keys = " or ".join(f"txn_id = '{key}'" for key in ids[:2])
        steps = [partial(t.upsert, rows)] * 4
        steps += [partial(t.delete_where, keys), partial(t.cluster, by=["txn_ts"]), t.clean]
        if name.startswith("mor"):
            steps.append(t.compact)
        draw.choice(steps)()
        assert active_partitions(storage) >= SECONDARY, turn
        assert problems(storage) == () and t.check().ok, turn
    ours = bag(t.scan().to_arrow())
    theirs = mdt.open(HiddenMetadata(storage))
    assert bag(theirs.scan().to_arrow()) == ours
    for value in merchants:
        of_value = theirs.scan("merchant_name <=> :value", params={"value": value})
        expected = [row for row in t.scan().to_arrow().to_pylist() if row["merchant_name"] == value]
        assert bag(of_value.to_arrow()) == sorted(map(repr, expected))
        reasons = {note.index: note.reason for note in of_value.explain().indexes}
        assert reasons["secondary_index_merchant_idx"] == "used"


def test_a_secondary_index_without_a_version_is_distributed_by_its_keys(tmp_path):
    path = fixture("mor_avro_v8_trips_8i3u1d", tmp_path)
    file = path / ".hoodie/.index_defs/index.json"
    content = json.loads(file.read_text())
    definition = content["indexDefinitions"]["secondary_index_rider_idx"]
    assert definition.pop("version", "V1") == "V1"
    file.write_text(json.dumps(content))
    indexes = load_key_indexes(LocalStorage(str(path)))
    assert indexes.secondary["rider"].is_known
    keys = indexes.records("secondary_index_rider_idx")["key"].to_pylist()
    assert indexes.secondary["rider"].hashed(keys) == keys != []


@pytest.mark.parametrize(
    "change",
    [
        lambda definition: definition.update(version="V3"),
        lambda definition: definition.update(sourceFields=["merchant_name", "txn_id"]),
        lambda definition: definition.update(sourceFields=["amount"]),
        lambda definition: definition.update(sourceFields=["txn_metadata.merchant"]),
    ],
)
def test_a_metadata_table_with_a_secondary_index_of_an_unknown_form_is_removed(change, tmp_path):
    path = fixture("cow_v9_txns_nonpart_meta", tmp_path)
    set_instants_in_utc(path)
    file = path / ".hoodie/.index_defs/index.json"
    content = json.loads(file.read_text())
    change(content["indexDefinitions"]["secondary_index_merchant_idx"])
    file.write_text(json.dumps(content))
    lost = mdt.adopt(path, dry_run=True).lost_partitions
    assert lost == ("secondary_index_merchant_idx",)
    t = mdt.adopt(path)
    t.upsert(t.scan(limit=1).to_arrow())
    assert active_partitions(LocalStorage(str(path))) == set()


@pytest.mark.parametrize("name", ["cow_v9_txns_simple_meta", "mor_avro_v9_txns_simple_meta"])
def test_a_partitioned_record_index_has_our_keys_in_new_partitions_too(name, tmp_path):
    path, draw = fixture(name, tmp_path), random.Random(name)
    set_instants_in_utc(path)
    index_files.part_record_index(path)
    storage = LocalStorage(str(path))
    kept = active_partitions(storage) - SECONDARY
    stored = read_properties(storage) | {PARTITIONS: ",".join(sorted(kept))}
    storage.replace(paths.PROPERTIES, properties.encode(stored))
    definitions = path / ".hoodie/.index_defs/index.json"
    text = definitions.read_text()
    definitions.write_text(text.replace('"isPartitioned" : "false"', '"isPartitioned" : "true"'))
    t = mdt.adopt(path)
    assert t.definition.scope == "partition"
    everything = t.scan().to_arrow()
    for turn in range(8):
        rows = everything.take(draw.sample(range(len(everything)), 5))
        regions = ["eu", "us", "north-east_1", "a b-c%d"]
        rows = changed(rows, draw, region=regions, txn_ts=[10**15 + turn])
        where = f"txn_id = '{rows['txn_id'][0]}'"
        draw.choice([partial(t.upsert, rows)] * 4 + [partial(t.delete_where, where)])()
        assert active_partitions(storage) == kept, turn
        assert problems(storage) == () and t.check().ok, turn
    theirs = mdt.open(HiddenMetadata(storage))
    rows = theirs.scan(columns=[*t.schema.names, "_hoodie_record_key"]).to_arrow()
    assert {"north-east_1", "a b-c%d"} <= {*rows["region"].to_pylist()}
    for key in set(rows["_hoodie_record_key"].to_pylist()):
        scan = theirs.scan(f"_hoodie_record_key = '{key}'", rows.schema.names)
        expected = rows.filter(pc.equal(rows["_hoodie_record_key"], key))
        assert bag(scan.to_arrow()) == bag(expected)
        assert {note.index: note.reason for note in scan.explain().indexes}[
            "record_index"
        ] == "used"


@pytest.mark.parametrize(
    ("scope", "lost"), [("table", ()), ("partition", tuple(sorted(SECONDARY)))]
)
def test_secondary_indexes_are_not_kept_if_keys_are_unique_per_partition_only(
    scope, lost, tmp_path
):
    path = fixture("cow_v9_txns_simple_meta", tmp_path)
    set_instants_in_utc(path)
    index_files.part_record_index(path)
    assert mdt.adopt(path, scope=scope, dry_run=True).lost_partitions == lost
    t = mdt.adopt(path, scope=scope)
    rows = t.scan(limit=1).to_arrow()
    place = rows.schema.get_field_index("region")
    t.upsert(rows.set_column(place, rows.schema.field(place), [pa.array(["elsewhere"])]))
    assert bool(active_partitions(LocalStorage(str(path))) & SECONDARY) == (not lost)
    assert problems(LocalStorage(str(path))) == () and t.check().ok


class CrashingAtTheEnd(FaultyStorage):
    """Crashes before it writes the completed instant of the table."""

    def put_if_absent(self, path, data):
        if path.endswith(".deltacommit") and FOLDER not in path:
            self.crashed = True
            raise Crash
        return super().put_if_absent(path, data)


def test_a_metadata_table_with_an_overtaken_commit_is_removed():
    lock = {"mdt.lock.provider": "file_system", "mdt.services.auto": False}
    storage = shared(6, options=lock)
    with pytest.raises(Crash):
        mdt.open(CrashingAtTheEnd(storage)).upsert(batch([1], 5))
    storage.delete(paths.HUDI_LOCK)
    overtaking = mdt.open(OtherWriter(storage))
    overtaking.metadata.watch._begun = ()
    overtaking.upsert(batch([1, 2], 7))
    assert active_partitions(storage)
    ours = mdt.open(storage)
    ours.refresh()
    assert active_partitions(storage) == set()
    assert rows_of(mdt.open(HiddenMetadata(storage))) == rows_of(ours) and ours.check().ok
