"""Trino reads our tables on S3 as Hudi and as Iceberg tables, with columns of every type, and after
each change. Its connector for Hudi reads base files only, like Hudi's read-optimized queries.
"""

from __future__ import annotations

import os
import random

import pyarrow as pa
import pytest
import s3
from column_kinds import COLUMNS
from counting import count
from format_histories import SCHEMA, make_at, rows, step
from hudi_table import COW, MOR
from reader import bag, bag_of
from trino_session import Refused, TrinoSession

import mdt
from mdt.stores.storage import open_storage

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1_800)]

HISTORIES = int(os.environ.get("MDT_TRINO_HISTORIES", "2"))
STEPS = 8
NOT_OF_ICEBERG = {"instant in ms", "local time in ms", "local time in s"}
NULL_IN_TRINO = "\\N"
"""Text of a null partition in Trino's connector for Hudi."""
WHERES = ("id = 7", "id in (3, 11, 59)", "fare > 20", "fare is null", "city = '50%'", "ts >= 4")
"""Conditions that Trino prunes by partitions, and by statistics of Parquet files."""


@pytest.fixture(scope="module")
def endpoint():
    with s3.mock_server() as address:
        yield address


@pytest.fixture(scope="module")
def trino(tmp_path_factory, endpoint):
    with TrinoSession(tmp_path_factory.mktemp("trino"), endpoint) as started:
        yield started


@pytest.fixture
def storage(endpoint, request):
    """The storage of a new table."""
    name = f"{abs(hash(request.node.name)):x}"
    options = {**s3.ENVIRONMENT, "AWS_ENDPOINT_URL": endpoint}
    return open_storage(f"s3://{s3.BUCKET}/{name}", storage_options=options)


@pytest.mark.parametrize("form", [6, 9, "iceberg"])
def test_trino_reads_columns_of_every_type(trino, storage, form):
    is_iceberg = form == "iceberg"
    unsupported = NOT_OF_ICEBERG if is_iceberg else set()
    schema, values = every_type(sorted(COLUMNS.keys() - unsupported))
    version, formats = (9, ["hudi", "iceberg"]) if is_iceberg else (form, ["hudi"])
    table = mdt.create(storage, schema, ["id"], version=version, formats=formats)
    table.insert(values)
    name = trino.enter_iceberg(table) if is_iceberg else trino.enter_hudi(table)
    different = []
    for field in schema:
        columns = pa.schema([schema.field("id"), field] if field.name != "id" else [field])
        try:
            trino_rows = bag_of(trino.rows(name, columns), columns.names)
        except Refused as error:
            trino_rows = error
        expected = bag(table.scan(columns=columns.names).to_arrow())
        if trino_rows != expected:
            different.append((field, trino_rows, expected))
    assert not different


def every_type(kinds):
    """Return a schema with a column for each kind, and rows with the values of the kind."""
    types = [(f"c{number}", COLUMNS[name][0]) for number, name in enumerate(kinds)]
    schema = pa.schema([("id", pa.int64()), *types])
    longest = max(len(COLUMNS[name][1]) for name in kinds)
    columns = [COLUMNS[name][1] for name in kinds]
    values = [[column[n % len(column)] for n in range(longest)] for column in columns]
    return schema, pa.table([list(range(longest)), *values], schema=schema)


@pytest.mark.parametrize("number", range(HISTORIES))
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("kind", [COW, MOR])
def test_trino_reads_each_state_of_a_hudi_table(trino, storage, kind, version, number):
    table = make_at(storage, kind, ["hudi"], is_partitioned=number % 2 == 0, version=version)
    table.upsert(rows(range(40), 1))
    draw, done = random.Random(f"{kind} {version} {number}"), []
    for ts in range(2, STEPS):
        done.append(step(table, draw, ts))
        name = trino.enter_hudi(table)
        expected = table.scan(query_type="read_optimized")
        trino_rows = trino.rows(name, table.schema)
        if number % 2 == 0:
            nulls = [row for row in trino_rows if row["city"] == NULL_IN_TRINO]
            for row in nulls:
                row["city"] = None
        assert bag_of(trino_rows, table.schema.names) == bag(expected.to_arrow()), done
        for where in WHERES:
            require_same(trino, table, name, where, query_type="read_optimized")
        count("states of tables of Hudi that Trino has read")


@pytest.mark.parametrize("number", range(HISTORIES))
@pytest.mark.parametrize("kind", [COW, MOR])
def test_trino_reads_each_state_of_an_iceberg_table(trino, storage, kind, number):
    formats = ["hudi", "iceberg"]
    table = make_at(storage, kind, formats, is_partitioned=number % 2 == 0, version=9)
    table.upsert(rows(range(40), 1))
    draw, done = random.Random(f"{kind} {number}"), []
    for ts in range(2, STEPS):
        done.append(step(table, draw, ts))
        name = trino.enter_iceberg(table)
        trino_rows = trino.rows(name, table.schema)
        assert bag_of(trino_rows, table.schema.names) == bag(table.scan().to_arrow()), done
        for where in WHERES:
            require_same(trino, table, name, where)
        count("states of tables of Iceberg that Trino has read")


def require_same(trino, table, name, where, **options):
    """Assert that Trino and mdt find the same rows for a condition."""
    ids = [field for field in SCHEMA if field.name == "id"]
    ids_found = sorted(row["id"] for row in trino.rows(name, pa.schema(ids), where))
    expected = table.scan(where, columns=["id"], **options).to_arrow()["id"].to_pylist()
    assert ids_found == sorted(expected), where
