"""Entries in a Hive metastore, as Hudi's own synchronization makes them.

The requests are those of Hive's Thrift interface (``hive_metastore.thrift`` of Apache Hive 2 to 4).
A table has the input format of Hudi, which Hive, Presto and Trino look for, and the properties by
which Spark finds Hudi's data source. A merge-on-read table has a second entry with the suffix
``_ro`` for queries of base files only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from hive_metastore import ttypes
from hive_metastore.ThriftHiveMetastore import Client
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from mdt.catalogs.entry import Entry, sql_type
from mdt.errors import Invalid, Unavailable
from mdt.formats.types import FLAT
from mdt.hudi.partitions import NULL_PARTITION

_PORT = 9083
_TIMEOUT_MS = 60_000
_BATCH = 500
"""Partitions of a request."""
_INPUT = "org.apache.hudi.hadoop.HoodieParquetInputFormat"
_MERGING_INPUT = "org.apache.hudi.hadoop.realtime.HoodieParquetRealtimeInputFormat"
_OUTPUT = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"
_SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
_PROVIDER = "spark.sql.sources.provider"
_SCHEMA = "spark.sql.sources.schema"
_SCHEMA_PART = 4000
"""Characters of a property. Metastores on some databases keep no more."""
_NAMES: Mapping[pa.DataType, str] = {
    **FLAT,
    pa.int32(): "integer",
    pa.timestamp("ms", "UTC"): "timestamp",
    pa.timestamp("us", "UTC"): "timestamp",
}
"""Stored type -> its name in Spark's JSON."""


def add(url: str, entry: Entry, database: str, name: str) -> None:
    """Enter a table in the metastore at ``url``. See :meth:`mdt.catalogs.HiveMetastore.add`."""
    with _client(url) as client:
        _add(client, entry, database, name, is_merged=entry.is_merge_on_read)
        if entry.is_merge_on_read:
            _add(client, entry, database, f"{name}_ro", is_merged=False)


@contextmanager
def _client(url: str) -> Iterator[Client]:
    """Connect to a metastore for a while. Raises Unavailable for errors of the metastore."""
    parts = urlsplit(url)
    socket = TSocket(parts.hostname, parts.port or _PORT)
    socket.setTimeout(_TIMEOUT_MS)
    transport = TBufferedTransport(socket)
    try:
        transport.open()
        yield Client(TBinaryProtocol(transport))
    except (ttypes.MetaException, TException, OSError) as error:
        text = getattr(error, "message", None) or error
        raise Unavailable(f"{url} failed: {type(error).__name__}: {text}") from error
    finally:
        transport.close()


def _add(client: Client, entry: Entry, database: str, name: str, *, is_merged: bool) -> None:
    """Enter a table under a name, or bring its entry up to date."""
    wanted = _table(entry, database, name, is_merged=is_merged)
    try:
        found = client.get_table(database, name)
    except ttypes.NoSuchObjectException:
        try:
            client.create_table(wanted)
        except (ttypes.NoSuchObjectException, ttypes.InvalidObjectException) as error:
            raise Invalid(
                f"the metastore refused the table {database}.{name}: {error.message}",
                hint="create the database first",
            ) from error
    else:
        _require_same(found, entry, f"{database}.{name}")
        found.sd.cols, found.parameters = wanted.sd.cols, found.parameters | wanted.parameters
        client.alter_table(database, name, found)
    if entry.partition_by:
        _update_partitions(client, entry, wanted)


def _update_partitions(client: Client, entry: Entry, table: Any) -> None:
    """Add the partitions that the entry of a table lacks, and remove those without rows.

    Args:
        table: The entry as it should be.
    """
    database, name = table.dbName, table.tableName
    paths = dict(zip(map(_texts, entry.values), entry.partitions, strict=True))
    known = {tuple(part.values) for part in client.get_partitions(database, name, -1)}
    parts = [
        ttypes.Partition(
            values=list(values),
            dbName=database,
            tableName=name,
            sd=_storage(table.sd.cols, table.sd, f"{entry.url}/{path}"),
            parameters={},
        )
        for values, path in paths.items()
        if values not in known
    ]
    for start in range(0, len(parts), _BATCH):
        client.add_partitions_req(
            ttypes.AddPartitionsRequest(
                dbName=database,
                tblName=name,
                parts=parts[start : start + _BATCH],
                ifNotExists=True,
                needResult=False,
            )
        )
    for values in known - paths.keys():
        client.drop_partition(database, name, list(values), False)


def _texts(values: Sequence[str | None]) -> tuple[str, ...]:
    return tuple(NULL_PARTITION if value is None else value for value in values)


def _require_same(found: Any, entry: Entry, name: str) -> None:
    """Raise Invalid unless the entry that exists is that of the table."""
    place = urlsplit(found.sd.location or "")
    own = urlsplit(entry.url)
    is_same = (place.scheme, place.netloc, place.path.rstrip("/")) == (
        own.scheme,
        own.netloc,
        own.path,
    )
    if not is_same or found.parameters.get(_PROVIDER) != "hudi":
        raise Invalid(
            f"{name} is another table in the metastore, at {found.sd.location}",
            hint="drop it from the metastore, or choose another name",
        )


def _table(entry: Entry, database: str, name: str, *, is_merged: bool) -> Any:
    """Return the entry of a table."""
    columns = [
        ttypes.FieldSchema(name=field.name, type=hive_type(field.type), comment="")
        for field in entry.columns
    ]
    split = len(columns) - len(entry.partition_by)
    storage = ttypes.StorageDescriptor(
        inputFormat=_MERGING_INPUT if is_merged else _INPUT,
        outputFormat=_OUTPUT,
        serdeInfo=ttypes.SerDeInfo(
            serializationLib=_SERDE,
            parameters={
                "path": entry.url,
                "hoodie.query.as.ro.table": str(entry.is_merge_on_read and not is_merged).lower(),
            },
        ),
    )
    return ttypes.Table(
        tableName=name,
        dbName=database,
        sd=_storage(columns[:split], storage, entry.url),
        partitionKeys=columns[split:],
        parameters=_properties(entry),
        tableType="EXTERNAL_TABLE",
    )


def _storage(columns: list[Any], like: Any, location: str) -> Any:
    """Return where and how rows are stored."""
    return ttypes.StorageDescriptor(
        cols=columns,
        location=location,
        inputFormat=like.inputFormat,
        outputFormat=like.outputFormat,
        serdeInfo=like.serdeInfo,
        compressed=False,
        numBuckets=-1,
        bucketCols=[],
        sortCols=[],
        parameters={},
    )


def _properties(entry: Entry) -> dict[str, str]:
    """Return the properties of a table by which Spark finds Hudi's data source."""
    schema = json.dumps(spark_schema(entry.columns), separators=(",", ":"))
    parts = [schema[at : at + _SCHEMA_PART] for at in range(0, len(schema), _SCHEMA_PART)]
    properties = {
        "EXTERNAL": "TRUE",
        _PROVIDER: "hudi",
        f"{_SCHEMA}.numParts": str(len(parts)),
        f"{_SCHEMA}.numPartCols": str(len(entry.partition_by)),
    }
    properties |= {f"{_SCHEMA}.part.{number}": part for number, part in enumerate(parts)}
    properties |= {f"{_SCHEMA}.partCol.{n}": name for n, name in enumerate(entry.partition_by)}
    return properties


def hive_type(type: pa.DataType) -> str:
    """Return the name of a stored type in Hive.

    >>> hive_type(pa.struct([("a", pa.list_(pa.int64())), ("b", pa.decimal128(9, 2))]))
    'struct<a:array<bigint>,b:decimal(9,2)>'
    """
    return sql_type(_spark_type(type))


def spark_schema(schema: pa.Schema | pa.StructType) -> dict[str, Any]:
    """Return stored columns as Spark's JSON of a schema.

    >>> spark_schema(pa.schema([pa.field("on", pa.date32(), nullable=False)]))["fields"]
    [{'name': 'on', 'type': 'date', 'nullable': False, 'metadata': {}}]
    """
    fields = [
        {
            "name": field.name,
            "type": _spark_type(field.type),
            "nullable": field.nullable,
            "metadata": {},
        }
        for field in schema
    ]
    return {"type": "struct", "fields": fields}


def _spark_type(type: pa.DataType) -> Any:
    if type in _NAMES:
        return _NAMES[type]
    if pa.types.is_decimal(type):
        return f"decimal({type.precision},{type.scale})"
    if pa.types.is_map(type):
        return {
            "type": "map",
            "keyType": _spark_type(type.key_type),
            "valueType": _spark_type(type.item_type),
            "valueContainsNull": type.item_field.nullable,
        }
    if pa.types.is_list(type):
        return {
            "type": "array",
            "elementType": _spark_type(type.value_type),
            "containsNull": type.value_field.nullable,
        }
    return spark_schema(type)
