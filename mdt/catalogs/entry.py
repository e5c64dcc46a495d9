"""What a catalog is told about a table, and how a table is called in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import SplitResult, urlsplit

import pyarrow as pa

from mdt.arguments import one_text, shown
from mdt.errors import Invalid, Unsupported
from mdt.formats.delta.columns import partition_columns, schema_json
from mdt.formats.delta.log import DeltaLog
from mdt.hudi.avro_schema import with_meta
from mdt.hudi.partitions import partition_values
from mdt.metadata.snapshot.live_partitions import live_paths
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.definition import TableDefinition
from mdt.schema.names import avro_name, in_files

_SQL = {"integer": "int", "long": "bigint"}
"""Type in Spark's JSON -> its name in SQL, where they differ."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A table, as a catalog is told about it.

    Attributes:
        url: URL of its directory, without a slash at the end.
        columns: All columns under the names of Hudi's files, Hudi's meta columns first and
            partition columns last.
        partition_by: Names of the partition columns.
        partitions: Paths of the partitions with rows.
        values: Values of the partition columns as texts, one list for each path. None is null.
        is_merge_on_read: True if readers have to merge log files.
        delta_columns: Fields of the schema in the Delta log, empty without one.
        delta_partition_by: Names of the partition columns in the Delta log.
    """

    url: str
    columns: pa.Schema
    partition_by: tuple[str, ...]
    partitions: Sequence[str]
    values: Sequence[Sequence[str | None]]
    is_merge_on_read: bool
    delta_columns: Sequence[Mapping[str, Any]]
    delta_partition_by: tuple[str, ...]


class Catalog(Protocol):
    """A place where engines look tables up by name."""

    def add(self, entry: Entry, namespace: str, name: str) -> None:
        """Enter a table, or bring its entry up to date.

        Raises Invalid if another table has the name or there is no such namespace, and Unavailable.
        """


def entry_of(snapshot: Snapshot, url: str) -> Entry:
    """Return what catalogs are told about a table. O(files).

    Args:
        url: Path or URL of the table.

    Raises Unsupported for a table in memory.
    """
    url = url.rstrip("/")
    if url.startswith("mdt-memory:"):
        raise Unsupported("a table in memory cannot be registered: no other process can read it")
    definition = snapshot.definition
    by = tuple(map(avro_name, definition.partition_by))
    fields = in_files(definition.schema)
    kept = [field for field in fields if field.name not in by]
    paths = live_paths(snapshot) if by else []
    return Entry(
        f"file://{url}" if url.startswith("/") else url,
        with_meta(pa.schema([*kept, *map(fields.field, by)])),
        by,
        paths,
        _values(snapshot, paths, by),
        definition.is_mor,
        _delta_columns(definition),
        partition_columns(definition),
    )


def _delta_columns(definition: TableDefinition) -> Sequence[Mapping[str, Any]]:
    if DeltaLog.name not in definition.other_formats:
        return []
    fields: Sequence[Mapping[str, Any]] = schema_json(definition.schema, definition.declared)[
        "fields"
    ]
    return fields


def _values(
    snapshot: Snapshot, paths: Sequence[str], by: Sequence[str]
) -> Sequence[Sequence[str | None]]:
    definition = snapshot.definition
    if definition.time_path is not None:  # such a path has the levels of its pattern
        return [[path] for path in paths]
    if not by:
        return []
    schema = pa.schema([(name, pa.string()) for name in by])
    rows = partition_values(paths, schema, definition.hive_style).to_pylist()
    return [[row[name] for name in by] for row in rows]


def split_url(url: str) -> SplitResult | None:
    """Return the parts of the address of a server, None if it has no host, a wrong port, or
    characters that are not printable ASCII.

    >>> split_url("https://lake.example.com:8181/api").port
    8181
    >>> split_url("https://lake.example.com:port") is None
    True
    """
    try:
        parts = urlsplit(url)
        is_usable = parts.port != 0 and url.isascii() and url.isprintable()
    except ValueError:
        return None
    return parts if is_usable and parts.hostname else None


def split_name(name: Any) -> tuple[str, str]:
    """Return the namespace and the name of a table. Raises Invalid for other texts.

    >>> split_name("lake.raw.trips")
    ('lake.raw', 'trips')
    """
    namespace, _, table = one_text("name", name, "'lake.trips'").rpartition(".")
    if not table or not all(namespace.split(".")):
        raise Invalid(
            f"{shown(name)} does not name a namespace and a table", hint="write 'lake.trips'"
        )
    return namespace, table


def sql_type(type: str | Mapping[str, Any]) -> str:
    """Return a type in the JSON of Spark and Delta as Spark's SQL writes it.

    >>> sql_type({"type": "array", "elementType": "long", "containsNull": True})
    'array<bigint>'
    """
    if isinstance(type, str):
        return _SQL.get(type, type)
    if type["type"] == "array":
        return f"array<{sql_type(type['elementType'])}>"
    if type["type"] == "map":
        return f"map<{sql_type(type['keyType'])},{sql_type(type['valueType'])}>"
    fields = ",".join(f"{field['name']}:{sql_type(field['type'])}" for field in type["fields"])
    return f"struct<{fields}>"
