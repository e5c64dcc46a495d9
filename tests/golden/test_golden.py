"""Tables that an earlier version has written are read, checked and written to as if they were
new.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import make
import pyarrow as pa
import pytest
import reader
import tidy
from reader import bag

import mdt
from indexes.predicate import matches
from mdt.filters.where import parse_where
from mdt.schema.declared import stored

BYTES_MAX = 1 << 20
"""Of all golden tables of a version: they stay in the repository for ever."""
NAMES = sorted(make.TABLES)
FILTERS = {
    "types": (
        "u8 = 203",
        "at > '2026-04-10' and not flag",
        "dec in (1.009, -5.998) or i16 is null",
        "enum = 'a' and f64 > 0",
    ),
    "": (
        "status = 'lost' and n between 50 and 300",
        "match(note, 'glove')",
        "note like '%umbr%' or status is null",
        "at.zip = 'z3' and fare < 60",
        "day = '2026-01-20' or id = 'id_007'",
        "fare > 1e9",
        "city = 'Lima'",
        "id like 'id_01%'",
    ),
}
"""Name of a table, or "" for all others -> filters, by column statistics, each index, keys and
partitions.
"""
NOT_OF_HUDI_RS = (
    "map",
    "struct",
    "fixed_list",
    "list",
    "clock",
    "clock64",
    "wait",
    "local",
    "at_s",
    "nano",
    "day64",
)
"""Columns that hudi-rs shows as their stored values; tests/schema/test_declared.py compares those.
"""


BEYOND_HUDI = ("altered_beyond_hudi",)
"""Tables with files of which Hudi's readers, who know no versions of a schema, give other values.
"""


def upserted_anew(folder: Path) -> pa.Table:
    """Write every row of a table again, so that no file of an older version is left; return the
    rows.
    """
    table = mdt.open(folder)
    table.upsert(table.scan().to_arrow())
    table.compact()
    return table.scan().to_arrow()


def is_unreleased(version: str) -> bool:
    """Return whether this version is being made, so that its golden tables may still be made
    again.
    """
    pages = Path(tidy.__file__).parent.parent / "CHANGELOG.md"
    return version == mdt.__version__ and f"## {version}" not in pages.read_text(
        encoding="utf-8"
    ).replace("[", "")


@contextmanager
def regenerated_by() -> Iterator[None]:
    """Say how tables are made again, as long as that is allowed, where what has written them is not
    what reads them.
    """
    by = json.loads((make.FOLDER / make.MADE_BY).read_text())
    try:
        yield
    except Exception as error:
        if is_unreleased(by["version"]):
            error.add_note(f"written by another format, regenerate by: {make.COMMAND}")
        raise


@pytest.fixture(params=NAMES)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Path, pa.Table]]:
    """Name, folder with a copy, and rows of each table."""
    name = request.param
    with zipfile.ZipFile(make.folder_of(name) / f"{name}.zip") as packed:
        packed.extractall(tmp_path)
    with pa.OSFile(str(make.folder_of(name) / f"{name}.arrow")) as source:
        yield name, tmp_path, pa.ipc.open_file(source).read_all()


@regenerated_by()
def test_every_table_has_its_rows_its_indexes_and_no_problems(
    golden: tuple[str, Path, pa.Table],
) -> None:
    name, folder, rows = golden
    table = mdt.open(folder)
    assert table.schema.equals(rows.schema, check_metadata=True)
    assert bag(table.scan().to_arrow()) == bag(rows)
    for text in FILTERS.get(name, FILTERS[""]):
        kept = rows["id"].filter(matches(parse_where(text, rows.schema), rows)).to_pylist()
        assert sorted(table.scan(text, columns=["id"]).to_arrow()["id"].to_pylist()) == sorted(
            kept
        ), text
    report = table.check()
    assert report.ok, report
    assert report.rows == rows.num_rows


@regenerated_by()
def test_every_row_is_found_by_its_key(golden: tuple[str, Path, pa.Table]) -> None:
    _, folder, rows = golden
    table = mdt.open(folder)
    names = [
        *table.definition.key,
        *(table.definition.partition_by if not table.definition.is_global else ()),
    ]
    assert bag(table.get(rows.select(names))) == bag(rows)


@regenerated_by()
def test_every_table_can_be_rekeyed(golden: tuple[str, Path, pa.Table]) -> None:
    _, folder, rows = golden
    table = mdt.open(folder, {"mdt.rollback.after.seconds": 0})
    before = table.definition.key_hash
    table.rekey()
    table = mdt.open(folder)
    names = [
        *table.definition.key,
        *(table.definition.partition_by if not table.definition.is_global else ()),
    ]
    assert table.definition.key_hash != before and bag(table.get(rows.select(names))) == bag(rows)
    assert table.check().ok and table.upsert(rows).updated == rows.num_rows


@regenerated_by()
def test_hudi_rs_reads_the_same_rows(golden: tuple[str, Path, pa.Table]) -> None:
    name, folder, rows = golden
    if name in BEYOND_HUDI:
        rows = upserted_anew(folder)
    known = pa.schema([field for field in rows.schema if field.name not in NOT_OF_HUDI_RS])
    assert stored(known).names == known.names
    assert bag(reader.hudi_table(folder, known)) == bag(rows.select(known.names))


@regenerated_by()
def test_every_table_can_be_written_to_and_served(golden: tuple[str, Path, pa.Table]) -> None:
    name, folder, rows = golden
    table = mdt.open(folder, {"mdt.rollback.after.seconds": 0})
    again = rows.slice(0, rows.num_rows // 2)
    fresh = make.typed_row(50) if name == "types" else make.row(900)
    counts = table.upsert(
        pa.concat_tables([again, pa.Table.from_pylist([fresh], schema=rows.schema)])
    )
    assert (counts.inserted, counts.updated, counts.late) == (1, again.num_rows, 0)
    table.build_indexes()
    table.compact()
    assert table.delete(again).deleted == again.num_rows
    assert table.scan().count() == rows.num_rows - again.num_rows + 1
    assert table.check().ok
    assert all(cover == 100 for cover in table.indexes()["coverage"].to_pylist())


@regenerated_by()
def test_a_tagged_state_before_the_horizon_and_the_history_of_an_archived_log_are_there(
    tmp_path: Path,
) -> None:
    with zipfile.ZipFile(make.OLDER / "aged.zip") as packed:
        packed.extractall(tmp_path)
    table = mdt.open(tmp_path)
    retention, seqs = table.snapshot().retention, dict(table.snapshot().tags.seqs)
    assert seqs["loaded"] < retention.first < retention.horizon <= seqs["saved"]
    loaded = pa.Table.from_pylist([make.row(i) for i in range(40)], schema=make.SCHEMA)
    assert bag(table.scan(as_of="loaded").to_arrow()) == bag(loaded)
    assert table.scan("status = 'lost'", as_of="loaded").count() == loaded[
        "status"
    ].to_pylist().count("lost")
    history = table.history()["operation"].to_pylist()
    assert len(history) == table.snapshot().seq + 1 and {
        "bulk_insert",
        "tag",
        "savepoint",
        "cluster",
        "clean",
    } <= set(history)
    table.restore("loaded")
    assert bag(table.scan().to_arrow()) == bag(loaded) and table.check().ok


def test_histories_have_what_makes_tables_different() -> None:
    """A table that no longer is what its name says would be tested for nothing."""
    seen = set()
    for name in ("compacted", "indexed", "rolled_back"):
        seen |= set(make.made(name).open().history()["operation"].to_pylist())
    assert seen >= {
        "bulk_insert",
        "upsert",
        "delete",
        "compact",
        "rollback",
        "create_index",
        "drop_index",
        "rebuild_index",
    }
    with zipfile.ZipFile(make.OLDER / "compacted.zip") as packed:
        assert any(".manifest" in entry for entry in packed.namelist())
    with zipfile.ZipFile(make.OLDER / "rolled_back.zip") as packed:
        assert any("/pending/" in entry for entry in packed.namelist())


def test_there_is_a_stored_table_of_every_kind_and_all_are_small() -> None:
    files = [*make.FOLDER.iterdir(), *make.OLDER.iterdir()]
    assert {file.name for file in files} == {
        make.MADE_BY,
        *(f"{n}{end}" for n in NAMES for end in (".zip", ".arrow")),
    }
    assert all((make.folder_of(name) / f"{name}.zip").exists() for name in NAMES)
    for folder in (make.FOLDER, make.OLDER):
        assert sum(file.stat().st_size for file in folder.iterdir()) < BYTES_MAX


def test_an_error_names_the_command_only_while_the_version_is_not_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def notes() -> list[str]:
        with pytest.raises(mdt.Unsupported) as caught, regenerated_by():
            raise mdt.Unsupported("format 3")
        return getattr(caught.value, "__notes__", [])

    assert is_unreleased("0.1.0") == bool(notes())
    monkeypatch.setattr(mdt, "__version__", "99.0.0")
    assert not notes()
