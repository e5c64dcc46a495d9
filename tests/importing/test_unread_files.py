"""A filter on a large table of another writer opens only the files that Hudi's statistics do not
exclude.
"""

from __future__ import annotations

import pickle
import shutil
from datetime import date, timedelta
from pathlib import Path

import index_files
import pyarrow as pa
import pytest
from hudi_tables import FIXTURES, ZIPS, bag, fixture
from hypothesis import given
from random_tables import examples
from refusals import refused
from test_table_folders import copied, folders, opened

import mdt
from indexes.testing import predicates
from mdt.errors import Corrupt, Invalid
from mdt.filters.where import parse_where
from mdt.hudi.read.loading import load_files, load_properties, load_timeline
from mdt.hudi.read.table_state import load_names, load_state
from mdt.importing import imported_storage, unread_files
from mdt.importing.unread_files import load_unread
from mdt.metadata.files import paths
from mdt.stores.storage import LocalStorage

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("p", pa.int64()),
        ("v", pa.int64()),
        ("n", pa.int32()),
        ("day", pa.date32()),
        ("text", pa.string()),
        ("x", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
PARTITIONS = 8
TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")
TEXTS = ("", "a", "b" * 70, "é", "\ud7ff", "\ue000", "\uffff", "😀", None)


@pytest.fixture(autouse=True)
def _every_table_is_large(monkeypatch):
    monkeypatch.setattr(imported_storage, "IMPORT_FOLDER_SLICES_MIN", 1)


def batch(numbers, texts=TEXTS, offset=0):
    """Return a row for each number. Rows of neighbouring numbers are in the same partition."""
    numbers = list(numbers)
    days = [date(2020, 1, 1) + timedelta(days=number) for number in numbers]
    columns = [
        [f"k{number:03}" for number in numbers],
        [number // 10 for number in numbers],
        [number + offset for number in numbers],
        [number - 40 if number % 3 else None for number in numbers],
        days,
        [texts[number % len(texts)] for number in numbers],
        [number / 4 for number in numbers],
        [number * 10**6 for number in numbers],
    ]
    return pa.table(
        [pa.array(column, type) for column, type in zip(columns, SCHEMA.types, strict=True)],
        schema=SCHEMA,
    )


def created(tmp_path: Path, table_type="COPY_ON_WRITE", texts=TEXTS) -> mdt.Table:
    """Create a table with one file per partition and Hudi's column statistics."""
    t = mdt.create(
        tmp_path / "t-ours",
        SCHEMA,
        key=["id"],
        partition_by=["p"],
        table_type=table_type,
        version=9,
        options={"hoodie.metadata.enable": True, "mdt.services.auto": False},
    )
    t.bulk_insert(batch(range(10 * PARTITIONS), texts))
    return t


def options(tmp_path: Path) -> dict[str, str]:
    return {"mdt.cache.dir": str(tmp_path / "cache")}


def damage_all_but(table: str, part: str) -> None:
    """Overwrite the data files of all partitions except ``part``."""
    damaged = 0
    for file in Path(table).rglob("*.parquet"):
        if part not in str(file):
            file.write_bytes(bytes(file.stat().st_size))
            damaged += 1
    assert damaged == PARTITIONS - 1


@pytest.mark.parametrize(
    "where", ["v = 37", "p = 3", "day between '2020-02-01' and '2020-02-05'", "n < -3 and v > 30"]
)
def test_a_filter_opens_only_files_within_its_bounds(tmp_path, where):
    expected = created(tmp_path).scan(where).to_arrow()
    assert len(expected)
    path = copied(tmp_path)
    damage_all_but(path, "p=3")
    t = mdt.open(path, options(tmp_path))
    assert t.schema == SCHEMA and t.definition.key == ("id",)
    assert bag(t.scan(where).to_arrow()) == bag(expected)
    explanation = str(t.scan(where).explain())
    assert f"hudi_column_stats: pruned {PARTITIONS - 1} of {PARTITIONS} covered" in explanation
    with pytest.raises(Corrupt):
        t.scan().to_arrow()


@pytest.mark.parametrize("nulls", [10, 5])
def test_texts_are_found_if_hudi_counts_long_ones_as_nulls(tmp_path, nulls):
    """Parquet has no statistics of row groups with long texts."""
    expected = created(tmp_path, texts=("a", "b", "c")).scan("text > 'a'").to_arrow()
    path = copied(tmp_path)

    def change(key, record):
        statistics = record["ColumnStatsMetadata"][1]
        if statistics["columnName"] == "text":
            if nulls == 10:
                statistics["minValue"] = None
            statistics |= {"maxValue": statistics["minValue"], "nullCount": nulls}
        return record

    index_files.compact(Path(path), "column_stats", change)
    t = mdt.open(path, options(tmp_path))
    assert bag(t.scan("text > 'a'").to_arrow()) == bag(expected)
    assert t.scan("text is not null").count() == 10 * PARTITIONS


@pytest.fixture(scope="module", params=TYPES)
def updated(request, tmp_path_factory) -> Path:
    """The folder of a table with updated and deleted rows in two partitions."""
    folder = tmp_path_factory.mktemp("updated")
    table = created(folder, request.param)
    table.upsert(batch([5, 77], TEXTS[::-1], offset=100))
    table.delete(batch([6, 78]).select(["id", "p"]))
    return folder


@pytest.mark.parametrize(
    "read",
    [
        lambda t: bag(t.scan().to_arrow()),
        lambda t: t.scan("v >= 0").count(),
        lambda t: t.scan("x > 3").count(),
        lambda t: t.scan(limit=5, order_by="v").to_arrow().to_pylist(),
        lambda t: t.get("k055"),
        lambda t: t.files().num_rows,
        lambda t: t.check().ok,
        lambda t: pickle.loads(pickle.dumps(t.scan())).count(),
        lambda t: pickle.loads(pickle.dumps(t.scan("v = 3"))).count(),
        lambda t: t.anew().scan().count(),
        lambda t: len(t.metadata.cached_snapshot()),
    ],
)
def test_other_reads_see_the_whole_table_after_a_filter(updated, tmp_path, monkeypatch, read):
    monkeypatch.setattr(unread_files, "_PART_MAX", 0.5)
    path = copied(updated)
    expected = read(imported_table(path, monkeypatch))
    t = mdt.open(path, options(tmp_path))
    assert t.scan("v = 37").count() == 1 and t.storage.is_unread
    assert read(t) == expected


def imported_table(path, monkeypatch) -> mdt.Table:
    """Open a table so that it is imported at once."""
    with monkeypatch.context() as patch:
        patch.setattr(imported_storage, "IMPORT_FOLDER_SLICES_MIN", 1000)
        return mdt.open(path, {"mdt.cache.bytes.max": 0})


def test_a_table_is_imported_as_a_whole_after_filters_opened_as_many_files_as_it_has(tmp_path):
    created(tmp_path)
    t = mdt.open(copied(tmp_path), options(tmp_path))
    for number in range(PARTITIONS):
        assert t.scan(f"v = {10 * number}").count() == 1
        assert t.storage.is_unread
    assert t.scan("v = 3").count() == 1 and not t.storage.is_unread


def test_a_table_imported_by_one_reader_is_read_from_its_folder_by_others(tmp_path):
    ours = created(tmp_path)
    path = copied(tmp_path)
    first, second = (mdt.open(path, options(tmp_path)) for _ in range(2))
    assert first.scan("v = 3").count() == second.scan("v = 4").count() == 1
    [folder] = folders(tmp_path)
    assert len(list((folder / paths.LOG_DIR).iterdir())) == 1
    assert bag(first.scan().to_arrow()) == bag(ours.scan().to_arrow())
    damage_all_but(path, "p=3")
    assert second.scan().count() == first.scan().count(), "the first reader has imported the table"
    third = opened(path, options(tmp_path))
    assert not third.storage.is_unread and third.scan("v < 0").count() == 0


def test_columns_altered_after_the_folder_was_created_are_read(tmp_path):
    ours = created(tmp_path)
    first = mdt.open(copied(tmp_path), options(tmp_path))
    assert first.storage.is_unread
    reopened = mdt.open(tmp_path / "t", options(tmp_path))
    assert reopened.storage.is_unread, "the columns have not changed"
    ours.alter(add={"more": pa.int64()})
    copied(tmp_path)
    second = mdt.open(tmp_path / "t", options(tmp_path))
    assert second.schema.names == first.schema.names == [*SCHEMA.names, "more"]
    for t in first, second, reopened:
        assert t.scan("more is null and v = 37").count() == 1


@pytest.mark.parametrize("table_type", TYPES)
def test_filters_see_later_commits(tmp_path, table_type):
    ours = created(tmp_path, table_type)
    t = mdt.open(copied(tmp_path), options(tmp_path))
    assert t.scan("v = 37").count() == 1 and t.storage.is_unread
    ours.upsert(batch([5], offset=32))
    ours.alter(add={"more": pa.int64()})
    copied(tmp_path)
    assert t.scan("v = 37").count() == 2
    assert t.scan("more is null and v = 37").count() == 2


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("where", ["v = 37", "v = 5", "n < 0", "p = 2 or v = 105", "v > 1000"])
def test_a_partial_state_has_the_matching_slices_of_the_whole_state(
    tmp_path, monkeypatch, table_type, where
):
    monkeypatch.setattr(unread_files, "_PART_MAX", 1)
    ours = created(tmp_path, table_type)
    ours.upsert(batch([5], offset=100))
    ours.insert_overwrite(batch([20, 21]))
    ours.delete_partition("p=7")
    source = LocalStorage(copied(tmp_path))
    table = load_properties(source)
    timeline = load_timeline(source, table)
    unread = load_unread(source, table, timeline, load_names(source, table, timeline), "")
    state, other_count = unread.matching(source, parse_where(where, SCHEMA, None), SCHEMA)
    whole = load_state(source, table, files=load_files(source)).slices
    assert len(whole) == len(state.slices) + other_count == PARTITIONS - 1
    assert [file_slice for file_slice in whole if file_slice in state.slices] == state.slices
    assert other_count


@pytest.fixture
def both(updated, monkeypatch) -> tuple[str, mdt.Table]:
    """The path of a table of another writer, and the same table imported."""
    monkeypatch.setattr(unread_files, "_PART_MAX", 1)
    path = copied(updated)
    return path, imported_table(path, monkeypatch)


@examples(12, 400)
@given(where=predicates(SCHEMA, batch(range(10 * PARTITIONS))))
def test_filters_return_the_rows_of_a_full_scan(both, where):
    path, whole = both
    t = mdt.open(path, {"mdt.cache.bytes.max": 0})
    assert t.storage.is_unread
    try:
        expected = bag(whole.scan(where).to_arrow())
    except Invalid:
        refused("", t.scan, where, kind=Invalid)
    else:
        assert bag(t.scan(where).to_arrow()) == expected


@pytest.mark.skipif(not ZIPS, reason=f"no fixtures in {FIXTURES}")
class TestHudisTables:
    TABLES = ("cow_v9_txns_simple_meta", "cow_v9_txns_nonpart_meta", "mor_avro_v8_trips_8i3u1d")

    @pytest.fixture(autouse=True)
    def _filters_may_open_all_files(self, monkeypatch):
        monkeypatch.setattr(unread_files, "_PART_MAX", 1)

    @pytest.mark.parametrize("name", TABLES)
    def test_filters_return_the_rows_of_a_full_scan(self, name, tmp_path):
        folder = fixture(name, tmp_path)
        whole = mdt.open(folder, {"mdt.cache.bytes.max": 0}).scan().to_arrow()
        tested = 0
        for column in whole.column_names:
            for value in whole[column].unique().to_pylist()[:2]:
                if isinstance(value, (str, int)):
                    t = mdt.open(folder, options(tmp_path))
                    assert t.storage.is_unread
                    part = t.scan([(column, "=", value)])
                    expected = [row for row in whole.to_pylist() if row[column] == value]
                    assert bag(part.to_arrow()) == sorted(map(repr, expected))
                    tested += 1
        assert tested >= 10

    def _filtered(self, folder, tmp_path):
        """Return True if a filter found its row without opening all files."""
        t = mdt.open(folder, options(tmp_path))
        assert t.scan("txn_id = 'TXN-012'").count() == 1
        return t.storage.is_unread

    def test_damaged_statistics_are_not_used(self, tmp_path):
        folder = fixture(self.TABLES[0], tmp_path)
        for path in index_files.compact(folder, "column_stats"):
            content = path.read_bytes()
            path.write_bytes(content[:-4096] + bytes(96) + content[-4000:])
        assert not self._filtered(folder, tmp_path)

    @pytest.mark.parametrize(
        "change",
        [
            {"isDeleted": True},
            {"minValue": None},
            {"minValue": ("org.apache.hudi.avro.model.StringWrapper", {"value": "\uffff"})},
            {"maxValue": ("org.apache.hudi.avro.model.StringWrapper", {"value": "😀"})},
            {"maxValue": ("org.apache.hudi.avro.model.StringWrapper", {"value": "A"})},
            {"maxValue": ("org.apache.hudi.avro.model.LongWrapper", {"value": 1})},
            {"nullCount": None},
            {"nullCount": 10**6},
            {"valueCount": None},
        ],
    )
    def test_statistics_that_prove_nothing_are_not_used(self, tmp_path, change):
        folder = fixture(self.TABLES[0], tmp_path)
        assert self._filtered(folder, tmp_path)
        shutil.rmtree(tmp_path / "cache-tables")

        def change_statistics(key, record):
            statistics = record["ColumnStatsMetadata"][1]
            if statistics["columnName"] == "txn_id":
                statistics |= change
            return record

        index_files.compact(folder, "column_stats", change_statistics)
        t = mdt.open(folder, options(tmp_path))
        assert t.scan("txn_id = 'TXN-012'").count() == 1
        assert "hudi_column_stats" not in str(t.scan("txn_id = 'TXN-012'").explain())


def test_records_without_statistics_are_ignored(tmp_path):
    """Arrow would crash the process if it read the bounds of a record without them."""
    expected = created(tmp_path).scan("v = 37").to_arrow()
    path = copied(tmp_path)
    field = "ColumnStatsMetadata"
    index_files.compact(Path(path), "column_stats", lambda _, record: {**record, field: None})
    t = mdt.open(path, options(tmp_path))
    assert bag(t.scan("v = 37").to_arrow()) == bag(expected)
    assert "hudi_column_stats" not in str(t.scan("v = 37").explain())
