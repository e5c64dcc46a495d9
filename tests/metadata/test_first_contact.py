"""What a user is told who opens or creates a table where something else stands."""

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


def refused_both_ways(said, place):
    """Assert that a place is neither opened as a table nor made one."""
    refused(said, mdt.open, place)
    refused(said, mdt.create, place, SCHEMA, ["id"])


def put(storage, *names, content=b"x"):
    for name in names:
        storage.create(name, content)
    return storage


def unpacked(path, folder):
    """Unpack a fixture and return the directory of the table in it."""
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
    return next(found.parent for found in folder.rglob(".hoodie") if "__MACOSX" not in found.parts)


@with_fixtures
@pytest.mark.parametrize("path", ZIPS, ids=lambda path: path.stem)
def test_a_table_of_hudi_is_named_with_its_version_and_type_and_is_left_as_it_is(path, tmp_path):
    table = unpacked(path, tmp_path)
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
def test_the_command_line_shows_it_and_leaves_it_as_it_is(tmp_path):
    table = unpacked(ZIPS[0], tmp_path)
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
def test_a_table_of_another_kind_is_named_with_what_reads_it(kind, make):
    names, hint = OTHERS[kind]
    storage = put(make(), *names, content=b"\\u12")
    refused_both_ways(kind, storage)
    refused_both_ways(hint, storage)


@FAR
def test_a_hudi_table_whose_properties_cannot_be_read_is_damaged(make):
    storage = put(make(), ".hoodie/hoodie.properties", content=b"\\u12")
    refused("malformed", mdt.open, storage, kind=Corrupt)
    refused("a Hudi table whose properties cannot be read", mdt.create, storage, SCHEMA, ["id"])


@FAR
def test_a_new_table_needs_a_directory_of_its_own(make):
    storage = put(make(), "report.csv", "part/0.parquet", ".gitkeep")
    refused("a directory with .gitkeep, part, report.csv", mdt.open, storage)
    refused("it has part, report.csv", mdt.create, storage, SCHEMA, ["id"])
    for name in ("report.csv", "part/0.parquet"):
        storage.delete(name)
    assert mdt.create(storage, SCHEMA, ["id"]).scan().count() == 0
    refused("is already an mdt table", mdt.create, storage, SCHEMA, ["id"])


def test_a_missing_path_names_what_is_near_it(tmp_path):
    mdt.create(tmp_path / "trips", SCHEMA, ["id"])
    said = "does not exist; similar names nearby: trips … mdt.create"
    refused(said, mdt.open, tmp_path / "trip")
    (tmp_path / "empty").mkdir()
    refused("it is empty or does not exist", mdt.open, tmp_path / "empty")
    refused("it is empty or does not exist", mdt.open, tmp_path / "no" / "such" / "place")


def test_a_file_is_no_table_and_cannot_become_one(tmp_path):
    file = tmp_path / "t"
    file.write_text("mine")
    before = trees.tree(tmp_path)
    refused_both_ways("it is a file", file)
    refused("a file is in the way", mdt.create, file / "below", SCHEMA, ["id"])
    assert trees.tree(tmp_path) == before


def test_a_table_that_lost_the_beginning_of_its_log_is_not_taken_for_nothing():
    storage = MemoryStorage()
    mdt.create(storage, SCHEMA, ["id"]).upsert(pa.table({"id": ["a"], "v": [1]}))
    storage.delete(".hoodie/.mdt/log/00000000000000000000")
    refused("restore .hoodie/.mdt", mdt.open, storage, kind=Missing)
    refused("is already an mdt table", mdt.create, storage, SCHEMA, ["id"])


@FAR
def test_a_listing_lies_between_two_names_and_has_what_stands_directly_below(
    make,
):
    below = [".mdt", "1", "2", "3", "archived", "h.properties", "metadata", "timeline"]
    inside = {".mdt": ".mdt/log", "archived": "archived/1", "metadata": "metadata/x"}
    storage = put(make(), *(f"t/{inside.get(name, name)}" for name in below))
    found = [info.path for info in storage.list_dir("t", after="t/1", before="t/i")]
    assert found == ["t/2", "t/3", "t/h.properties"]
    assert storage.children("t") == below
