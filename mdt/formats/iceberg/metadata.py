"""The metadata file of a version, ``v<n>.metadata.json``.

Version n is commit n. So are the snapshot id and the sequence number. A checksum in the properties
protects the file, from which the next version is derived.

Source: https://iceberg.apache.org/spec/#table-metadata.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any
from uuid import UUID

from mdt.formats.derivation import Derivation
from mdt.formats.iceberg.columns import (
    last_column_id,
    last_partition_id,
    partition_fields,
    schema_json,
)
from mdt.formats.iceberg.manifests import FOLDER, FORMAT_VERSION, natural
from mdt.schema.definition import TableDefinition

SNAPSHOTS_MAX = 1000
"""Newest snapshots that a version has, about 500 bytes each."""
_PREVIOUS_MAX = 100
"""Earlier metadata files that a version has. Iceberg's default."""
_CHECKSUM = "mdt.checksum"
_NO_CHECKSUM = b'"mdt.checksum":"00000000"'
TOTALS = ("total-data-files", "total-delete-files", "total-records", "total-position-deletes")
"""Fields of the summary of a snapshot: numbers of files, vectors, rows and deleted rows."""

Json = dict[str, Any]


class Snapshot(Json):
    """A snapshot in a metadata file. Each later file repeats it, so its text is made once."""

    @cached_property
    def text(self) -> str:
        """Its JSON."""
        return _text(self)


def _text(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def version_path(seq: int) -> str:
    """Return the path of a version.

    >>> version_path(7)
    'metadata/v7.metadata.json'
    """
    return f"{FOLDER}/v{seq}.metadata.json"


def empty(table_id: str, location: str, at_ms: int, definition: TableDefinition) -> Json:
    """Return the metadata of a table without snapshots."""
    fields = partition_fields(definition)
    schema = schema_json(definition)
    return {
        "format-version": FORMAT_VERSION,
        "table-uuid": str(UUID(table_id)),
        "location": location,
        "last-sequence-number": 0,
        "last-updated-ms": at_ms,
        "last-column-id": last_column_id(definition),
        "current-schema-id": schema["schema-id"],
        "schemas": [schema],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": [field.to_json() for field in fields]}],
        "last-partition-id": last_partition_id(fields),
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {"gc.enabled": "false", _CHECKSUM: "00000000"},
        "next-row-id": 0,
        "refs": {},
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
    }


def followed(before: Json, derivation: Derivation, snapshot: Snapshot, next_row_id: int) -> Json:
    """Return the metadata after a commit.

    Args:
        before: The metadata before it.
        snapshot: Its snapshot.
    """
    seq, horizon, at_ms = derivation.record.seq, derivation.horizon, snapshot["timestamp-ms"]
    snapshots = [*_since(horizon, before["snapshots"]), snapshot][-SNAPSHOTS_MAX:]
    entry = {"snapshot-id": seq, "timestamp-ms": at_ms}
    schema = schema_json(derivation.definition)
    schemas = {each["schema-id"]: each for each in (*before["schemas"], schema)}
    used = {schema["schema-id"], *(each["schema-id"] for each in snapshots)}
    changed = {
        "last-sequence-number": seq,
        "last-updated-ms": at_ms,
        "last-column-id": max(before["last-column-id"], last_column_id(derivation.definition)),
        "current-schema-id": schema["schema-id"],
        "schemas": [schemas[id] for id in sorted(used)],
        "current-snapshot-id": seq,
        "refs": {"main": {"snapshot-id": seq, "type": "branch"}},
        "snapshots": snapshots,
        "snapshot-log": [*_since(horizon, before["snapshot-log"]), entry][-SNAPSHOTS_MAX:],
        "metadata-log": _previous(before, seq, horizon),
        "next-row-id": next_row_id,
    }
    return {**before, **changed}


def _since(horizon: int, entries: Sequence[Json]) -> list[Json]:
    return [entry for entry in entries if entry["snapshot-id"] >= horizon]


def _previous(before: Json, seq: int, horizon: int) -> list[Json]:
    path = f"{before['location']}/{version_path(seq - 1)}"
    entry = {"metadata-file": path, "timestamp-ms": before["last-updated-ms"]}
    first = max(horizon, seq - _PREVIOUS_MAX)
    earlier = before["metadata-log"][-_PREVIOUS_MAX:]
    kept = [e for number, e in enumerate(earlier, seq - 1 - len(earlier)) if number >= first]
    return [*kept, entry] if seq - 1 >= first else kept


def current(metadata: Json) -> Snapshot | None:
    """Return the current snapshot, or None if there is none."""
    snapshots: Sequence[Snapshot] = metadata["snapshots"]
    return snapshots[-1] if snapshots else None


def totals(metadata: Json) -> dict[str, int]:
    """Return the totals in the summary of the current snapshot."""
    snapshot = current(metadata)
    summary = {} if snapshot is None else snapshot["summary"]
    return {name: int(summary.get(name, 0)) for name in TOTALS}


def snapshot_json(
    before: Json,
    derivation: Derivation,
    manifest_list: str,
    changes: Mapping[str, str],
    rows: tuple[int, int],
) -> Snapshot:
    """Return the snapshot of a commit. Its time is not before that of the last one, although the
    instant may be: Iceberg on Spark refuses a table whose times go back.

    Args:
        before: The metadata before it.
        manifest_list: Location of its manifest list.
        changes: Its summary.
        rows: First row id, and number of rows with new ids.
    """
    seq = derivation.record.seq
    parent = current(before)
    parents = {} if parent is None else {"parent-snapshot-id": parent["snapshot-id"]}
    fields = {
        "snapshot-id": seq,
        **parents,
        "sequence-number": seq,
        "timestamp-ms": max(derivation.at_ms, before["last-updated-ms"]),
        "manifest-list": manifest_list,
        "summary": dict(changes),
        "schema-id": derivation.definition.version.since,
        "first-row-id": rows[0],
        "added-rows": rows[1],
    }
    return Snapshot(fields)


def encode(metadata: Json) -> bytes:
    """Return metadata as a metadata file."""
    snapshots = ",".join(snapshot.text for snapshot in metadata["snapshots"])
    text = _text({**metadata, "snapshots": []})
    data = text.replace('"snapshots":[]', f'"snapshots":[{snapshots}]', 1).encode()
    checksum = f'"{_CHECKSUM}":"{zlib.crc32(data):08x}"'.encode()
    return data.replace(_NO_CHECKSUM, checksum, 1)


def decode(data: bytes) -> Json | None:
    """Return the metadata in a file, or None if it does not match its checksum, or if no version
    can be derived from it.
    """
    label = f'"{_CHECKSUM}":"'.encode()
    before, found, after = data.partition(label)
    checksum = after[:8]
    if not found or f"{zlib.crc32(before + _NO_CHECKSUM + after[9:]):08x}".encode() != checksum:
        return None
    try:
        metadata: Json = json.loads(data)
        _require(metadata)
        metadata["properties"][_CHECKSUM] = "00000000"
        metadata["snapshots"] = [*map(Snapshot, metadata["snapshots"])]
    except (*_MALFORMED, RecursionError):
        return None
    return metadata


_MALFORMED = (ValueError, TypeError, LookupError, AttributeError)


def _require(metadata: Json) -> None:
    """Raise an error if the next version cannot be derived from metadata.

    The checksum does not protect from other programs.
    """
    numbers = [metadata[name] for name in ("last-column-id", "last-updated-ms", "next-row-id")]
    schemas = [each["schema-id"] for each in metadata["schemas"]]
    snapshots, history = metadata["snapshots"], metadata["snapshot-log"]
    numbers += [*schemas, *(each["snapshot-id"] for each in (*snapshots, *history))]
    for number in numbers:
        natural(number)
    texts = [metadata["location"], *(each["manifest-list"] for each in snapshots)]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a text is missing")
    used = {metadata["current-schema-id"], *(each["schema-id"] for each in snapshots)}
    if not used <= set(schemas):
        raise ValueError("a schema is missing")
    for total in totals(metadata).values():
        natural(total)
    if not isinstance(metadata["metadata-log"], list):
        raise TypeError("a list is missing")
