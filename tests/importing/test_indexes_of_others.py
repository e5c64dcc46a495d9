"""Look-ups by Hudi's own indexes find the file groups of keys and lose no rows."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import index_files
import pyarrow as pa
import pytest
from hudi_tables import FIXTURES, ZIPS, bag, fixture, instants

import mdt
from mdt.hudi.read.metadata_state import FOLDER
from mdt.metadata.files.file_group import MERGED
from mdt.plan import hudi_key_indexes
from mdt.stores.local import LocalStorage

pytestmark = pytest.mark.skipif(not ZIPS, reason=f"no fixtures in {FIXTURES}")
DAILY = (
    "cow_v9_txns_complex_meta",
    "cow_v9_txns_simple_overwrite",
    "mor_avro_v8_trips_8i3u1d",
    "mor_avro_v9_txns_nonpart_meta",
)
OTHERS = (
    "cow_v9_txns_nonpart_meta",
    "cow_v9_txns_simple_meta",
    "mor_avro_v9_txns_complex_meta",
    "mor_avro_v9_txns_simple_meta",
)
TABLES = pytest.mark.parametrize(
    "name", [*DAILY, *(pytest.param(name, marks=pytest.mark.nightly) for name in OTHERS)]
)
TABLE = "cow_v9_txns_simple_meta"
RECORD_INDEX = "record_index"
KEY = "_hoodie_record_key"


def rows_of(t: mdt.Table) -> list[dict]:
    return t.scan(columns=[*t.schema.names, KEY]).to_arrow().to_pylist()


def notes(scan) -> dict[str, str]:
    return {note.index: note.reason for note in scan.explain().indexes}


def by_keys(t: mdt.Table, *keys: str):
    """Return a scan of the rows with these record keys."""
    texts = ", ".join(f"'{key}'" for key in keys)
    return t.scan(f"{KEY} in ({texts})", [*t.schema.names, KEY])


def assert_found(folder: Path, rows: list[dict], reason: str | None = None) -> None:
    """Assert that look-ups find all ``rows``, and that a plan notes this reason for the record
    index.
    """
    t = mdt.open(folder)
    scan = by_keys(t, *(row[KEY] for row in rows))
    assert bag(scan.to_arrow()) == sorted(map(repr, rows))
    for row in rows[:3]:
        assert by_keys(t, row[KEY]).to_arrow().to_pylist() == [row]
    if reason is not None:
        assert notes(scan)[RECORD_INDEX] == reason


@TABLES
def test_every_key_is_found_in_one_file_group(name, tmp_path):
    t = mdt.open(fixture(name, tmp_path))
    rows = rows_of(t)
    for row in rows:
        scan = by_keys(t, row[KEY])
        assert scan.to_arrow().to_pylist() == [row]
    assert notes(scan)[RECORD_INDEX] == "used" and scan.explain().files_read == 1
    for row in rows[:3]:
        key = {field: row[field] for field in t.definition.key}
        where = " and ".join(f"{field} = :{field}" for field in key)
        of_key = t.scan(where, t.schema.names, params=key)
        assert of_key.to_arrow().to_pylist() == [{n: row[n] for n in t.schema.names}]
        assert notes(of_key)[RECORD_INDEX] == "used"
        assert t.get(key) == of_key.to_arrow().to_pylist()[0]
    assert bag(by_keys(t, *(row[KEY] for row in rows)).to_arrow()) == sorted(map(repr, rows))


@TABLES
def test_a_look_up_of_an_absent_key_reads_no_data_file(name, tmp_path, monkeypatch):
    t = mdt.open(fixture(name, tmp_path))
    row = rows_of(t)[0]
    key = {field: row[field] for field in t.definition.key}
    field = next(iter(key))
    key[field] += "x"
    paths = []
    read, open_file = LocalStorage.read, LocalStorage.open

    def record_path(method):
        def call(self, path, *rest, **keywords):
            paths.append(path)
            return method(self, path, *rest, **keywords)

        return call

    monkeypatch.setattr(LocalStorage, "read", record_path(read))
    monkeypatch.setattr(LocalStorage, "open", record_path(open_file))
    assert t.get(key) is None
    assert by_keys(t, "absent").count() == 0
    assert paths and all(path.startswith(".hoodie/") for path in paths)


@pytest.mark.parametrize(
    "name, column",
    (
        ("cow_v9_txns_simple_meta", "merchant_name"),
        ("cow_v9_txns_nonpart_meta", "txn_date"),
        ("mor_avro_v9_txns_complex_meta", "merchant_name"),
        ("mor_avro_v9_txns_complex_meta", "txn_date"),
        ("mor_avro_v8_trips_8i3u1d", "rider"),
    ),
)
def test_a_secondary_index_finds_the_rows_of_values_and_nulls(name, column, tmp_path):
    t = mdt.open(fixture(name, tmp_path))
    [index] = {name for name in _secondary(t) if name.removesuffix("_idx").endswith(column[:8])}
    rows = t.scan().to_arrow().to_pylist()
    values = sorted({row[column] for row in rows} - {None})
    nulls = [None] if any(row[column] is None for row in rows) else []
    for value in (*values[:4], *nulls):
        scan = t.scan(f"{column} <=> :value", params={"value": value})
        expected = [row for row in rows if row[column] == value]
        assert bag(scan.to_arrow()) == sorted(map(repr, expected))
        assert notes(scan)[index] == "used"
    two_values = t.scan(
        f"{column} in (:first, :last)", params={"first": values[0], "last": values[-1]}
    )
    expected = [row for row in rows if row[column] in (values[0], values[-1])]
    assert bag(two_values.to_arrow()) == sorted(map(repr, expected))
    assert notes(two_values)[index] == "used"


def _secondary(t: mdt.Table) -> list[str]:
    indexes = t.metadata.storage.key_indexes(t.snapshot().seq)
    return [index.name for index in indexes.secondary.values()]


@pytest.mark.parametrize("name", ("cow_v9_txns_simple_meta", "mor_avro_v8_trips_8i3u1d"))
def test_compacted_index_files_are_read(name, tmp_path):
    folder = fixture(name, tmp_path)
    t = mdt.open(folder)
    rows, indexes = rows_of(t), [RECORD_INDEX, *_secondary(t)]
    for index in indexes:
        index_files.compact(folder, index)
    assert_found(folder, rows, "used")
    t = mdt.open(folder)
    column = "rider" if "trips" in name else "merchant_name"
    scan = t.scan(f"{column} = :value", params={"value": rows[0][column]})
    assert scan.count() == sum(row[column] == rows[0][column] for row in rows)
    assert "used" in {notes(scan).get(index) for index in indexes[1:]}


def test_an_index_without_an_existing_key_is_not_used(tmp_path):
    folder = fixture(TABLE, tmp_path)
    rows = rows_of(mdt.open(folder))
    missing = rows[5][KEY]
    index_files.compact(
        folder, RECORD_INDEX, lambda key, record: None if key == missing else record
    )
    assert_found(folder, rows, "not_complete")


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_record_index_of_version_6_without_an_existing_key_hides_no_row(kind, tmp_path):
    """In merge-on-read tables, Hudi's writers may lose keys of the index and leave others in it."""
    folder = tmp_path / "t"
    rows = [{"id": f"k{n}", "n": n} for n in range(9)]
    options = {"mdt.hudi.metadata": True, "mdt.hudi.record.index": True, "mdt.small.file.bytes": 0}
    our_table = mdt.create(
        folder, pa.Table.from_pylist(rows).schema, ["id"], table_type=kind, options=options
    )
    for row in rows:
        our_table.insert([row])
    shutil.rmtree(folder / ".hoodie/.mdt")
    if kind == "MERGE_ON_READ":
        index_files.compact(folder, RECORD_INDEX, rename={"k3": "other"})
    t = mdt.open(folder)
    for n in (2, 3, 4):
        assert t.get(f"k{n}") == rows[n]
        reason = "not_complete" if (n, kind) == (3, "MERGE_ON_READ") else "used"
        assert notes(by_keys(t, f"k{n}"))[RECORD_INDEX] == reason
    assert t.get("k10") is None
    reason = "not_complete" if kind == "MERGE_ON_READ" else "used"
    assert notes(by_keys(t, "k10"))[RECORD_INDEX] == reason


def test_an_index_that_names_an_unknown_file_group_is_not_used(tmp_path):
    folder = fixture(TABLE, tmp_path)
    rows = rows_of(mdt.open(folder))

    def change_file_group(key, record):
        if key == rows[5][KEY]:
            record["recordIndexMetadata"][1]["fileIdHighBits"] ^= 1
        return record

    index_files.compact(folder, RECORD_INDEX, change_file_group)
    assert_found(folder, rows, "not_usable")


def test_a_table_with_repeated_keys_is_read_without_the_index(tmp_path):
    t = mdt.open(fixture("mor_avro_v9_nonpartitioned_rollback", tmp_path))
    rows = rows_of(t)
    keys = {row[KEY] for row in rows}
    assert len(keys) < len(rows)
    scan = by_keys(t, *keys)
    assert bag(scan.to_arrow()) == sorted(map(repr, rows))
    assert notes(scan)[RECORD_INDEX] == "not_complete"


def test_an_index_that_is_still_being_built_is_not_used(tmp_path):
    folder = fixture(TABLE, tmp_path)
    path = folder / ".hoodie" / "hoodie.properties"
    text = path.read_text()
    changed_text = text.replace("record_index,", "").replace(".inflight=", ".inflight=record_index")
    assert changed_text.count("record_index") == text.count("record_index") > 0
    path.write_text(changed_text)
    t = mdt.open(folder)
    assert RECORD_INDEX not in notes(by_keys(t, "absent"))


@pytest.mark.parametrize(
    "name",
    (
        "cow_v6_complexkeygen_hivestyle",
        "cow_v8_complexkeygen_hivestyle",
        "mor_avro_v6_trips_8i3d",
        "mor_parquet_v6_simplekeygen_nonhivestyle",
    ),
)
def test_bloom_filters_in_footers_find_the_files_of_keys_without_a_record_index(
    name, tmp_path, monkeypatch
):
    monkeypatch.setattr(hudi_key_indexes, "FILTERED_ROWS_MIN", 0)
    t = mdt.open(fixture(name, tmp_path))
    rows = rows_of(t)
    for row in rows[:4]:
        scan = by_keys(t, row[KEY])
        assert scan.to_arrow().to_pylist() == [row]
        assert notes(scan)["bloom_filter"] == "used"
        key = {field: row[field] for field in (*t.definition.key, *t.definition.partition_by)}
        assert t.get(key) == {name: row[name] for name in t.schema.names}
    assert bag(by_keys(t, *(row[KEY] for row in rows)).to_arrow()) == sorted(map(repr, rows))
    explanation = by_keys(t, "absent").explain()
    merged = sum(kind == MERGED for kind in t.files()["kind"].to_pylist())
    assert explanation.files_read == merged < explanation.files_total


def hide(folder: Path, times: list[str], *, data: bool = True) -> dict[Path, bytes]:
    """Remove instants from the timelines and return their files."""
    hidden = {}
    for timeline_folder in (".hoodie/timeline", f"{FOLDER}/.hoodie/timeline")[not data :]:
        for path in (folder / timeline_folder).iterdir():
            if path.name[:17] in times:
                hidden[path] = path.read_bytes()
                path.unlink()
    return hidden


@pytest.mark.parametrize("name", ("cow_v9_txns_simple_meta", "mor_avro_v9_txns_simple_meta"))
def test_a_metadata_table_without_an_instant_of_the_table_is_not_used(name, tmp_path):
    folder = fixture(name, tmp_path)
    rows = rows_of(mdt.open(folder))
    for time in instants(folder)[-3:]:
        hidden = hide(folder, [time], data=False)
        assert hidden
        assert_found(folder, rows, "not_usable")
        for path, content in hidden.items():
            path.write_bytes(content)
    assert_found(folder, rows, "used")


def test_a_metadata_table_with_an_instant_that_the_table_lacks_is_not_used(tmp_path):
    folder = fixture("mor_avro_v9_txns_simple_meta", tmp_path)
    newest = instants(folder)[-1]
    for path in (folder / ".hoodie" / "timeline").iterdir():
        if path.name.startswith(newest):
            path.unlink()
    assert_found(folder, rows_of(mdt.open(folder)), "not_usable")


def test_look_ups_follow_new_commits_and_older_scans_keep_their_rows(tmp_path):
    folder = fixture("mor_avro_v9_txns_simple_meta", tmp_path)
    newest = rows_of(mdt.open(folder))
    hidden = hide(folder, instants(folder)[-4:])
    t = mdt.open(folder)
    older = rows_of(t)
    assert bag(t.scan().to_arrow()) != sorted(map(repr, newest))
    keys = [row[KEY] for row in (*older, *newest)]
    scan = by_keys(t, *keys)
    assert notes(scan)[RECORD_INDEX] == "used"
    assert bag(scan.to_arrow()) == sorted(map(repr, older))
    for path, content in hidden.items():
        path.write_bytes(content)
    later = by_keys(t, *keys)
    assert bag(later.to_arrow()) == sorted(map(repr, newest))
    assert notes(later)[RECORD_INDEX] == "used"
    assert bag(scan.to_arrow()) == sorted(map(repr, older))


def test_views_other_than_the_newest_snapshot_do_not_use_the_index(tmp_path):
    folder = fixture("mor_avro_v9_txns_simple_meta", tmp_path)
    t, times = mdt.open(folder), instants(folder)
    keys = [row[KEY] for row in rows_of(t)]
    for options in ({"as_of": times[0]}, {"query_type": "read_optimized"}):
        all_keys = t.scan(columns=[KEY], **options).to_arrow()[KEY].to_pylist()
        texts = ", ".join(f"'{key}'" for key in {*keys, *all_keys})
        scan = t.scan(f"{KEY} in ({texts})", [KEY], **options)
        assert sorted(scan.to_arrow()[KEY].to_pylist()) == sorted(all_keys)
        assert RECORD_INDEX not in notes(scan)


@pytest.mark.parametrize("compacted", (False, True), ids=("logs", "base files"))
def test_flipped_bytes_in_an_index_lose_no_rows(compacted, tmp_path):
    folder = fixture("mor_avro_v8_trips_8i3u1d", tmp_path)
    t = mdt.open(folder)
    rows, secondary = rows_of(t), _secondary(t)
    if compacted:
        for index in (RECORD_INDEX, *secondary):
            index_files.compact(folder, index)
    rng = random.Random(7)
    for index in (RECORD_INDEX, *secondary):
        paths = [path for path in (folder / FOLDER / index).iterdir() if "0-" in path.name]
        for path in rng.sample(sorted(paths), 3):
            content = path.read_bytes()
            damaged = bytearray(content)
            damaged[rng.randrange(len(content))] ^= rng.randrange(1, 256)
            path.write_bytes(bytes(damaged))
            assert_found(folder, rows)
            t = mdt.open(folder)
            scan = t.scan("rider = :value", params={"value": rows[0]["rider"]})
            assert scan.count() == sum(row["rider"] == rows[0]["rider"] for row in rows)
            path.write_bytes(content)
