"""Errors for users who open or create a table at a path with something else."""

import zipfile
from pathlib import Path

import pyarrow as pa
import pytest
import trees
from command_line import error_of, shown
from obstore.store import MemoryStore
from refusals import refused
from texts import columns

import mdt
from mdt.errors import Corrupt, Missing
from mdt.stores.storage import MemoryStorage, ObjectStorage

SCHEMA = columns("id string, v int64")
FIXTURES = next(
    (
        found
        for parent in Path(__file__).resolve().parents
        if (found := parent / "shared" / "fixtures" / "hudi").is_dir()
    ),
    None,
)
ZIPS = sorted(FIXTURES.glob("*.zip")) if FIXTURES else []
with_fixtures = pytest.mark.skipif(
    not ZIPS, reason="no fixtures: shared/fixtures/hudi beside the repository"
)


def refused_by_open_and_create(said, place):
    """Assert that a path can neither be opened as a table nor become one."""
    refused(said, mdt.open, place)
    refused(said, mdt.create, place, SCHEMA, ["id"])


def put(storage, *names, content=b"x"):
    for name in names:
        storage.create(name, content)
    return storage


def unzip(path, folder):
    """Unzip a fixture and return the directory of its table."""
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
    return next(found.parent for found in folder.rglob(".hoodie") if "__MACOSX" not in found.parts)


@with_fixtures
@pytest.mark.parametrize("path", ZIPS, ids=lambda path: path.stem)
def test_creating_on_a_table_of_hudi_names_its_version_and_type_and_changes_nothing(path, tmp_path):
    table = unzip(path, tmp_path)
    version = next(part for part in path.stem.split("_") if part in ("v6", "v8", "v9"))[1:]
    before = trees.tree(tmp_path)
    table_type = "COPY_ON_WRITE" if path.stem.startswith("cow") else "MERGE_ON_READ"
    for said in (
        f"a Hudi table of another writer … version {version}, {table_type}",
        "mdt.open(path)",
        "mdt.adopt(path)" if version == "6" else "mdt.create(new_path",
    ):
        refused(said, mdt.create, table, SCHEMA, ["id"])
    assert trees.tree(tmp_path) == before


@with_fixtures
def test_the_command_line_shows_a_table_of_hudi_and_does_not_change_it(tmp_path):
    table = unzip(ZIPS[0], tmp_path)
    before = trees.tree(tmp_path)
    assert "COPY_ON_WRITE" in shown("info", table)
    refusal = " ".join(error_of("compact", table).split())
    assert "mdt reads such tables and does not write to them" in refusal
    assert trees.tree(tmp_path) == before


FAR = pytest.mark.parametrize(
    "make", [MemoryStorage, lambda: ObjectStorage("memory:///", MemoryStore())]
)


OTHERS = {
    "a Delta table": (["_delta_log/00000000000000000000.json", "part-0.parquet"], "deltalake"),
    "an Iceberg table": (["metadata/v1.metadata.json", "data/0.parquet"], "pyiceberg"),
}


@FAR
@pytest.mark.parametrize("kind", OTHERS)
def test_a_table_of_another_format_is_refused_with_the_library_that_reads_it(kind, make):
    names, hint = OTHERS[kind]
    storage = put(make(), *names, content=b"\\u12")
    refused_by_open_and_create(kind, storage)
    refused_by_open_and_create(hint, storage)


@FAR
def test_a_hudi_table_with_unreadable_properties_is_reported_as_damaged(make):
    storage = put(make(), ".hoodie/hoodie.properties", content=b"\\u12")
    refused("malformed", mdt.open, storage, kind=Corrupt)
    refused("a Hudi table whose properties cannot be read", mdt.create, storage, SCHEMA, ["id"])


@FAR
def test_a_new_table_needs_an_empty_directory(make):
    storage = put(make(), "report.csv", "part/0.parquet", ".gitkeep")
    refused("a directory with .gitkeep, part, report.csv", mdt.open, storage)
    refused("it has part, report.csv", mdt.create, storage, SCHEMA, ["id"])
    for name in ("report.csv", "part/0.parquet"):
        storage.delete(name)
    assert mdt.create(storage, SCHEMA, ["id"]).scan().count() == 0
    refused("is already an mdt table", mdt.create, storage, SCHEMA, ["id"])


def test_a_missing_path_is_refused_with_similar_names_nearby(tmp_path):
    mdt.create(tmp_path / "trips", SCHEMA, ["id"])
    said = "does not exist; similar names nearby: trips … mdt.create"
    refused(said, mdt.open, tmp_path / "trip")
    (tmp_path / "empty").mkdir()
    refused("it is empty or does not exist", mdt.open, tmp_path / "empty")
    refused("it is empty or does not exist", mdt.open, tmp_path / "no" / "such" / "place")


def test_a_file_is_not_opened_or_replaced_as_a_table(tmp_path):
    file = tmp_path / "t"
    file.write_text("mine")
    before = trees.tree(tmp_path)
    refused_by_open_and_create("it is a file", file)
    refused("a file is in the way", mdt.create, file / "below", SCHEMA, ["id"])
    assert trees.tree(tmp_path) == before


def test_a_table_without_its_first_log_record_is_not_taken_for_an_empty_directory():
    storage = MemoryStorage()
    mdt.create(storage, SCHEMA, ["id"]).upsert(pa.table({"id": ["a"], "v": [1]}))
    storage.delete(".hoodie/.mdt/log/00000000000000000000")
    refused("restore .hoodie/.mdt", mdt.open, storage, kind=Missing)
    refused("is already an mdt table", mdt.create, storage, SCHEMA, ["id"])


@FAR
def test_a_listing_is_limited_to_names_between_two_bounds_directly_below_a_directory(
    make,
):
    children = [".mdt", "1", "2", "3", "archived", "h.properties", "metadata", "timeline"]
    paths_below = {".mdt": ".mdt/log", "archived": "archived/1", "metadata": "metadata/x"}
    storage = put(make(), *(f"t/{paths_below.get(name, name)}" for name in children))
    listed = [info.path for info in storage.list_dir("t", after="t/1", before="t/i")]
    assert listed == ["t/2", "t/3", "t/h.properties"]
    assert storage.children("t") == children
