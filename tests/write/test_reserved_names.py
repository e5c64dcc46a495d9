"""Reserved names: directories that hudi-rs ignores, and columns that changes add."""

from pathlib import Path

import pyarrow as pa
import pytest
from reader import hudi_table
from texts import columns

import mdt
from mdt.errors import Invalid
from mdt.hudi import partitions

SCHEMA = columns("id int64, p string, q string")
HIDDEN = pytest.mark.parametrize("value", ["metadata", "_delta_log"])


def new_table(path, **options):
    settings = {"mdt.hive.style": False, **options}
    return mdt.create(
        path / "t", SCHEMA, ["id"], partition_by=["p", "q"], scope="table", options=settings
    )


def row(id, p, q="x"):
    return {"id": id, "p": p, "q": q}


@HIDDEN
def test_a_partition_that_hudi_rs_would_ignore_is_refused_by_every_write(value, tmp_path):
    table = new_table(tmp_path)
    table.upsert([row(1, "a")])
    small = mdt.open(table.path, {"mdt.write.memory.max": 1})
    writes = [
        lambda: table.upsert([row(2, value), row(3, "b")]),
        lambda: table.upsert([row(1, value)]),
        lambda: table.insert([row(2, value)]),
        lambda: table.bulk_insert([row(2, value)]),
        lambda: table.insert_overwrite([row(2, value)]),
        lambda: table.merge([row(1, value)]).when_matched().update("*").execute(),
        lambda: small.upsert(iter([pa.Table.from_pylist([row(2, value)], schema=SCHEMA)])),
    ]
    for write in writes:
        with pytest.raises(Invalid, match=f"'{value}', because hudi-rs does not read it"):
            write()
    assert table.snapshot().seq == 1 and table.check().ok


@HIDDEN
def test_a_reserved_value_is_accepted_if_it_is_not_the_first_directory_name(value, tmp_path):
    table = new_table(tmp_path)
    table.upsert([row(1, "a", value), row(2, value.upper(), "b")])
    hive = mdt.create(tmp_path / "hive", SCHEMA, ["id"], partition_by=["p"])
    hive.upsert([row(1, value), row(2, "a")])
    for each in (table, hive):
        assert hudi_table(Path(each.path.removeprefix("file://")), SCHEMA).num_rows == 2


def test_existing_partitions_with_reserved_names_can_still_be_written(tmp_path, monkeypatch):
    table = new_table(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(partitions, "_HIDDEN", frozenset())
        table.upsert([row(1, "metadata"), row(2, "a")])
    table.upsert([row(3, "metadata")])
    assert table.delete([1, 2, 3]).deleted == 3 and table.check().ok


@pytest.mark.parametrize("name", ["_change", "_seq", "_instant", "_CHANGE", "_Seq"])
def test_names_of_change_columns_are_refused_in_create_alter_and_evolve(name, tmp_path):
    with pytest.raises(Invalid, match=f"the column name '{name}' is reserved for changes of rows"):
        mdt.create(tmp_path / "no", SCHEMA.append(pa.field(name, pa.string())), ["id"])
    table = mdt.create(tmp_path / "t", SCHEMA, ["id"])
    for alter in (
        lambda: table.alter(add={name: "string"}),
        lambda: table.alter(rename={"q": name}, beyond_hudi=True),
        lambda: table.upsert([{**row(1, "a"), name: "x"}], evolve=True),
    ):
        with pytest.raises(Invalid, match="changes of rows"):
            alter()
    assert table.snapshot().seq == 0
