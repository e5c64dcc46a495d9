"""The log entry of a commit: a version of ``_delta_log`` as lines of JSON.

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#actions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from mdt.formats.data_files import DataFile
from mdt.formats.delta.columns import has_local_times, partition_columns, schema_json
from mdt.formats.delta.statistics import stats_json
from mdt.formats.delta.vectors import Descriptor
from mdt.formats.derivation import Derivation
from mdt.formats.uris import encoded
from mdt.hudi.partitions import NULL_PARTITION, unescape
from mdt.schema.definition import TableDefinition

Action = Mapping[str, Any]

OWN_FEATURE = "mdt-derived"
"""A feature that no other writer has, so that others refuse to write. Readers ignore it."""
_VECTORS, _LOCAL_TIMES = "deletionVectors", "timestampNtz"
_READER_VERSION, _WRITER_VERSION = 3, 7
"""The first versions with named features."""
_FOREVER = "interval 1000000 days"
"""A duration that no table outlives. Maintenance of other writers deletes no file before it."""


Vectors = Mapping[str, Descriptor]
"""Path of a file -> its deletion vector. Files without deleted rows are left out."""


def version_lines(derivation: Derivation, former: Vectors, added: Vectors) -> bytes:
    """Return the content of the version that a commit makes.

    Args:
        former: Vectors of the files that it removes.
        added: Vectors of the files that it adds.
    """
    lines = map(_compact, _actions(derivation, former, added))
    return ("\n".join(lines) + "\n").encode()


_compact = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def _actions(derivation: Derivation, former: Vectors, added: Vectors) -> Iterator[Action]:
    record, definition, change = derivation.record, derivation.definition, derivation.change
    at_ms = derivation.at_ms
    yield {
        "commitInfo": {
            "timestamp": at_ms,
            "operation": str(record.header["operation"]),
            "operationParameters": {},
            "engineInfo": "mdt",
            "txnId": record.txn,
        }
    }
    if derivation.is_first or record.alters:
        yield from table_actions(definition)
    changes_rows = derivation.changes_rows
    for file in change.removed:
        vector = former.get(file.path)
        yield {"remove": _remove(file, definition, at_ms, changes_rows, vector)}
    for file in change.added:
        yield {"add": add(file, definition, at_ms, changes_rows, added.get(file.path))}


def table_actions(definition: TableDefinition) -> Iterator[Action]:
    """Yield the actions that describe the table: its protocol, and its columns."""
    features = [_VECTORS] if definition.is_mor else []
    if has_local_times(definition.declared):
        features.append(_LOCAL_TIMES)
    yield {
        "protocol": {
            "minReaderVersion": _READER_VERSION,
            "minWriterVersion": _WRITER_VERSION,
            "readerFeatures": features,
            "writerFeatures": [*features, OWN_FEATURE],
        }
    }
    schema = schema_json(definition.schema, definition.declared)
    yield {
        "metaData": {
            "id": str(UUID(definition.table_id)),
            "name": definition.name,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": _compact(schema),
            "partitionColumns": list(partition_columns(definition)),
            "configuration": _configuration(definition),
        }
    }


def _configuration(definition: TableDefinition) -> dict[str, str]:
    configuration = {
        "delta.deletedFileRetentionDuration": _FOREVER,
        "delta.logRetentionDuration": _FOREVER,
    }
    if definition.is_mor:
        configuration["delta.enableDeletionVectors"] = "true"
    return configuration


def add(
    file: DataFile,
    definition: TableDefinition,
    at_ms: int,
    changes: bool,
    vector: Descriptor | None,
) -> dict[str, Any]:
    """Return the fields of the action that adds a file.

    Args:
        at_ms: Time of the commit in milliseconds since 1970.
        changes: False if a commit only moves rows.
        vector: Its deletion vector.
    """
    fields: dict[str, Any] = {
        "path": encoded(file.path),
        "partitionValues": _partition_values(file, definition),
        "size": file.size,
        "modificationTime": at_ms,
        "dataChange": changes,
        "stats": stats_json(file, definition),
    }
    return _with_vector(fields, vector)


def _remove(
    file: DataFile,
    definition: TableDefinition,
    at_ms: int,
    changes: bool,
    vector: Descriptor | None,
) -> dict[str, Any]:
    fields = {
        "path": encoded(file.path),
        "deletionTimestamp": at_ms,
        "dataChange": changes,
        "extendedFileMetadata": True,
        "partitionValues": _partition_values(file, definition),
        "size": file.size,
    }
    return _with_vector(fields, vector)


def _with_vector(fields: dict[str, Any], vector: Descriptor | None) -> dict[str, Any]:
    return fields if vector is None else {**fields, "deletionVector": vector}


def _partition_values(file: DataFile, definition: TableDefinition) -> dict[str, str | None]:
    columns = partition_columns(definition)
    values = {}
    for column, name in zip(columns, file.partition.split("/"), strict=False):
        text = name.partition("=")[2]
        values[column] = None if text == NULL_PARTITION else unescape(text)
    return values
