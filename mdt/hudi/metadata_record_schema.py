"""The Avro schema of Hudi's metadata table, as each of its commits names it.

Hudi compacts the records of all partitions with it, so it has all their fields, in Hudi's order
(Apache Hudi 1.2, ``HoodieMetadata.avsc``). The files that we write have schemas with fewer fields.
"""

from __future__ import annotations

import json

from mdt.hudi.avro import NAMESPACE, array, field, mapping, optional, record

_TEXT = {"type": "string", "avro.java.string": "String"}
_VALUES = {
    "BooleanWrapper": "boolean",
    "IntWrapper": "int",
    "LongWrapper": "long",
    "FloatWrapper": "float",
    "DoubleWrapper": "double",
    "BytesWrapper": "bytes",
    "StringWrapper": _TEXT,
    "DateWrapper": "int",
    "DecimalWrapper": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15},
    "TimeMicrosWrapper": {"type": "long", "logicalType": "time-micros"},
    "TimestampMicrosWrapper": "long",
    "LocalDateWrapper": "int",
}
"""Records of bounds -> type of their value."""
_ARRAY = record("ArrayWrapper", optional("wrappedValues", array(["null", *_VALUES])))
_WRAPPERS = [*(record(name, field("value", type)) for name, type in _VALUES.items()), _ARRAY]
_FILE = record("HoodieMetadataFileInfo", field("size", "long"), field("isDeleted", "boolean"))
_BLOOM = record(
    "HoodieMetadataBloomFilter",
    field("type", _TEXT),
    field("timestamp", _TEXT),
    field("bloomFilter", "bytes"),
    field("isDeleted", "boolean"),
)
_STATISTICS = record(
    "HoodieMetadataColumnStats",
    optional("fileName", _TEXT),
    optional("columnName", _TEXT),
    {"name": "minValue", "type": ["null", *_WRAPPERS], "default": None},
    {"name": "maxValue", "type": ["null", *_VALUES, "ArrayWrapper"], "default": None},
    *(
        optional(name, "long")
        for name in ("valueCount", "nullCount", "totalSize", "totalUncompressedSize")
    ),
    field("isDeleted", "boolean"),
    {**field("isTightBound", "boolean"), "default": False},
    optional(
        "valueType",
        record(
            "HoodieValueTypeInfo", field("typeOrdinal", "int"), optional("additionalInfo", _TEXT)
        ),
    ),
)
LOCATION = optional(
    "recordIndexMetadata",
    record(
        "HoodieRecordIndexInfo",
        optional("partitionName", _TEXT),
        optional("fileIdHighBits", "long"),
        optional("fileIdLowBits", "long"),
        optional("fileIndex", "int"),
        optional("fileId", _TEXT),
        optional("instantTime", "long"),
        {**field("fileIdEncoding", "int"), "default": 0},
        optional("position", "long"),
    ),
)
"""The field with the file group of a record key."""

TABLE_SCHEMA = json.dumps(
    record(
        "HoodieMetadataRecord",
        field("key", _TEXT),
        field("type", "int"),
        {
            "name": "filesystemMetadata",
            "type": ["null", {**mapping(_FILE), "avro.java.string": "String"}],
        },
        optional("BloomFilterMetadata", _BLOOM),
        optional("ColumnStatsMetadata", _STATISTICS),
        LOCATION,
        optional(
            "SecondaryIndexMetadata",
            record("HoodieSecondaryIndexInfo", field("isDeleted", "boolean")),
        ),
        namespace=NAMESPACE,
    ),
    separators=(",", ":"),
)
"""The schema as JSON."""
