"""Hudi's record index, which commits of mdt maintain: it has the file group of exactly the live
keys.
"""

import json
import os
import random

import numpy as np
import pyarrow as pa
import pytest
from counting import count
from metadata_tables import publish_again
from refusals import refused
from worlds import MOR, survivors

import mdt
from mdt.commit import (
    hudi_column_stats,
    hudi_metadata,
    hudi_record_index,
    metadata_partitions,
)
from mdt.commit.metadata_partitions import PARTITIONS
from mdt.errors import Corrupt, Invalid, Unsupported
from mdt.hudi import hfile_writing
from mdt.hudi.index_definitions import DEFINITIONS
from mdt.hudi.metadata_table_files import GROUPS, RECORD_INDEX
from mdt.hudi.read import hfile_entries, metadata_table
from mdt.hudi.read.key_indexes import index_partitions, load_key_indexes
from mdt.metadata import references
from mdt.metadata.history.foreign_writers import read_properties
from mdt.metadata.keys import key_changes as key_changes_module
from mdt.metadata.keys.key_changes import key_changes, live_locations
from mdt.metadata.metadata import Metadata
from mdt.services.checking import hudi_indexes, hudi_listing
from mdt.stores.storage import MemoryStorage

FOLDER = ".hoodie/metadata/record_index"
ON = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "mdt.hudi.column.stats": "false",
    "mdt.services.auto": "false",
}

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])
KINDS = [
    (kind, index, by)
    for kind in ("COPY_ON_WRITE", "MERGE_ON_READ")
    for index in ("record", "bloom")
    for by in ([], ["city"])
]

STEPS = [
    *["upsert"] * 3,
    "delete",
    "bulk",
    "compact",
    "cluster",
    "tidy",
    "drop",
    "set",
    "overwrite",
]
STEPS += ["restore", "empty"]

LONG = pa.table({"id": ["k" * 40_000], "city": ["x"], "n": [1]}, schema=SCHEMA)
"""A row whose key is too long for the index."""


def rows(rng, count_):
    ids = rng.sample(range(60), count_)
    return pa.table(
        {
            "id": [f"k{n}" for n in ids],
            "city": [rng.choice("xyz") for _ in ids],
            "n": [rng.randrange(9) for _ in ids],
        },
        schema=SCHEMA,
    )


def step(table, rng):
    """Run a random operation and return its name."""
    name = rng.choice(STEPS)
    if name == "upsert":
        table.upsert(rows(rng, rng.randrange(1, 20)))
    elif name == "delete":
        table.delete(rows(rng, 8))
    elif name == "bulk":
        table.insert_overwrite(rows(rng, 12))
    elif name == "compact":
        table.compact()
    elif name == "cluster":
        table.cluster(["n"])
    elif name == "tidy":
        table.tidy()
    elif name == "drop" and table.definition.partition_by:
        table.delete_partition({"city": rng.choice("xyz")})
    elif name == "set":
        table.update_where({"n": "7"}, "n < 4")
    elif name == "overwrite":
        table.insert_overwrite_table(rows(rng, 30))
    elif name == "restore":
        table.restore(rng.randrange(max(0, table.snapshot().seq - 4), table.snapshot().seq + 1))
    elif name == "empty":
        table.delete_where("n = 5")
    return name


def located(tables, *, by_partition=False):
    """Return key -> (partition, file id), or (partition, key) -> (partition, file id)."""
    locations = {}
    for table in tables:
        columns = table.select(["key", "partition", "file_id"]).to_pydict().values()
        for key, *place in zip(*columns, strict=True):
            key = (place[0], key) if by_partition else key
            assert key not in locations, f"{key} is in two file groups"
            locations[key] = tuple(place)
    return locations


def new_table(kind, index, by, scope="table", **options):
    storage = MemoryStorage()
    return storage, mdt.create(
        storage,
        SCHEMA,
        ["id"],
        table_type=kind,
        partition_by=by,
        scope=scope,
        key_index=index,
        indexes=["bitmap(n)"] if options.get("mdt.hudi.secondary.index") else [],
        options={"mdt.small.file.bytes": 10_000, **options},
    )


def by_hudi(storage):
    """Return key -> (partition, file id) in the index, or None without an index."""
    indexes = load_key_indexes(storage)
    if indexes is None:
        return None
    return located([indexes.records(RECORD_INDEX)], by_partition=indexes.is_partitioned)


def by_us(table):
    by_partition = hudi_record_index.is_by_partition(table.definition)
    return located(live_locations(table.metadata, table.snapshot()), by_partition=by_partition)


def groups_in(storage):
    """Return the partitions of the table that have a file group in the index."""
    names = (info.path.rpartition("/")[2].lstrip(".") for info in storage.list(FOLDER))
    ids = {name.partition("_")[0] for name in names}
    return {*index_partitions([id[: -len("-0000-0")] for id in ids if id != "hoodie"])}


def partitions(storage):
    return (read_properties(storage) or {}).get(PARTITIONS, "").split(",")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("kind", "index", "by"), KINDS)
def test_changes_add_up_to_the_location_of_each_key(kind, index, by, seed):
    rng = random.Random(seed)
    _, table = new_table(kind, index, by, **{"mdt.services.auto": seed % 2 == 0})
    locations, seen, steps = {}, 0, []
    for _ in range(14):
        steps.append(step(table, rng))
        newest = table.snapshot().seq
        for seq in range(seen + 1, newest + 1):
            record = table.metadata.record(seq)
            changes = key_changes(
                table.metadata, record, table.metadata.state(seq), by_partition=False
            )
            deleted = changes.deleted["key"].to_pylist()
            assert not set(deleted) - locations.keys(), steps
            locations = {key: place for key, place in locations.items() if key not in deleted}
            moved = located([changes.located])
            assert all(locations.get(key) != place for key, place in moved.items()), steps
            locations |= moved
            count("records whose keys moved", bool(moved))
            count("records that removed keys", bool(deleted))
        seen = newest
        assert locations == by_us(table), steps
        assert locations.keys() == set(table.scan(columns=["id"]).to_arrow()["id"].to_pylist()), (
            steps
        )


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize(("kind", "index", "by"), KINDS[::3])
def test_the_index_has_the_file_group_of_each_key_after_every_commit(kind, index, by, version):
    rng = random.Random(version)
    storage, table = new_table(kind, index, by, **ON, **{"mdt.table.version": version})
    steps = []
    for _ in range(40):
        steps.append(step(table, rng))
        if rng.random() < 0.1:
            table.clean(retain_commits=2)
        locations = by_hudi(storage)
        if table.snapshot().seq:
            assert locations == by_us(table), steps
        count("states of the record index")
    assert partitions(storage) == ["files", "record_index"]
    assert table.check().ok
    bases = [i.path for i in storage.list(FOLDER) if i.path.endswith(".hfile")]
    assert bases and all("00000000000000" not in path for path in bases), "it was not compacted"


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_partitioned_index_has_the_file_group_of_each_key_after_every_commit(kind):
    rng = random.Random(kind)
    options = {**ON, "mdt.table.version": 9, "mdt.hudi.secondary.index": True}
    storage, table = new_table(kind, "record", ["city"], "partition", **options)
    steps, cities = [], {"city=x", "city=y", "city=z"}
    for number in range(60):
        steps.append(step(table, rng))
        if number % 20 == 19:  # the new partitions become empty
            cities.add(f"city=n-{number}")
            table.upsert([{"id": f"k{n}", "city": f"n-{number}", "n": n} for n in range(9)])
            table.delete_where(f"city = 'n-{number}'")
        if rng.random() < 0.1:
            table.clean(retain_commits=6)
        if table.snapshot().seq:
            assert by_hudi(storage) == by_us(table), steps
        count("states of the record index of each partition")
    assert partitions(storage) == ["files", "record_index"], "no secondary index"
    assert groups_in(storage) == cities
    assert table.check().ok
    bases = [i.path for i in storage.list(FOLDER) if i.path.endswith(".hfile")]
    assert any("city%3Dx" in path and "00000000000000" not in path for path in bases), (
        "it was not compacted"
    )


def test_a_partitioned_index_that_lacks_a_partition_is_rebuilt(caplog):
    options = {**ON, "mdt.table.version": 9}
    storage, table = new_table(MOR, "record", ["city"], "partition", **options)
    table.upsert(rows(random.Random(1), 20))
    table.upsert([{"id": "k1", "city": "w", "n": 1}])
    assert groups_in(storage) == {f"city={city}" for city in "wxyz"}
    table.delete_partition({"city": "w"})
    storage.delete_many([info.path for info in storage.list(FOLDER) if "city%3Dx" in info.path])
    table.upsert([{"id": "k2", "city": "y", "n": 1}])
    assert by_hudi(storage) != by_us(table), "a commit to other partitions does not notice it"
    table.upsert([{"id": "k99", "city": "x", "n": 1}])
    assert by_hudi(storage) == by_us(table)
    assert "the record index lacks a partition" in caplog.text


def test_a_table_without_files_gets_a_partitioned_index_with_its_first_rows():
    own = {"mdt.table.version": 9}
    storage, table = new_table(MOR, "record", ["city"], scope="partition", **ON, **own)
    table.alter(add={"m": pa.int64()})
    assert partitions(storage) == [""] and table.check().ok
    table.upsert(rows(random.Random(1), 9).append_column("m", pa.nulls(9, pa.int64())))
    assert "record_index" in partitions(storage) and by_hudi(storage) == by_us(table)
    assert table.check().ok


def test_a_partitioned_index_is_left_out_if_a_partition_has_a_long_path():
    options = {**ON, "mdt.table.version": 9}
    storage, table = new_table(MOR, "record", ["city"], "partition", **options)
    table.upsert(rows(random.Random(1), 20))
    assert partitions(storage) == ["files", "record_index"]
    table.upsert([{"id": "k1", "city": "w" * 170, "n": 1}])
    assert partitions(storage) == ["files"] and table.check().ok


def test_hashes_that_differ_in_their_last_bits_only_are_of_different_keys():
    hi = np.array([5, 7, 7, 7, 9], np.uint64)
    order, run = key_changes_module._in_runs(hi, np.array([1, 2, 3, 2, 1], np.uint16))
    assert [order[run == number].tolist() for number in range(4)] == [[0], [1, 3], [2], [4]]


def test_hudi_finds_the_definition_of_the_index():
    storage, table = new_table(MOR, "record", [], **ON)
    table.upsert(rows(random.Random(1), 9))
    stored = read_properties(storage)
    definitions = json.loads(storage.read(stored["hoodie.table.index.defs.path"]))
    assert definitions["indexDefinitions"].keys() == {"record_index"}
    storage.delete(DEFINITIONS)
    table.upsert(rows(random.Random(2), 9))
    assert json.loads(storage.read(DEFINITIONS)) == definitions


def test_tables_whose_keys_may_repeat_cannot_have_the_index():
    arguments = {"partition_by": "city", "key": "id", "options": ON}
    message = "needs keys that are unique: a key may be live in several partitions"
    refused(message, mdt.create, MemoryStorage(), SCHEMA, kind=Invalid, **arguments)
    repeats = {"key": "id", "options": {**ON, "mdt.keys.repeat": True}}
    message = "needs keys that are unique: a key may be live several times"
    refused(message, mdt.create, MemoryStorage(), SCHEMA, kind=Invalid, **repeats)
    arguments["options"] = {**ON, "hoodie.metadata.enable": False}
    table = mdt.create(MemoryStorage(), SCHEMA, **arguments)
    options = {"mdt.hudi.metadata": True}
    refused("needs keys that are unique", table.alter, options=options, kind=Invalid)
    assert not table.definition.parsed.hudi_metadata


def test_the_index_is_built_and_removed_by_the_option_and_the_number_of_rows(monkeypatch):
    storage, table = new_table(MOR, "record", [])
    rng = random.Random(3)
    table.upsert(rows(rng, 9))
    table.alter(options={"mdt.hudi.metadata": True, "mdt.hudi.record.index": True})
    assert by_hudi(storage) == by_us(table)
    with monkeypatch.context() as patch:
        patch.setattr(hudi_record_index, "HUDI_RECORD_INDEX_ROWS_MAX", 5)
        table.upsert(rows(rng, 9))
        assert partitions(storage) == ["files"] and not storage.list(FOLDER)
    table.alter(options={"mdt.small.file.bytes": 20_000})
    assert by_hudi(storage) == by_us(table)
    table.alter(options={"mdt.hudi.record.index": False})
    assert partitions(storage) == ["files"] and not storage.list(FOLDER)


def test_a_table_gets_the_index_only_if_it_will_not_lose_it_soon(monkeypatch):
    storage, table = new_table(MOR, "record", [], **ON)
    monkeypatch.setattr(hudi_record_index, "HUDI_RECORD_INDEX_ROWS_MAX", 10)
    ids = pa.table({"id": list("abcdefghijk"), "city": ["x"] * 11, "n": [1] * 11}, schema=SCHEMA)
    sizes, states = iter((20_000, 30_000)), []

    def alter():
        table.alter(options={"mdt.small.file.bytes": next(sizes)})

    for change in (
        lambda: table.upsert(ids[:8]),
        lambda: table.upsert(ids[:10]),
        lambda: table.upsert(ids),
        lambda: table.delete(ids[9:]),
        alter,
        lambda: table.delete(ids[8:]),
        alter,
    ):
        change()
        states.append("record_index" in partitions(storage))
    assert states == [True, True, False, False, False, False, True]
    assert by_hudi(storage) == by_us(table)


@pytest.mark.parametrize("partition", ["files", "column_stats"])
def test_the_index_is_left_out_while_a_key_is_too_long_for_it(partition, monkeypatch):
    """The other partitions of the metadata table are kept."""
    monkeypatch.setattr(hudi_metadata, "_COMMITS_PER_TRY", 1)
    statistics = {"mdt.hudi.column.stats": partition == "column_stats"}
    storage, table = new_table(MOR, "record", [], **{**ON, **statistics})
    table.upsert(rows(random.Random(1), 9))
    table.upsert(LONG)
    assert partitions(storage) == sorted({partition, "files"}) and table.check().ok
    table.delete(LONG)
    table.upsert(rows(random.Random(2), 9))
    assert by_hudi(storage) == by_us(table)


def test_few_commits_retry_to_build_an_index_that_was_left_out(monkeypatch):
    """A retry reads all keys. If it fails, the other partitions are not rebuilt."""
    storage, table = new_table(MOR, "record", [], **ON)
    for number in range(2):
        table.upsert(rows(random.Random(number), 9))
    table.upsert(LONG)
    entries, tried_seqs = hudi_record_index.snapshot_entries, []

    def counted(metadata, snapshot):
        tried_seqs.append(snapshot.seq + 1)
        return entries(metadata, snapshot)

    monkeypatch.setattr(hudi_record_index, "snapshot_entries", counted)
    monkeypatch.setattr(hudi_metadata, "_COMMITS_PER_TRY", 5)
    base = storage.list(".hoodie/metadata/files")[0].path
    for number in range(7):
        table.upsert(rows(random.Random(number), 9))
    assert tried_seqs == [5, 10]
    assert storage.size(base) is not None
    table.alter(options={"mdt.small.file.bytes": 20_000})
    assert tried_seqs == [5, 10, 11] and partitions(storage) == ["files"]
    table.delete(LONG)
    table.upsert(rows(random.Random(1), 9))
    assert partitions(storage) == ["files"]
    for number in range(2):
        table.upsert(rows(random.Random(number), 9))
    assert tried_seqs == [5, 10, 11, 15]
    assert by_hudi(storage) == by_us(table) and table.check().ok


def test_a_stored_key_that_cannot_be_written_again_does_not_stop_commits(monkeypatch):
    storage, table = new_table(MOR, "record", [], **ON)
    table.upsert(rows(random.Random(0), 9))
    [base] = [info.path for info in storage.list(FOLDER) if info.path.endswith(".hfile")]
    columns = [pa.array([text], pa.large_binary()) for text in ("", "value")]
    with monkeypatch.context() as patch:
        patch.setattr(hfile_writing, "_require_order", lambda keys: None)
        empty = pa.record_batch(columns, ["key", "value"])
        storage.replace(base, GROUPS[RECORD_INDEX].base_file(empty, "20240229120000123"))
    for number in range(1, 12):
        assert table.upsert(rows(random.Random(number), 9)).warnings == ()
    assert storage.size(base) is None, "it was neither merged nor rebuilt"
    assert by_hudi(storage) == by_us(table)


def test_a_slice_that_takes_too_much_memory_is_rebuilt(monkeypatch):
    storage, table = new_table(MOR, "record", [], **ON)
    for number in range(10):
        table.upsert(rows(random.Random(number), 9))
    names = [info.path for info in storage.list(FOLDER) if ".log." in info.path]
    [base] = [info.path for info in storage.list(FOLDER) if info.path.endswith(".hfile")]
    schema = GROUPS[RECORD_INDEX].schema
    parts = metadata_table.load_entries(storage, base, names, schema)
    sizes = [part.nbytes for part in parts]
    monkeypatch.setattr(metadata_table, "HFILE_ENTRIES_BYTES_MAX", sum(sizes) - 1)
    assert max(sizes) < sum(sizes) - 1, "each part is small enough"
    arguments = storage, base, names, schema
    refused("has more than", metadata_table.load_entries, *arguments, kind=Unsupported)
    assert table.upsert(rows(random.Random(10), 9)).warnings == ()
    assert by_hudi(storage) == by_us(table)


def test_check_reports_nothing_while_another_writer_commits(monkeypatch):
    storage, table = new_table(MOR, "record", ["city"], **ON)
    table.upsert(rows(random.Random(1), 9))
    load, waiting = hudi_listing.load_timeline, [mdt.open(storage)]

    def load_late(*arguments):
        for other in waiting:
            other.upsert(rows(random.Random(2), 40))
            waiting.clear()
        return load(*arguments)

    monkeypatch.setattr(hudi_listing, "load_timeline", load_late)
    assert table.check().ok and not waiting


def test_check_reports_nothing_if_another_process_removes_the_metadata_table_meanwhile(monkeypatch):
    storage, table = new_table(MOR, "record", ["city"], **ON)
    table.upsert(rows(random.Random(1), 9))
    hudi_files = references.hudi_files

    def load_and_remove(*arguments):
        metadata_partitions.remove_metadata_table(Metadata(storage))
        return hudi_files(*arguments)

    monkeypatch.setattr(references, "hudi_files", load_and_remove)
    assert table.check().ok and by_hudi(storage) is None


def test_publishing_again_writes_the_same_bytes():
    _, table = new_table(MOR, "record", [], **ON)
    rng = random.Random(4)
    for _ in range(13):
        table.upsert(rows(rng, 9))
        table.delete(rows(rng, 4))
    assert publish_again(table) >= 5


def test_check_reports_missing_and_extra_keys_and_repair_removes_the_index():
    storage, table = new_table(MOR, "record", [], **ON)
    table.upsert(rows(random.Random(1), 9))
    table.upsert(rows(random.Random(2), 9))
    [first, *_] = sorted(by_us(table))
    deletion = hfile_entries.deletions(pa.array([first.encode()], pa.large_binary()))
    log = max(info.path for info in storage.list(FOLDER) if ".log." in info.path)
    spoiled = GROUPS[RECORD_INDEX].log_file(deletion, table.snapshot().last_instant)
    stored = storage.read(log)
    storage.replace(log, stored + spoiled)
    [problem] = table.check().problems
    assert problem.text == f"the record index of Hudi has rows without a record: {first!r}"
    storage.replace(log, stored)
    assert table.check().ok
    table.delete({"id": [first]})
    deleting = max(info.path for info in storage.list(FOLDER) if ".log." in info.path)
    storage.replace(deleting, stored)
    [problem] = table.check().problems
    assert problem.text == f"the record index of Hudi has records without a row: {first!r}"
    report = table.repair()
    assert not report.lost and table.check().ok
    table.upsert(rows(random.Random(3), 9))
    assert by_hudi(storage) == by_us(table)


@pytest.mark.nightly
def test_the_metadata_table_does_not_grow_with_the_number_of_commits():
    """It never has more than 1.3 times its largest size during the first tenth of the commits."""
    options = {**ON, "mdt.hudi.column.stats": True, "mdt.table.version": 9}
    storage, table = new_table(MOR, "record", [], **options)
    peaks, commits = [0] * 10, int(os.environ.get("MDT_HUDI_COMMITS", "1500"))
    for number in range(commits):
        added = [{"id": f"{kind}{number % 50}", "city": "x", "n": number} for kind in "an"]
        table.upsert(added)
        if number % 10 == 9:
            table.delete([{"id": f"n{n}"} for n in range(50)])
            table.compact()
        if number % 50 == 49:
            table.clean(retain_commits=10)
        stored_bytes = sum(info.size for info in storage.list(".hoodie/metadata"))
        tenth = 10 * number // commits
        peaks[tenth] = max(peaks[tenth], stored_bytes)
        count("sizes of the metadata table")
    assert max(peaks) <= 1.3 * peaks[0], peaks
    assert by_hudi(storage) == by_us(table) and table.check().ok


@pytest.mark.parametrize(
    ("commits", "version", "scope"),
    [
        (0, 6, "table"),
        (10, 6, "table"),
        (1, 9, "table"),
        (10, 9, "table"),
        (0, 9, "partition"),
        (1, 9, "partition"),
        pytest.param(10, 9, "partition", marks=pytest.mark.nightly),
    ],
)
def test_a_crash_at_any_change_of_a_commit_is_repaired_by_the_next_writer(commits, version, scope):
    def start():
        options = {**ON, "mdt.table.version": version}
        storage, table = new_table(MOR, "record", ["city"], scope, **options)
        for number in range(commits):
            table.upsert(rows(random.Random(number), 4))
        return storage

    def run(storage):
        table = mdt.open(storage)
        if commits == 1 and scope == "partition":  # with a new partition
            more = rows(random.Random(2), 9).set_column(1, "city", pa.array([*"aaaaxxyyy"]))
            table.upsert(more)
        elif commits:
            table.delete(rows(random.Random(1), 30))
        else:
            table.upsert(rows(random.Random(2), 9))

    for where, survivor in survivors(start, run):
        mdt.open(survivor).abort()
        table = mdt.open(survivor)
        table.upsert(rows(random.Random(3), 9))
        assert by_hudi(survivor) == by_us(table), where
        assert table.check().ok, where
        count("crashes of commits with a record index")


def test_an_index_is_left_out_if_a_commit_moves_too_many_keys(monkeypatch):
    storage, table = new_table(MOR, "record", [], **ON)
    table.upsert(rows(random.Random(1), 9))
    monkeypatch.setattr(key_changes_module, "LOCATIONS_BYTES_MAX", 2_000)
    table.upsert(rows(random.Random(2), 9))
    assert partitions(storage) == ["files", "record_index"]
    table.upsert(rows(random.Random(3), 60))
    assert partitions(storage) == ["files"] and table.check().ok


def test_the_index_is_kept_if_another_partition_cannot_be_built(monkeypatch):
    storage, table = new_table(MOR, "record", [], **{**ON, "mdt.hudi.column.stats": True})
    table.upsert(rows(random.Random(1), 9))

    def fail(*arguments):
        raise Corrupt("statistics are damaged")

    monkeypatch.setattr(hudi_column_stats, "record_entries", fail)
    table.upsert(rows(random.Random(2), 9))
    assert partitions(storage) == ["files", "record_index"]
    assert by_hudi(storage) == by_us(table)


@pytest.mark.parametrize("version", [6, 9])
def test_a_table_whose_rows_were_deleted_before_the_index_was_made_can_be_checked(version):
    own = {"mdt.table.version": version, "mdt.hudi.metadata": False}
    storage, table = new_table(MOR, "record", [], **own)
    table.upsert(rows(random.Random(1), 9))
    table.delete_where("true")
    table.alter(options=ON)
    table.insert_overwrite(rows(random.Random(2), 0))
    assert "record_index" in partitions(storage) and by_hudi(storage) == {}
    assert table.check().ok


def test_check_distinguishes_partitions_and_keys_with_slashes():
    rows = pa.table({"partition": ["a", "a/b"], "key": ["b/c", "c"]})
    assert len(hudi_indexes._with_partition(rows).unique()) == 2


def test_check_accepts_an_index_of_a_table_with_only_deleted_keys():
    options = {**ON, "mdt.delete.keeps.ordering": "true"}
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"], ordering="n", version=6, options=options)
    table.delete({"id": ["a"], "n": [1]})
    report = table.check()
    assert report.ok and not report.warnings
    assert RECORD_INDEX in read_properties(table.storage)["hoodie.table.metadata.partitions"]
    table.upsert([{"id": "b", "city": "x", "n": 1}])
    assert table.check().ok
