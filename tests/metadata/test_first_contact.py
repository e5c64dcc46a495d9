"""What a user is told who opens or creates a table where something else stands."""

from __future__ import annotations

import zipfile
from pathlib import Path

import obstore
import pyarrow as pa
import pytest
import trees
from obstore.store import MemoryStore
from typer.testing import CliRunner

import mdt
from mdt.cli import main as cli
from mdt.errors import Invalid, MdtError, Missing
from mdt.stores.storage import MemoryStorage, ObjectStorage, Storage

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
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


def said(kind: type[MdtError], act: object) -> str:
    """Return the whole text of the error that ``act`` raises."""
    with pytest.raises(MdtError) as caught:
        act()  # type: ignore[operator]
    assert type(caught.value) is kind, repr(caught.value)
    return str(caught.value)


def put(storage: Storage, *names: str, content: bytes = b"x") -> Storage:
    for name in names:
        storage.create(name, content)
    return storage


def unpacked(path: Path, folder: Path) -> Path:
    """Unpack a fixture and return the directory of the table in it."""
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
    return next(found.parent for found in folder.rglob(".hoodie") if "__MACOSX" not in found.parts)


@with_fixtures
@pytest.mark.parametrize("path", ZIPS, ids=lambda path: path.stem)
def test_a_table_of_hudi_is_named_with_its_version_and_type_and_is_left_as_it_is(
    path: Path, tmp_path: Path
) -> None:
    table = unpacked(path, tmp_path)
    version = next(part for part in path.stem.split("_") if part in ("v6", "v8", "v9"))[1:]
    before = trees.tree(tmp_path)
    for act in (lambda: mdt.open(table), lambda: mdt.create(table, SCHEMA, ["id"])):
        text = said(Invalid, act)
        table_type = "COPY_ON_WRITE" if path.stem.startswith("cow") else "MERGE_ON_READ"
        assert (
            f"version {version}, {table_type}" in text and "a Hudi table of another writer" in text
        )
        assert (
            "cannot adopt it yet" in text
            and "hudi.HudiTable" in text
            and "mdt.create(new_path" in text
        )
    assert trees.tree(tmp_path) == before


def test_the_command_line_says_the_same(tmp_path: Path) -> None:
    (tmp_path / "t" / ".hoodie").mkdir(parents=True)
    (tmp_path / "t" / ".hoodie" / "hoodie.properties").write_text(
        "hoodie.table.name=x\nhoodie.table.version=8\n"
    )
    result = CliRunner().invoke(cli.app, ["info", str(tmp_path / "t")])
    text = " ".join(result.output.split())
    assert (
        result.exit_code == 0
        and "a Hudi table of another writer, 'x', version 8" in text
        and "mdt.create(new_path" in text
    )


def _memory() -> Storage:
    return MemoryStorage()


def _objects() -> Storage:
    return ObjectStorage("memory:///", MemoryStore())


OTHERS = {
    "a Delta table": (["_delta_log/00000000000000000000.json", "part-0.parquet"], "deltalake"),
    "an Iceberg table": (["metadata/v1.metadata.json", "data/0.parquet"], "pyiceberg"),
    "a Hudi table whose properties cannot be read": ([".hoodie/hoodie.properties"], "repair"),
}


@pytest.mark.parametrize("make", [_memory, _objects])
@pytest.mark.parametrize(
    ("kind", "names", "hint"), [(kind, *rest) for kind, rest in OTHERS.items()]
)
def test_a_table_of_another_kind_is_named_with_what_reads_it(
    kind: str, names: list[str], hint: str, make: object
) -> None:
    storage = put(make(), *names, content=b"\\u12")  # type: ignore[operator]
    for act in (lambda: mdt.open(storage), lambda: mdt.create(storage, SCHEMA, ["id"])):
        text = said(Invalid, act)
        assert kind in text and hint in text


@pytest.mark.parametrize("make", [_memory, _objects])
def test_a_new_table_needs_a_directory_of_its_own(make: object) -> None:
    storage = put(make(), "report.csv", "part/0.parquet", ".gitkeep")  # type: ignore[operator]
    assert "a directory with .gitkeep, part, report.csv" in said(Invalid, lambda: mdt.open(storage))
    assert "it has part, report.csv" in said(Invalid, lambda: mdt.create(storage, SCHEMA, ["id"]))
    for name in ("report.csv", "part/0.parquet"):
        storage.delete(name)
    assert mdt.create(storage, SCHEMA, ["id"]).scan().count() == 0
    assert "a table of mdt already" in said(Invalid, lambda: mdt.create(storage, SCHEMA, ["id"]))


def test_a_missing_path_names_what_is_near_it(tmp_path: Path) -> None:
    mdt.create(tmp_path / "trips", SCHEMA, ["id"])
    text = said(Invalid, lambda: mdt.open(tmp_path / "trip"))
    assert "nothing is there; near it there is trips" in text and "mdt.create" in text
    (tmp_path / "empty").mkdir()
    assert "nothing is there" in said(Invalid, lambda: mdt.open(tmp_path / "empty"))
    assert "nothing is there" in said(Invalid, lambda: mdt.open(tmp_path / "no" / "such" / "place"))


def test_a_file_is_no_table_and_cannot_become_one(tmp_path: Path) -> None:
    file = tmp_path / "t"
    file.write_text("mine")
    before = trees.tree(tmp_path)
    for act in (lambda: mdt.open(file), lambda: mdt.create(file, SCHEMA, ["id"])):
        assert "it is a file" in said(Invalid, act)
    assert "a file is in the way" in said(
        Invalid, lambda: mdt.create(file / "below", SCHEMA, ["id"])
    )
    assert trees.tree(tmp_path) == before


def test_a_table_that_lost_the_beginning_of_its_log_is_not_taken_for_nothing() -> None:
    storage = MemoryStorage()
    mdt.create(storage, SCHEMA, ["id"]).upsert(pa.table({"id": ["a"], "v": [1]}))
    storage.delete(".hoodie/.mdt/log/00000000000000000000")
    assert "restore .hoodie/.mdt" in said(Missing, lambda: mdt.open(storage))
    assert "a table of mdt already" in said(Invalid, lambda: mdt.create(storage, SCHEMA, ["id"]))


def test_an_object_store_lists_between_two_names_and_what_stands_directly_below() -> None:
    store = MemoryStore()
    for name in (
        "t/.mdt/log",
        "t/1",
        "t/2",
        "t/3",
        "t/archived/1",
        "t/h.properties",
        "t/metadata/x",
        "t/timeline",
    ):
        obstore.put(store, name, b"")
    for storage in (ObjectStorage("memory:///", store), _copied(store)):
        assert [i.path for i in storage.list_dir("t", after="t/1", before="t/i")] == [
            "t/2",
            "t/3",
            "t/h.properties",
        ]
        assert storage.children("t") == [
            ".mdt",
            "1",
            "2",
            "3",
            "archived",
            "h.properties",
            "metadata",
            "timeline",
        ]


def _copied(store: MemoryStore) -> Storage:
    return put(
        MemoryStorage(), *(str(entry["path"]) for page in obstore.list(store) for entry in page)
    )
