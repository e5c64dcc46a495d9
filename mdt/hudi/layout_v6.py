"""What makes a table a version 6 table: its ``hoodie.properties``.

Version 6 is read by Hudi 0.14 to 1.x, hudi-rs and Trino.  How rows are merged follows the payload class, whatever else
is set, so it is always written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mdt.errors import Invalid
from mdt.hudi import properties

EVENT_TIME_PAYLOAD = "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
COMMIT_TIME_PAYLOAD = "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"
DATABASE = "default"
NAME_BYTES_MAX = 255


def table_properties(
    *,
    name: str,
    table_type: str,
    key_fields: Sequence[str],
    partition_fields: Sequence[str],
    ordering: str | None,
    schema_json: str,
    hive_style: bool = True,
    extra: Mapping[str, str],
) -> dict[str, str]:
    """Return the properties of a new version 6 table, checksum included.

    ``ordering``: the ordering field (event time: the larger value wins), or None (commit time: the later commit wins).
    ``schema_json``: Avro schema without meta columns.  ``extra`` may add properties but not change these.
    Raises Invalid for an empty, overlong or unprintable name and for ``extra`` that contradicts.
    """
    if not name.isprintable() or not name or len(name.encode()) > NAME_BYTES_MAX or name != name.strip():
        raise Invalid(f"{name!r} cannot name a table", hint=f"use 1 to {NAME_BYTES_MAX} bytes of printable text")
    found = {
        "hoodie.archivelog.folder": "archived",
        "hoodie.compaction.payload.class": COMMIT_TIME_PAYLOAD if ordering is None else EVENT_TIME_PAYLOAD,
        properties.DATABASE: DATABASE,
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.datasource.write.hive_style_partitioning": str(hive_style).lower(),
        "hoodie.datasource.write.partitionpath.urlencode": "true",
        "hoodie.populate.meta.fields": "true",
        "hoodie.table.base.file.format": "PARQUET",
        properties.CHECKSUM: properties.checksum(DATABASE, name),
        "hoodie.table.create.schema": schema_json,
        "hoodie.table.keygenerator.class": key_generator(key_fields, partition_fields),
        properties.NAME: name,
        "hoodie.table.recordkey.fields": ",".join(key_fields),
        "hoodie.table.timeline.timezone": "UTC",
        properties.TYPE: table_type,
        properties.VERSION: "6",
        properties.LAYOUT: "1",
    }
    if partition_fields:
        found["hoodie.table.partition.fields"] = ",".join(partition_fields)
    if ordering is not None:
        found["hoodie.table.precombine.field"] = ordering
    return _extended(found, extra)


def _extended(found: dict[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    for key, value in extra.items():
        if found.setdefault(key, value) != value:
            raise Invalid(f"{key} is {found[key]!r} for this table, not {value!r}", hint="leave the property out")
    return found


def key_generator(key_fields: Sequence[str], partition_fields: Sequence[str]) -> str:
    """Return Hudi's class that makes the same record keys and partition paths as we do.

    One key field with two or more partition fields needs the complex one, whose record key is ``value`` in Hudi 0.14.1 to
    1.0.2 (as ours) and ``field:value`` in other releases: a foreign writer on such a table must be set to the former.

    >>> key_generator(["id"], ["city"])
    'org.apache.hudi.keygen.SimpleKeyGenerator'
    >>> key_generator(["id", "n"], ["city"])
    'org.apache.hudi.keygen.ComplexKeyGenerator'
    """
    if not partition_fields:
        kind = "Nonpartitioned"
    else:
        kind = "Simple" if len(key_fields) == 1 and len(partition_fields) == 1 else "Complex"
    return f"org.apache.hudi.keygen.{kind}KeyGenerator"
