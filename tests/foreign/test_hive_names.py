"""Hudi's engine reads tables by the names with which mdt registered them in a Hive metastore."""

import datetime
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hive_server import metastore
from hudi_session import command, environment
from reader import bag

import mdt
from mdt.catalogs import HiveMetastore

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

ROWS = pa.table(
    {
        "id": ["a", "b", "c"],
        "city": ["Oslo", None, "a b/c%"],
        "fare": [1.0, 2.0, 3.0],
        "at": pa.array([datetime.datetime(2024, 1, 1)] * 3, pa.timestamp("us", "UTC")),
        "nested": [{"n": [1]}, None, {"n": []}],
    }
)
COLUMNS = ["id", "city", "fare", "at", "nested", "note"]


def states_of_table(path, kind, by, version):
    """Yield a new table, and again after an update, a delete, a new column and a new partition."""
    table = mdt.create(path, ROWS.schema, ["id"], partition_by=by, table_type=kind, version=version)
    table.upsert(ROWS)
    yield table
    table.upsert(ROWS.slice(0, 1).set_column(2, "fare", pa.array([9.5])))
    table.delete({"id": ["c"], "city": ["a b/c%"]})
    table.alter(add={"note": pa.string()})
    new = {"id": "z", "city": "Rome", "fare": 5.0, "at": None, "nested": None, "note": "new"}
    table.upsert([new])
    yield table


def test_hudi_reads_registered_tables_by_their_names(tmp_path):
    script = command("rows_by_name.py")
    tables = {}
    with metastore(tmp_path) as address:
        for version in (6, 9):
            for kind in ("COPY_ON_WRITE", "MERGE_ON_READ"):
                for by in ([], ["city"]):
                    name = f"{kind[0]}{version}{'p' * len(by)}".lower()
                    for table in states_of_table(tmp_path / f"table_{name}", kind, by, version):
                        mdt.register(table, HiveMetastore(address), f"default.{name}")
                    tables[name] = table
        base_files = [f"{name}_ro" for name, table in tables.items() if table.definition.is_mor]
        call = [*script, str(tmp_path), address, *tables, *base_files]
        ran = subprocess.run(call, env=environment(), capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr[-4000:]
    for name, table in tables.items():
        assert bag(hudi_rows(tmp_path / name)) == bag(our_rows(table.scan())), name
    for name in base_files:
        scan = tables[name.removesuffix("_ro")].scan(query_type="read_optimized")
        assert bag(hudi_rows(tmp_path / name)) == bag(our_rows(scan)), name


def hudi_rows(path):
    return pq.read_table(path).select(COLUMNS).cast(common_schema())


def our_rows(scan):
    return scan.to_arrow().select(COLUMNS).cast(common_schema())


def common_schema():
    return pa.schema([*ROWS.schema, pa.field("note", pa.string())])
