"""The Avro schema of Hudi's metadata table, as each of its commits names it.

Hudi compacts the records of all partitions with it, so it has all their fields, in Hudi's order
(Apache Hudi 1.2, ``HoodieMetadata.avsc``). The files that we write have schemas with fewer fields.
"""

from __future__ import annotations

import json

from mdt.hudi.avro import NAMESPACE, WRAPPED, array, field, mapping, optional, record

TEXT = {"type": "string", "avro.java.string": "String"}
"""A text that Java reads as its String."""
VALUES = {
    **WRAPPED,
    "StringWrapper": TEXT,
    "DateWrapper": "int",
    "TimestampMicrosWrapper": "long",
    "LocalDateWrapper": "int",
}
"""Records of bounds -> type of their value, in the order of Hudi's union."""
_ARRAY = record("ArrayWrapper", optional("wrappedValues", array(["null", *VALUES])))
_WRAPPERS = [*(record(name, field("value", type)) for name, type in VALUES.items()), _ARRAY]
FILE = record("HoodieMetadataFileInfo", field("size", "long"), field("isDeleted", "boolean"))
"""Size of a file, or that it is deleted."""
VALUE_TYPE = record(
    "HoodieValueTypeInfo", field("typeOrdinal", "int"), optional("additionalInfo", TEXT)
)
"""Type of bounds since table version 9."""
BLOOM = optional(
    "BloomFilterMetadata",
    record(
        "HoodieMetadataBloomFilter",
        field("type", TEXT),
        field("timestamp", TEXT),
        field("bloomFilter", "bytes"),
        field("isDeleted", "boolean"),
    ),
)
"""The field with the Bloom filter of a base file."""
_STATISTICS = record(
    "HoodieMetadataColumnStats",
    optional("fileName", TEXT),
    optional("columnName", TEXT),
    {"name": "minValue", "type": ["null", *_WRAPPERS], "default": None},
    {"name": "maxValue", "type": ["null", *VALUES, "ArrayWrapper"], "default": None},
    *(
        optional(name, "long")
        for name in ("valueCount", "nullCount", "totalSize", "totalUncompressedSize")
    ),
    field("isDeleted", "boolean"),
    {**field("isTightBound", "boolean"), "default": False},
    optional("valueType", VALUE_TYPE),
)
LOCATION = optional(
    "recordIndexMetadata",
    record(
        "HoodieRecordIndexInfo",
        optional("partitionName", TEXT),
        optional("fileIdHighBits", "long"),
        optional("fileIdLowBits", "long"),
        optional("fileIndex", "int"),
        optional("fileId", TEXT),
        optional("instantTime", "long"),
        {**field("fileIdEncoding", "int"), "default": 0},
        optional("position", "long"),
    ),
)
"""The field with the file group of a record key."""
SECONDARY = optional(
    "SecondaryIndexMetadata",
    record("HoodieSecondaryIndexInfo", field("isDeleted", "boolean")),
)
"""The field that says if the row of a value and a record key is deleted."""

TABLE_SCHEMA = json.dumps(
    record(
        "HoodieMetadataRecord",
        field("key", TEXT),
        field("type", "int"),
        {
            "name": "filesystemMetadata",
            "type": ["null", {**mapping(FILE), "avro.java.string": "String"}],
        },
        BLOOM,
        optional("ColumnStatsMetadata", _STATISTICS),
        LOCATION,
        SECONDARY,
        namespace=NAMESPACE,
    ),
    separators=(",", ":"),
)
"""The schema as JSON."""
