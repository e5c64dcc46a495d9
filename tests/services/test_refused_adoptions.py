"""Tables of other writers that cannot be adopted are refused with a reason."""

import pytest
from foreign_tables import ForeignTable
from hudi_tables import FIXTURES, ZIPS, fixture
from refusals import refused
from shared_tables import SCHEMA

import mdt
from mdt.errors import Unsupported
from mdt.stores.storage import MemoryStorage

needs_fixtures = pytest.mark.skipif(not ZIPS, reason=f"no fixtures in {FIXTURES}")


@pytest.mark.parametrize(
    ("said", "make"),
    [
        ("is already a table of mdt", lambda storage: mdt.create(storage, SCHEMA, ["id"])),
        ("is not a Hudi table", lambda storage: None),
    ],
)
def test_only_hudi_tables_that_mdt_does_not_know_are_adopted(said, make):
    storage = MemoryStorage()
    make(storage)
    refused(said, mdt.adopt, storage)


@needs_fixtures
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("cow_v6_simplekeygen_hivestyle_no_metafields", "no meta columns"),
        ("cow_v8_simplekeygen_hivestyle_no_metafields", "no meta columns"),
    ],
)
def test_tables_that_mdt_cannot_write_are_not_adopted(name, reason, tmp_path):
    folder = fixture(name, tmp_path)
    refused(f"cannot be adopted … {reason} … mdt.open(path)", mdt.adopt, folder, kind=Unsupported)
    assert mdt.open(folder).scan().count() > 0


def test_a_table_with_file_names_without_write_tokens_is_not_adopted():
    table = ForeignTable({"id": "string"})
    table.base(1, [{"id": "a"}])
    [(path, data)] = [
        (info.path, table.storage.read(info.path))
        for info in table.storage.list_dir("")
        if info.path.endswith(".parquet")
    ]
    table.storage.delete(path)
    table.storage.create(path.replace("_1-2-3_", "_1_"), data)
    for _ in range(2):  # the first attempt leaves nothing
        refused("without a write token", mdt.adopt, table.storage, kind=Unsupported)
    assert mdt.open(table.storage).scan().count() == 1


@pytest.mark.parametrize(
    ("field", "type", "said"),
    [
        ("hoodie.table.recordkey.fields", "double", "of type double cannot be a key"),
        ("hoodie.table.partition.fields", "double", "of type double cannot partition a table"),
        ("hoodie.table.ordering.fields", "boolean", "has type bool, which is not supported"),
    ],
    ids=["key", "partition", "order"],
)
def test_a_table_with_columns_whose_texts_or_order_mdt_lacks_is_not_adopted(field, type, said):
    table = ForeignTable({"id": "string", "d": type}, {field: "d"})
    table.commit(1)
    hint = "mdt.open(path) reads the table"
    refused(f"cannot be adopted … {said} … {hint}", mdt.adopt, table.storage, kind=Unsupported)
    assert mdt.open(table.storage).scan().count() == 0


@needs_fixtures
def test_a_table_with_cdc_files_is_not_adopted(tmp_path):
    folder = fixture("cow_v6_nonpartitioned", tmp_path)
    with (folder / ".hoodie/hoodie.properties").open("a") as properties:
        properties.write("hoodie.table.cdc.enabled=true\n")
    refused("cannot be adopted … hoodie.table.cdc.enabled", mdt.adopt, folder, kind=Unsupported)
    assert mdt.open(folder).scan().count() > 0
