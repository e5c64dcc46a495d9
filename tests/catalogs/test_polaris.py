"""Entries in Polaris. A server that follows its specification checks our requests."""

import json
import re
from urllib.parse import parse_qs, unquote

import pyarrow as pa
import pytest
from command_line import error_of, shown
from rest_server import RestHandler, RestServer

import mdt
from mdt.catalogs import Polaris

TABLES = re.compile(
    r"/api/catalog/polaris/v1/([^/]+)/namespaces/([^/]+)/generic-tables(?:/([^/]+))?"
)
FIELDS = {"name", "format", "base-location", "doc", "properties"}
"""Fields of a CreateGenericTableRequest."""


class Handler(RestHandler):
    """Knows the namespace lake / raw, its tables and the valid credentials."""

    def error(self, status, text):
        self.reply(status, {"error": {"message": text, "type": "E", "code": status}})

    def handle_request(self, body):
        if self.path == "/api/catalog/v1/oauth/tokens":
            form = parse_qs(body.decode(), strict_parsing=True)
            expected = {
                "grant_type": ["client_credentials"],
                "client_id": ["me"],
                "client_secret": ["s:1"],
                "scope": ["PRINCIPAL_ROLE:ALL"],
            }
            if form != expected:
                return self.error(401, "unknown client")
            return self.reply(200, {"access_token": "right", "token_type": "bearer"})
        if self.headers["Authorization"] != "Bearer right":
            return self.error(401, "no valid token")
        catalog, namespace, name = map(unquote, TABLES.fullmatch(self.path).groups(""))
        if (catalog, namespace) != ("lake", "eu\x1fraw"):
            return self.error(404, "no such namespace")
        if body is None:
            return self.reply(200, {"table": self.server.tables[name]})
        request = json.loads(body)
        if self.headers["Content-Type"] != "application/json" or not set(request) <= FIELDS:
            self.server.problems.append((dict(self.headers), request))
        if request["name"] in self.server.tables:
            return self.error(409, "exists")
        self.server.tables[request["name"]] = request
        return self.reply(200, {"table": request})


@pytest.fixture
def server():
    server = RestServer(Handler)
    server.url = f"http://127.0.0.1:{server.server_port}/api/catalog"
    yield server
    server.stop()
    assert not server.problems


@pytest.fixture
def table(tmp_path):
    return mdt.create(tmp_path / "t", pa.schema({"id": pa.string()}), ["id"])


def test_a_table_is_registered_as_a_generic_table(server, table):
    catalog = Polaris(f"{server.url}/", "lake", credential="me:s:1")
    for _ in range(2):
        mdt.register(table, catalog, "eu.raw.my trips")
    assert server.tables == {
        "my trips": {
            "name": "my trips",
            "format": "hudi",
            "base-location": f"file://{table.path}",
            "properties": {"hoodie.table.type": table.definition.table_type},
        }
    }


def test_the_command_line_registers_a_table(server, table, monkeypatch):
    monkeypatch.setenv("POLARIS_CREDENTIAL", "me:s:1")
    command = ["register", table.path, "eu.raw.t", "--location", "s3a://lake/t"]
    catalog_options = ["--polaris", server.url, "--catalog", "lake"]
    assert shown(*command, *catalog_options) == f"registered {table.path} as eu.raw.t\n"
    assert server.tables["t"]["base-location"] == "s3a://lake/t"
    assert "thrift://127.0.0.1:9 failed" in error_of(*command, "--hive", "thrift://127.0.0.1:9")
    for catalogs in ([], [*catalog_options, "--hive", "thrift://127.0.0.1:9"]):
        assert "give --hive, --polaris, --unity or --iceberg" in error_of(*command, *catalogs)
    assert "the name of the catalog is missing" in error_of(*command, *catalog_options[:2])


def test_a_name_of_another_table_is_refused(server, table):
    catalog = Polaris(server.url, "lake", token="right")
    server.tables["t"] = {"name": "t", "format": "delta", "base-location": f"file://{table.path}"}
    with pytest.raises(mdt.Invalid, match="another table in the catalog: 'delta'"):
        mdt.register(table, catalog, "eu.raw.t")
    server.tables["t"] = {"name": "t", "format": "hudi", "base-location": "s3://other"}
    with pytest.raises(mdt.Invalid, match="s3://other"):
        mdt.register(table, catalog, "eu.raw.t")


def test_errors_name_a_wrong_token_credential_or_namespace(server, table):
    with pytest.raises(mdt.Invalid, match=r"401: no valid token[\s\S]*check the token"):
        mdt.register(table, Polaris(server.url, "lake", token="wrong"), "eu.raw.t")
    with pytest.raises(mdt.Invalid, match="unknown client"):
        mdt.register(table, Polaris(server.url, "lake", credential="me:2"), "eu.raw.t")
    with pytest.raises(mdt.Invalid, match=r"no namespace 'eu\.row'"):
        mdt.register(table, Polaris(server.url, "lake", token="right"), "eu.row.t")


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        ((503, {"error": {"message": "later"}}), mdt.Unavailable, "503: later"),
        ((500, b"\xff{" + b"[" * 100_000), mdt.Unavailable, "500: no reason"),
        ((400, {"error": "x" * 10_000}), mdt.Invalid, "x" * 300),
        ((302, {}, ("Location", "http://127.0.0.1:9/")), mdt.Invalid, "302"),
        ((409, []), mdt.Invalid, "another table"),
        ((503, b"cut", ("Transfer-Encoding", "chunked")), mdt.Unavailable, "does not answer"),
    ],
)
def test_answers_of_a_broken_server_are_errors(server, table, answer, kind, text):
    server.answer = answer
    with pytest.raises(kind, match=text) as error:
        mdt.register(table, Polaris(server.url, "lake", token="right"), "eu.raw.t")
    assert len(str(error.value)) < 1_000


def test_an_unreachable_server_is_named_in_the_error(table):
    with pytest.raises(mdt.Unavailable, match=r"127\.0\.0\.1:9/api does not answer"):
        mdt.register(table, Polaris("http://127.0.0.1:9/api", "lake"), "raw.t")


def test_secrets_are_not_shown(table):
    catalog = Polaris("https://h/api/catalog", "lake", token="hush", credential="me:hush")
    assert "hush" not in repr(catalog)
    with pytest.raises(mdt.Invalid, match="printable ASCII") as error:
        mdt.register(table, Polaris("http://127.0.0.1:9/api", "lake", token="hush\n"), "raw.t")
    assert "hush" not in str(error.value)


@pytest.mark.parametrize(
    "arguments",
    [
        *(("file:///etc/passwd", "c"), ("https://", "c"), ("https://h/?x", "c"), ("https://h", "")),
        *(
            ("https://h:port", "c"),
            ("https://[h", "c"),
            ("https://h/é", "c"),
            ("https://h/\n", "c"),
        ),
    ],
)
def test_invalid_arguments_are_refused(arguments):
    with pytest.raises(mdt.Invalid):
        Polaris(*arguments)
    with pytest.raises(mdt.Invalid, match="id:secret"):
        Polaris("https://h", "c", credential="no colon")
