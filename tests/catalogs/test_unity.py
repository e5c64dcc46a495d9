"""Entries in Unity Catalog. A server that follows its specification checks our requests."""

import json
from urllib.parse import unquote

import pyarrow as pa
import pytest
from command_line import error_of, shown
from rest_server import RestHandler, RestServer

import mdt
from mdt.catalogs import Unity

TABLES = "/api/2.1/unity-catalog/tables"
FIELDS = {
    "name",
    "catalog_name",
    "schema_name",
    "table_type",
    "data_source_format",
    "storage_location",
    "columns",
}
"""Fields that a CreateTable request has for every table of mdt."""
NAMES = {"BOOLEAN", "INT", "LONG", "FLOAT", "DOUBLE", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"}
NAMES |= {"STRING", "BINARY", "DECIMAL", "ARRAY", "STRUCT", "MAP"}
"""Type names that a ColumnInfo may have for columns of mdt."""
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("price", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("wall", pa.timestamp("us")),
        ("tags", pa.list_(pa.string())),
        ("spot", pa.struct([("x", pa.float64()), ("n", pa.int32())])),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("city", pa.string()),
    ]
)


class Handler(RestHandler):
    """Knows the schema lake.raw, its tables and the valid token."""

    def error(self, status, code, text):
        self.reply(status, {"error_code": code, "message": text})

    def handle_request(self, body):
        if self.headers["Authorization"] != "Bearer right":
            return self.error(401, "UNAUTHENTICATED", "no valid token")
        if body is None:
            name = unquote(self.path.removeprefix(f"{TABLES}/"))
            if name not in self.server.tables:
                return self.error(404, "NOT_FOUND", "no such table")
            return self.reply(200, self.server.tables[name])
        request = json.loads(body)
        positions = [column["position"] for column in request["columns"]]
        is_right = (
            self.path == TABLES
            and self.headers["Content-Type"] == "application/json"
            and set(request) == FIELDS
            and positions == [*range(len(positions))]
            and NAMES.issuperset(column["type_name"] for column in request["columns"])
            and request["table_type"] == "EXTERNAL"
        )
        if not is_right:
            self.server.problems.append((self.path, request))
        if (request["catalog_name"], request["schema_name"]) != ("lake", "raw"):
            return self.error(404, "NOT_FOUND", "no such schema")
        name = ".".join(request[part] for part in ("catalog_name", "schema_name", "name"))
        if name in self.server.tables:
            return self.error(400, "TABLE_ALREADY_EXISTS", "exists")
        self.server.tables[name] = request
        return self.reply(200, request)


@pytest.fixture
def server():
    server = RestServer(Handler)
    server.url = f"http://127.0.0.1:{server.server_port}"
    yield server
    server.stop()
    assert not server.problems


@pytest.fixture
def table(tmp_path):
    settings = {"formats": ["hudi", "delta"], "partition_by": ["city"]}
    return mdt.create(tmp_path / "t", SCHEMA, ["id"], options={"mdt.hive.style": True}, **settings)


def test_a_table_with_a_delta_log_is_registered_as_an_external_table(server, table):
    catalog = Unity(f"{server.url}/", "lake", token="right")
    for _ in range(2):
        mdt.register(table, catalog, "raw.trips")
    [(name, entry)] = server.tables.items()
    assert name == "lake.raw.trips" and entry["data_source_format"] == "DELTA"
    assert entry["storage_location"] == f"file://{table.path}"
    columns = {column["name"]: column for column in entry["columns"]}
    assert [column["type_text"] for column in columns.values()] == [
        "bigint",
        "decimal(9,2)",
        "timestamp",
        "timestamp_ntz",
        "array<string>",
        "struct<x:double,n:int>",
        "map<string,bigint>",
        "string",
    ]
    assert [column["type_name"] for column in columns.values()] == [
        "LONG",
        "DECIMAL",
        "TIMESTAMP",
        "TIMESTAMP_NTZ",
        "ARRAY",
        "STRUCT",
        "MAP",
        "STRING",
    ]
    assert json.loads(columns["id"]["type_json"]) == "long"
    assert json.loads(columns["tags"]["type_json"])["elementType"] == "string"
    assert (columns["price"]["type_precision"], columns["price"]["type_scale"]) == (9, 2)
    assert {name: column.get("partition_index") for name, column in columns.items()} == {
        **dict.fromkeys(SCHEMA.names),
        "city": 0,
    }


def test_a_table_without_a_delta_log_is_refused(server, tmp_path):
    table = mdt.create(tmp_path / "t", SCHEMA, ["id"])
    with pytest.raises(mdt.Unsupported, match="no name for Hudi's format"):
        mdt.register(table, Unity(server.url, "lake", token="right"), "raw.trips")
    assert not server.tables


def test_the_command_line_registers_a_table(server, table, monkeypatch):
    monkeypatch.setenv("UNITY_TOKEN", "right")
    command = ["register", table.path, "raw.t", "--location", "s3a://lake/t"]
    catalog_options = ["--unity", server.url, "--catalog", "lake"]
    assert shown(*command, *catalog_options) == f"registered {table.path} as raw.t\n"
    assert server.tables["lake.raw.t"]["storage_location"] == "s3a://lake/t"
    assert "give --hive" in error_of(*command, *catalog_options, "--polaris", server.url)
    assert "the name of the catalog is missing" in error_of(*command, *catalog_options[:2])


@pytest.mark.parametrize(
    "other",
    [
        {"data_source_format": "DELTA", "storage_location": "s3://other"},
        {"data_source_format": "DELTA", "storage_location": "http://[" + "x" * 10_000},
        {"data_source_format": "PARQUET", "storage_location": "file:///own"},
        {},
    ],
)
def test_a_name_of_another_table_is_refused(server, table, other):
    own = {"file:///own": f"file://{table.path}/"}
    server.tables["lake.raw.t"] = {name: own.get(value, value) for name, value in other.items()}
    with pytest.raises(mdt.Invalid, match="another table in the catalog") as error:
        mdt.register(table, Unity(server.url, "lake", token="right"), "raw.t")
    assert len(str(error.value)) < 1_000


def test_errors_name_a_wrong_token_schema_or_url(server, table):
    with pytest.raises(mdt.Invalid, match=r"401: no valid token[\s\S]*check the token"):
        mdt.register(table, Unity(server.url, "lake", token="wrong"), "raw.t")
    with pytest.raises(mdt.Invalid, match="schema 'row' does not exist"):
        mdt.register(table, Unity(server.url, "lake", token="right"), "row.t")
    with pytest.raises(mdt.Invalid, match="begins with https"):
        Unity("file:///etc/passwd", "lake")
    assert "hush" not in repr(Unity("https://h", "lake", token="hush"))


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        ((503, {"message": "later"}), mdt.Unavailable, "503: later"),
        ((400, {"message": "x" * 10_000}), mdt.Invalid, "x" * 300),
        ((200, []), mdt.Invalid, "another table"),
        ((409, {}), mdt.Invalid, "another table"),
    ],
)
def test_answers_of_a_broken_server_are_errors(server, table, answer, kind, text):
    server.answer = answer
    with pytest.raises(kind, match=text) as error:
        mdt.register(table, Unity(server.url, "lake", token="right"), "raw.t")
    assert len(str(error.value)) < 1_000
