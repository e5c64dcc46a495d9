"""The Iceberg metadata of our commits: requirements of the specification, and damage."""

from __future__ import annotations

import json
import os
import random
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pytest
from format_views import VIEWS
from iceberg_tables import FOLDER, HINT, files_of, metadata_of, newest_version
from refusals import refused
from worlds import COW, MOR, compact_while_another_commits, rows

import mdt
from mdt.formats.earlier import Earlier
from mdt.formats.iceberg import log, manifests, tree
from mdt.formats.iceberg import metadata as versions
from mdt.formats.iceberg.manifests import Table
from mdt.metadata.metadata import Metadata
from mdt.session import Recent
from mdt.stores.storage import LocalStorage, MemoryStorage
from mdt.testing.slow import CountingStorage

VIEW = VIEWS["iceberg"]
PATH = VIEW.form.path
"""Function from a version to its path."""


def names(storage, part):
    """Return the objects of the metadata directory that have this part in their names."""
    return [info.path for info in storage.list(FOLDER) if part in info.path]


def test_snapshots_have_the_numbers_and_instants_of_commits():
    storage, table = VIEW.table()
    for ts in range(1, 4):
        table.upsert(rows(range(ts, ts + 4), ts, 1.0))
    metadata, history = metadata_of(storage, 3), table.history().to_pylist()
    assert [each["snapshot-id"] for each in metadata["snapshots"]] == [1, 2, 3]
    assert metadata["current-snapshot-id"] == metadata["last-sequence-number"] == 3
    assert storage.read(f"{FOLDER}/version-hint.text") == b"3"
    assert metadata["metadata-log"][-1]["metadata-file"].endswith(PATH(2))
    times = [each["timestamp-ms"] for each in metadata["snapshots"]]
    assert times == sorted(times) and len(history) == 4
    operations = [each["summary"]["operation"] for each in metadata["snapshots"]]
    assert operations == ["append", "overwrite", "overwrite"]
    table.delete(rows([1], 9, 1.0))
    table.compact()
    operations = [each["summary"]["operation"] for each in metadata_of(storage, 5)["snapshots"]]
    assert operations[3:] == ["delete", "replace"]


def test_timestamps_ascend_even_if_a_commit_began_before_the_last_one():
    """Iceberg on Spark does not read a table whose timestamps decrease by more than a minute."""
    storage, table = VIEW.table()
    table.upsert(rows(range(4), 1, 1.0))
    table.upsert(rows(range(1, 4, 2), 2, 1.0))
    compact_while_another_commits(storage)
    instants = mdt.open(storage).history()["instant"].to_pylist()
    assert instants[4] < instants[3], "the compaction began before the upsert"
    metadata = metadata_of(storage, 4)
    for entries in ("snapshots", "snapshot-log", "metadata-log"):
        times = [entry["timestamp-ms"] for entry in metadata[entries]]
        assert times == sorted(times) and times[-1] <= metadata["last-updated-ms"], entries
    assert mdt.open(storage).check().ok


def test_row_ids_are_kept_until_a_row_is_rewritten():
    storage, table = VIEW.table()
    table.upsert(rows(range(6), 1, 1.0))

    def first_ids():
        metadata = metadata_of(storage, newest_version(storage))
        files = files_of(storage, metadata, metadata["snapshots"][-1])
        return {file["file_path"]: file["first_row_id"] for file, _ in files}

    before = first_ids()
    table.upsert(rows([1, 2], 2, 1.0))
    table.upsert(rows([1, 2], 3, 1.0))
    after = first_ids()
    assert before.items() <= after.items()
    assert len(set(after.values())) == len(after) == 4
    assert metadata_of(storage, 3)["next-row-id"] == 10


def test_deletion_vectors_are_in_the_order_of_manifests():
    """In another order, DuckDB 1.5 applies some of them to other files."""
    storage, table = VIEW.table(**{"mdt.small.file.bytes": 0})
    for n in range(0, 32, 4):
        table.insert(rows([n, n + 2], 1, 1.0))
    table.delete(rows(range(0, 32, 4), 2, 1.0))
    VIEW.assert_same_rows(storage)


def test_totals_in_snapshot_summaries_are_those_of_the_files():
    storage, table = VIEW.table()
    random_source = random.Random(2)
    for ts in range(1, 12):
        table.upsert(rows(random_source.sample(range(30), 6), ts, 1.0))
        if ts % 5 == 0:
            table.compact()
    metadata = metadata_of(storage, newest_version(storage))
    for snapshot in metadata["snapshots"]:
        files = list(files_of(storage, metadata, snapshot))
        deleted_counts = [len(vector) for _, vector in files if vector]
        assert {name: int(snapshot["summary"][name]) for name in versions.TOTALS} == {
            "total-data-files": len(files),
            "total-delete-files": len(deleted_counts),
            "total-records": sum(file["record_count"] for file, _ in files),
            "total-position-deletes": sum(deleted_counts),
        }


def test_a_commit_rewrites_only_the_manifests_of_its_file_groups(monkeypatch):
    monkeypatch.setattr(tree, "FILES_MAX", {0: 8, 1: 4})
    storage, table = VIEW.table(**{"mdt.small.file.bytes": 0})
    for first in range(0, 120, 12):
        table.bulk_insert(rows(range(first, first + 12), 1, 1.0))
    table.upsert(rows(range(0, 120, 3), 2, 1.0))
    before = set(names(storage, ""))
    assert len(names(storage, f"{FOLDER}/{table.snapshot().seq}-deletes-")) > 5
    table.upsert(rows([4], 3, 1.0))
    new_names = [path.rpartition("/")[2] for path in names(storage, "") if path not in before]
    parts = ["-data-", "-deletes-", "-vectors-", "snap-", ".metadata.json"]
    assert [sum(part in name for name in new_names) for part in parts] == [1, 1, 1, 1, 1]
    VIEW.assert_same_rows(storage)
    assert table.check().ok


def test_only_objects_of_the_newest_version_stay_in_memory(monkeypatch):
    """If ended ones pushed others out, each commit to a large table would decode many again."""
    monkeypatch.setattr(tree, "FILES_MAX", {0: 8, 1: 4})
    storage, table = VIEW.table(**{"mdt.small.file.bytes": 0})
    for first in range(0, 120, 12):
        table.bulk_insert(rows(range(first, first + 12), 1, 1.0))
    for ts in range(2, 6):
        table.upsert(rows(range(ts, 120, 3), ts, 1.0))
    seq, cache = table.snapshot().seq, table.metadata.derived
    state = log._read(seq, Earlier(storage, cache))
    current = {leaf.path for leaf in state.leaves if leaf.live}
    assert len(cache) == len(current) + len(state.decoded)
    assert all(map(cache.has, (*current, *state.decoded)))
    assert len(names(storage, ".avro")) > 4 * len(cache)


@pytest.mark.parametrize("kind", [MOR, COW])
def test_histories_with_split_manifests_are_readable_and_pass_the_check(kind, monkeypatch):
    monkeypatch.setattr(tree, "FILES_MAX", {0: 3, 1: 2})
    options = {"mdt.max.file.bytes": 2048, "mdt.small.file.bytes": 0}
    storage, table = VIEW.table(kind, **options)
    random_source = random.Random(5)
    for ts in range(1, 16):
        table.upsert(rows(random_source.sample(range(200), 60), ts, 1.0))
        if random_source.random() < 0.3:
            table.delete_where(f"ts < {ts - 6}")
        if random_source.random() < 0.2:
            table.compact()
        if random_source.random() < 0.2:
            table.clean(retain_commits=4)
        VIEW.assert_same_rows(storage)
    for seq in range(table.snapshot().retention.horizon, table.snapshot().seq + 1):
        VIEW.assert_same_rows(storage, seq)
    assert table.check().ok


def test_a_manifest_tree_finds_every_file_after_its_first_manifests_are_removed(monkeypatch):
    monkeypatch.setattr(tree, "FILES_MAX", {manifests.DATA: 4})
    paths = sorted((f"f{n}_0.parquet" for n in range(20)), key=manifests.key_of)
    entries = [manifests.Entry(manifests.key_of(path), path, 1, 1, (), b"") for path in paths]
    stored, leaves = dict[str, Sequence[manifests.Entry]](), list[manifests.Leaf]()
    changes = [((), entries), (paths[:10], ()), ((), entries[:10]), (paths, ())]
    for removed, added in changes:
        after = tree.changed(
            leaves, set(removed), added, lambda leaf: stored[leaf.path], manifests.DATA
        )
        leaves = list(after.unchanged)
        for manifest in after.manifests:
            path = str(len(stored))
            stored[path] = manifest.live
            leaves.append(
                manifests.Leaf(path, manifest.low, manifests.DATA, len(manifest.live), b"")
            )
        leaves.sort(key=lambda leaf: leaf.low)
    assert not any(leaf.live for leaf in leaves)


DAMAGES = ("version", "list", "data", "deletes", "vectors", "hint")


@pytest.mark.parametrize("loses", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("cleans", [False, True])
def test_check_reports_damage_and_repair_rebuilds_the_objects(damage, loses, cleans):
    storage, table = VIEW.table()
    table.upsert(rows(range(20), 1, 1.0))
    for ts in range(2, 6):
        table.upsert(rows([ts % 4, 7], ts, 1.0))
    if cleans:
        table.clean(retain_commits=1)
    seq = table.snapshot().retention.horizon or 3
    part = {"version": "/v", "list": "snap-", "hint": "hint"}.get(damage, f"-{damage}-")
    path = PATH(seq) if damage == "version" else names(storage, part)[-1]
    if loses:
        storage.delete(path)
    else:
        content = storage.read(path)
        flipped = bytes([content[len(content) // 2] ^ 64])
        storage.replace(
            path, content[: len(content) // 2] + flipped + content[len(content) // 2 + 1 :]
        )
    assert not table.check().ok
    assert mdt.repair(storage).ok
    assert mdt.open(storage).check().ok
    VIEW.assert_same_rows(storage)
    mdt.open(storage).upsert(rows([2], 60, 3.0))
    VIEW.assert_same_rows(storage)
    assert mdt.open(storage).check().ok


@pytest.mark.parametrize("part", ["/v", "snap-", "-data-", "-deletes-"])
def test_no_version_is_derived_from_a_damaged_one(part):
    storage, table = VIEW.table()
    table.upsert(rows(range(20), 1, 1.0))
    for ts in range(2, 5):
        table.upsert(rows([ts, ts + 1], ts, 1.0))
    for path in names(storage, part):
        content = storage.read(path)
        storage.replace(path, content.replace(b"mdt", b"mDt"))
    [warning, *_] = mdt.open(storage).upsert(rows([9], 9, 1.0)).warnings
    assert "do not match their checksum" in warning
    assert not names(storage, "v5.")
    assert mdt.repair(storage).ok
    mdt.open(storage).upsert(rows([1], 10, 1.0))
    VIEW.assert_same_rows(storage)


FORGED = (
    {"snapshots": 7},
    {"snapshots": [{}]},
    {"schemas": []},
    {"partition-specs": [{"spec-id": 0, "fields": [{"source-id": 99}]}]},
    {"snapshots": [{"manifest-list": "/etc/passwd"}]},
    {"snapshots": [{"manifest-list": "mdt-memory:///../../x"}]},
    {"location": None},
    {"next-row-id": "1"},
    {"snapshot-log": [{}]},
    {"properties": []},
    {"next-row-id": 1 << 60},
    {"last-column-id": -1},
    {"last-updated-ms": None},
    {"current-schema-id": 99},
    {"snapshots": [{"snapshot-id": 1, "schema-id": 8, "manifest-list": "x"}]},
    {"snapshots": [{"snapshot-id": 1, "schema-id": 0, "manifest-list": 7}]},
    {"metadata-log": {}},
    {"metadata-log": 7},
)


@pytest.mark.parametrize("change", FORGED)
def test_a_forged_version_with_a_valid_checksum_is_refused(change):
    storage, table = VIEW.table()
    table.upsert(rows(range(20), 1, 1.0))
    metadata = versions.decode(storage.read(PATH(1)))
    forged = json.dumps({**metadata, **change}, separators=(",", ":")).encode()
    checksum = b'"mdt.checksum":"%08x"' % zlib.crc32(forged)
    storage.replace(PATH(1), forged.replace(b'"mdt.checksum":"00000000"', checksum, 1))
    [warning, *_] = mdt.open(storage).upsert(rows([9], 9, 1.0)).warnings
    assert f"metadata of Iceberg do not match their checksum [{PATH(1)}]" in warning
    assert not storage.size(PATH(2)), "no version is derived from it"
    assert mdt.repair(storage).ok
    mdt.open(storage).upsert(rows([2], 60, 3.0))
    VIEW.assert_same_rows(storage)


@pytest.mark.parametrize("part", ["snap-", "-data-", "-deletes-"])
def test_forged_manifests_with_a_valid_checksum_are_corrupt_or_decoded(part):
    storage, table = VIEW.table()
    table.upsert(rows(range(20), 1, 1.0))
    table.upsert(rows([1, 2], 2, 1.0))
    random_source = random.Random(part)
    state, outcomes = log._read(2, Earlier(storage, Recent(1 << 20))), Counter()
    of_table = Table.from_metadata(state.metadata)
    [*_, path] = names(storage, part)
    original = storage.read(path)
    decode = manifests.decode_list if part == "snap-" else manifests.decode_manifest
    for _ in range(3000):
        content = bytearray(original)
        for _ in range(random_source.randrange(1, 4)):
            content[random_source.randrange(len(content))] = random_source.choice(
                [0, 1, 0x7F, 0x80, 0xFF]
            )
        content += b"\xff" * random_source.choice([0, 0, 1, 40])
        forged = f"{path.rpartition('-')[0]}-{zlib.crc32(content):08x}.avro"
        try:
            decode(forged, bytes(content), of_table)
            outcomes["decoded"] += 1
        except mdt.Corrupt:
            outcomes["damage"] += 1
    assert outcomes["damage"] > 100, outcomes


@pytest.mark.parametrize("part", ["/v3.", "snap-3", "-data-", "-deletes-", ".puffin"])
def test_objects_of_forged_size_are_refused_before_they_are_read(part, tmp_path):
    storage, table = VIEW.table(storage=LocalStorage(tmp_path, durable=False))
    table.upsert(rows(range(20), 1, 1.0))
    for ts in range(2, 4):
        table.upsert(rows([ts, ts + 1], ts, 1.0))
    paths = names(storage, part)
    for path in paths:
        with open(tmp_path / path, "r+b") as file:
            file.truncate(3 << 30)
    tracemalloc.start()
    reopened = mdt.open(storage)
    if part != ".puffin":  # Puffin files are written but not read
        [warning, *_] = reopened.upsert(rows([2, 9], 9, 1.0)).warnings
        assert "the object is too large" in warning
    assert not reopened.check().ok
    assert mdt.repair(storage).ok
    assert tracemalloc.get_traced_memory()[1] < 200 << 20
    tracemalloc.stop()
    assert all(storage.size(path) < 1 << 20 for path in paths)
    mdt.open(storage).upsert(rows([2], 60, 3.0))
    VIEW.assert_same_rows(storage)
    assert mdt.open(storage).check().ok


def test_a_programming_error_is_not_reported_as_damage(monkeypatch):
    _, table = VIEW.table()
    table.upsert(rows(range(4), 1, 1.0))

    def raise_value_error(*_):
        raise ValueError("a fault of ours")

    monkeypatch.setattr(versions, "followed", raise_value_error)
    with pytest.raises(ValueError, match="a fault of ours"):
        table.upsert(rows([1], 2, 1.0))


@pytest.mark.parametrize("hint", [b"", b"x", b"9" * 40, b"-1", b"1" * (1 << 20), b"\xff"])
def test_a_forged_version_hint_is_replaced(hint):
    storage, table = VIEW.table()
    table.upsert(rows(range(4), 1, 1.0))
    storage.replace(f"{FOLDER}/version-hint.text", hint)
    assert not table.check().ok
    assert table.repair().ok
    storage.replace(f"{FOLDER}/version-hint.text", hint)
    table.upsert(rows(range(3), 2, 1.0))
    VIEW.assert_same_rows(storage)


@pytest.mark.parametrize(
    ("hint", "seq"), [(b"1", 1), (b"2", 2), (b"9", -1), (b"x", -1), (None, -1)]
)
def test_formats_reports_the_version_in_the_hint(hint, seq):
    storage, table = VIEW.table()
    table.upsert(rows(range(4), 1, 1.0))
    table.upsert(rows([1], 2, 2.0))
    if hint is None:
        storage.delete(HINT)
    else:
        storage.replace(HINT, hint)
    row = {"format": "iceberg", "seq": seq, "behind": 2 - seq}
    assert table.formats().to_pylist()[1] == row
    table.upsert(rows([1], 3, 3.0))
    assert table.formats().to_pylist()[1] == {"format": "iceberg", "seq": 3, "behind": 0}


def test_a_forged_location_is_not_followed(tmp_path):
    storage, table = VIEW.table(storage=LocalStorage(tmp_path, durable=False))
    table.upsert(rows(range(4), 1, 1.0))
    for location in (None, 7, "", "/", str(tmp_path / "..")):
        metadata = versions.decode(storage.read(PATH(1)))
        storage.replace(PATH(1), versions.encode({**metadata, "location": location}))
        assert not table.check().ok
        assert table.repair().ok
    VIEW.assert_same_rows(storage)


def test_a_path_that_is_not_unicode_is_refused_before_anything_is_written(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path / "caf") + b"\xe9")
    columns, formats = pa.schema({"id": pa.string()}), ["hudi", "iceberg"]
    refused("is not Unicode", mdt.create, path, columns, ["id"], formats=formats)
    assert not os.listdir(tmp_path)
    table = mdt.create(path, columns, ["id"])
    refused("is not Unicode", table.alter, formats=formats)
    assert table.upsert([{"id": "a"}]).inserted == 1


def test_old_versions_and_objects_that_only_they_use_expire():
    storage, table = VIEW.table()
    for ts in range(1, 8):
        table.upsert(rows(range(4), ts, 1.0))
    table.compact()
    table.clean(retain_commits=1)
    seq, horizon = table.snapshot().seq, table.snapshot().retention.horizon
    assert horizon > 6
    assert [PATH(n) for n in range(horizon, seq + 1)] == sorted(names(storage, "/v"))[:-1]
    assert len(names(storage, "snap-")) == seq + 1 - horizon
    assert not names(storage, ".puffin")
    assert [s["snapshot-id"] for s in metadata_of(storage, seq)["snapshots"]] == [
        *range(horizon, seq + 1)
    ]
    VIEW.assert_same_rows(storage)


def test_large_tables_keep_unused_vectors_for_some_commits(monkeypatch):
    monkeypatch.setattr(tree, "FILES_MAX", {0: 8, 1: 2})
    monkeypatch.setattr(log, "_MANIFESTS_PER_COMMIT", 2)
    options = {"mdt.small.file.bytes": 0, "mdt.services.auto": False}
    storage, table = VIEW.table(**options)
    for first in range(0, 64, 8):
        table.bulk_insert(rows(range(first, first + 8), 1, 1.0))
    unused = []
    for ts in range(2, 26):
        table.upsert(rows([ts % 8 * 8 + ts // 8], ts, 1.0))
        table.clean(retain_commits=1)
        earlier, newest = Earlier(storage, Recent(1 << 20)), table.snapshot()
        states = [
            log._read(seq, earlier) for seq in range(newest.retention.horizon, newest.seq + 1)
        ]
        needed = set().union(*(log._puffins(state, earlier) for state in states))
        stored = set(names(storage, ".puffin"))
        assert needed <= stored
        unused.append(len(stored - needed))
    VIEW.assert_same_rows(storage)
    assert 1 <= max(unused) <= 4, "all are deleted in every fourth commit"
    assert min(unused[-4:]) == 0
    table.purge()
    assert not names(storage, ".puffin")


def test_a_version_has_a_limited_number_of_snapshots(monkeypatch):
    monkeypatch.setattr(versions, "SNAPSHOTS_MAX", 3)
    storage, table = VIEW.table()
    for ts in range(1, 7):
        table.upsert(rows([1], ts, 1.0))
    assert [s["snapshot-id"] for s in metadata_of(storage, 6)["snapshots"]] == [4, 5, 6]
    assert [s["snapshot-id"] for s in metadata_of(storage, 3)["snapshots"]] == [1, 2, 3]
    assert table.check().ok


def test_a_commit_writes_six_objects_in_three_rounds_of_requests():
    storage, table = VIEW.table(storage=CountingStorage(MemoryStorage()))
    table.upsert(rows(range(20), 1, 1.0))
    for ts in range(2, 5):
        table.upsert(rows(range(ts, ts + 4), ts, 1.0))
    storage.made.clear()
    table.upsert(rows(range(5, 9), 5, 1.0))
    requests = [(number, text.split()[0]) for number, text in storage.made if FOLDER in text]
    puts = [number for number, name in requests if name in ("put_if_absent", "replace")]
    assert (len(puts), len(set(puts))) == (6, 3), storage.made


def test_a_new_table_has_an_empty_version_0_and_a_hint():
    storage, table = VIEW.table()
    assert sorted(info.path for info in storage.list(FOLDER)) == [
        f"{FOLDER}/v0.metadata.json",
        f"{FOLDER}/version-hint.text",
    ]
    metadata = json.loads(storage.read(PATH(0)))
    assert metadata["snapshots"] == [] and metadata["location"] == storage.url
    assert VIEW.rows(storage, table.schema, None).num_rows == 0
    assert Metadata(storage).newest().seq == 0
    assert pa.schema(table.schema).names == [f["name"] for f in metadata["schemas"][0]["fields"]]
