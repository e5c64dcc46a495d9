"""A REST catalog of Iceberg that checks requests as the specification and Iceberg's own library do.

Its metadata are separate: it never writes into the table.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

_MINUTE_MS = 60_000
_ENDPOINTS = (
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces/{namespace}/register",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
)
_PATH = re.compile(r"/v1/namespaces(?:/([^/?]+)(?:/(register|tables)(?:/([^/?]+))?)?)?(?:\?.*)?")

Json = dict[str, Any]


class Refusal(Exception):
    """A request that the server refuses, with the status of its answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class RestCatalog(ThreadingHTTPServer):
    """A server with namespaces and tables.

    Attributes:
        tables: Namespace and name of a table -> its metadata.
        commits: The updates of each commit.
        refusals: Status and text of each refused request.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.namespaces, self.tables = set[str](), dict[tuple[str, str], Json]()
        self.commits, self.refusals = list[list[Json]](), list[tuple[int, str]]()
        self.count, self.lock = 0, threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, method: str, path: str, body: Any) -> Json:
        """Return the answer to a request. Raises Refusal."""
        if path.startswith("/v1/config"):
            return {"defaults": {}, "overrides": {}, "endpoints": _ENDPOINTS}
        match = _PATH.fullmatch(path)
        assert match is not None, path
        namespace, kind, name = (unquote(part) if part else "" for part in match.groups())
        if not namespace:
            self.namespaces.add(".".join(body["namespace"]))
            return {"namespace": body["namespace"], "properties": {}}
        if namespace not in self.namespaces:
            raise Refusal(404, f"there is no namespace {namespace}")
        if kind == "register":
            key = namespace, body["name"]
            if key in self.tables:
                raise Refusal(409, f"{key} exists")
            self.tables[key] = json.loads(Path(body["metadata-location"]).read_text())
            return self.table(key)
        if not kind:
            return {"namespace": namespace.split("."), "properties": {}}
        key = namespace, name
        if key not in self.tables:
            raise Refusal(404, f"there is no table {key}")
        if method == "DELETE":
            del self.tables[key]
            return {}
        if method == "POST":
            self.commit(key, body)
        return self.table(key)

    def table(self, key: tuple[str, str]) -> Json:
        self.count += 1
        location = f"file:///server/{self.count}.metadata.json"
        return {"metadata-location": location, "metadata": self.tables[key], "config": {}}

    def commit(self, key: tuple[str, str], body: Json) -> None:
        """Change a table. Raises Refusal."""
        metadata = deepcopy(self.tables[key])
        for requirement in body["requirements"]:
            _require(metadata, requirement)
        for update in body["updates"]:
            try:
                _update(metadata, update)
            except AssertionError as error:
                raise Refusal(400, f"{update['action']}: {error}") from error
        known = {entry["snapshot-id"] for entry in metadata["snapshots"]}
        assert metadata["current-snapshot-id"] in known
        metadata["snapshot-log"] = [
            entry for entry in metadata["snapshot-log"] if entry["snapshot-id"] in known
        ]
        self.tables[key] = metadata
        self.commits.append(body["updates"])


def _require(metadata: Json, requirement: Mapping[str, Any]) -> None:
    kind = requirement["type"]
    if kind == "assert-table-uuid":
        holds = requirement["uuid"] == metadata["table-uuid"]
    elif kind == "assert-ref-snapshot-id":
        ref = metadata["refs"].get(requirement["ref"], {})
        holds = requirement["snapshot-id"] == ref.get("snapshot-id")
    else:
        assert kind == "assert-current-schema-id", kind
        holds = requirement["current-schema-id"] == metadata["current-schema-id"]
    if not holds:
        raise Refusal(409, f"{requirement} does not hold")


def _update(metadata: Json, update: Mapping[str, Any]) -> None:
    """Change metadata as ``TableMetadata.Builder`` of Iceberg's library does."""
    action = update["action"]
    if action == "add-schema":
        highest = max(schema["schema-id"] for schema in metadata["schemas"])
        metadata["schemas"].append({**update["schema"], "schema-id": highest + 1})
    elif action == "set-current-schema":
        assert update["schema-id"] in {schema["schema-id"] for schema in metadata["schemas"]}
        metadata["current-schema-id"] = update["schema-id"]
    elif action == "set-properties":
        metadata["properties"] |= update["updates"]
    elif action == "add-snapshot":
        _add_snapshot(metadata, update["snapshot"])
    elif action == "set-snapshot-ref":
        id = update["snapshot-id"]
        [snapshot] = [entry for entry in metadata["snapshots"] if entry["snapshot-id"] == id]
        metadata["refs"][update["ref-name"]] = {"snapshot-id": id, "type": update["type"]}
        metadata["current-snapshot-id"] = id
        entry = {"snapshot-id": id, "timestamp-ms": snapshot["timestamp-ms"]}
        metadata["snapshot-log"].append(entry)
    else:
        assert action == "remove-snapshots", action
        ids = set(update["snapshot-ids"])
        remaining = [entry for entry in metadata["snapshots"] if entry["snapshot-id"] not in ids]
        metadata["snapshots"] = remaining


def _add_snapshot(metadata: Json, snapshot: Json) -> None:
    assert snapshot["snapshot-id"] not in {s["snapshot-id"] for s in metadata["snapshots"]}
    last, at_ms = metadata["last-sequence-number"], snapshot["timestamp-ms"]
    assert snapshot["sequence-number"] > last or "parent-snapshot-id" not in snapshot
    assert snapshot["first-row-id"] >= metadata["next-row-id"] and snapshot["added-rows"] >= 0
    assert snapshot["schema-id"] in {schema["schema-id"] for schema in metadata["schemas"]}
    assert at_ms - metadata["last-updated-ms"] >= -_MINUTE_MS
    metadata["snapshots"].append(snapshot)
    metadata["last-sequence-number"] = snapshot["sequence-number"]
    metadata["next-row-id"] += snapshot["added-rows"]
    metadata["last-updated-ms"] = at_ms


class _Handler(BaseHTTPRequestHandler):
    server: RestCatalog

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def _answer(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        try:
            with self.server.lock:
                status, answer = 200, self.server.answer(self.command, self.path, body)
        except Refusal as error:
            status = error.status
            answer = {"error": {"message": str(error), "type": "Refusal", "code": status}}
            self.server.refusals.append((status, str(error)))
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = _answer


@contextmanager
def rest_catalog() -> Iterator[RestCatalog]:
    """Run a server."""
    server = RestCatalog()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
