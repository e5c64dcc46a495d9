"""Records of the partitions ``column_stats`` and ``partition_stats`` of Hudi's metadata table.

There is a record for each column of each data file, with bounds, the number of rows and of nulls.
Its key is made of hashes of the column, the partition and the name of the file. Readers skip a file
whose bounds exclude a filter. If a file has records of other columns, they take a missing one for
a column of nulls, so a file has records of all columns or none. They join the bounds of several
records with the same key, so the record of a file never changes until it is deleted. The records of
``partition_stats`` have the same form, and a path of a partition in the place of a file.

The records of all files of a column are encoded at once. The form of bounds depends on the table
version (:data:`FORMS`). The fields of a record are those of Apache Hudi, ``HoodieMetadata.avsc``.
Avro resolves them by name, and the type of the bounds precedes the flags, so that each record ends
with them.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import ClassVar

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes import values as order
from mdt.errors import Corrupt
from mdt.hudi import avro_values
from mdt.hudi.avro import field, optional, record
from mdt.hudi.metadata_record_schema import TEXT, VALUE_TYPE, VALUES
from mdt.hudi.plain_arrays import plain
from mdt.hudi.read import hfile_entries
from mdt.hudi.read.hfile_format import ENTRIES
from mdt.hudi.read.metadata_state import FOLDER
from mdt.hudi.read.untrusted_avro import DAMAGE
from mdt.hudi.xxhash64 import xxhash64
from mdt.parquet.thrift import varint

_SCALE, _PRECISION = 15, 30
"""Hudi stores bounds of decimals as decimal(30, 15)."""
_BRANCHES = {name: bytes([2 * (place + 1)]) for place, name in enumerate(VALUES)}
"""Record of a bound -> its number in the union, encoded."""
_NULL, _NOT_NULL = b"\0", b"\2"
_TRUE, _FALSE = b"\1", b"\0"
_STATS = record(
    "HoodieMetadataColumnStats",
    optional("fileName", TEXT),
    optional("columnName", TEXT),
    {
        "name": "minValue",
        "type": ["null", *(record(name, field("value", t)) for name, t in VALUES.items())],
        "default": None,
    },
    {"name": "maxValue", "type": ["null", *VALUES], "default": None},
    optional("valueCount", "long"),
    optional("nullCount", "long"),
    optional("totalSize", "long"),
    optional("totalUncompressedSize", "long"),
    optional("valueType", VALUE_TYPE),
    field("isDeleted", "boolean"),
    {**field("isTightBound", "boolean"), "default": False},
)
FIELD = optional("ColumnStatsMetadata", _STATS)
"""The field of a record of the metadata table, after its key, its type, and names of files."""
_HEAD = b"\0\6" + _NULL + _NOT_NULL
"""No key, which the entry has, the type of column statistics, no names, and the statistics."""
_PARTITION_HEAD = b"\0\x0c" + _NULL + _NOT_NULL
"""The same with the type of statistics of partitions."""
_DELETED_PLACE = -2
"""Place of the flag of a deleted record among its bytes."""
_SEED = 0xFFFFFFFFDABADABA
_CHARACTER_BYTES_MAX = 4
HASH_CHARACTERS = 12
"""Characters of a hash in a key."""
_SIGN = np.uint64(1 << 63)
_NO_PARTITION = "."

RANGES = pa.schema(
    [
        ("min", pa.binary()),
        ("max", pa.binary()),
        ("rows", pa.int64()),
        ("nulls", pa.int64()),
        ("bytes", pa.int64()),
    ]
)
"""Statistics of a column, a row for each file.

min, max: Bounds as keys (:mod:`indexes.values`), which may lie outside of all values. Null if the
column has nulls only. rows, nulls: Numbers of rows and of nulls. bytes: Size of the column.
"""


@dataclass(frozen=True, slots=True)
class FileKeys:
    """Names of n files as parts of keys and values.

    Attributes:
        suffixes: What follows the column in a key, large_binary[n].
        names: Names in Avro's encoding, large_binary[n].
        head: Begin of each value.
    """

    suffixes: pa.Array
    names: pa.Array
    head: bytes = _HEAD

    @classmethod
    def from_files(cls, partitions: Iterable[str], names: list[str]) -> FileKeys:
        """Return the keys of the files ``names`` in the paths ``partitions``, "" for none."""
        hashes: dict[str, bytes] = {}
        suffixes = []
        for partition, name in zip(partitions, names, strict=True):
            if partition not in hashes:
                hashes[partition] = _hash(partition or _NO_PARTITION)
            digest = hashlib.md5(name.encode(), usedforsecurity=False).digest()
            suffixes.append(hashes[partition] + base64.b64encode(digest))
        texts = avro_values.texts(pa.array(names, pa.large_string()))
        return cls(pa.array(suffixes, pa.large_binary()), texts)

    @classmethod
    def from_partitions(cls, partitions: list[str]) -> FileKeys:
        """Return the keys of whole partitions, in ``partition_stats``."""
        suffixes = [_hash(partition or _NO_PARTITION) for partition in partitions]
        texts = avro_values.texts(pa.array(partitions, pa.large_string()))
        return cls(pa.array(suffixes, pa.large_binary()), texts, _PARTITION_HEAD)


def _hash(text: str) -> bytes:
    return base64.b64encode(struct.pack(">Q", xxhash64(text.encode(), _SEED)))


class Form1:
    """The form of bounds before table version 9: each type has a record of its own.

    Attributes:
        version: Hudi's version of the index.
    """

    version = "V1"

    def supports(self, type: pa.DataType) -> bool:
        """Return True if there is a form for bounds of columns of ``type``, a stored type.

        >>> [Form1().supports(pa.decimal128(digits, 2)) for digits in (9, 38)]
        [True, False]
        >>> Form1().supports(pa.list_(pa.int32()))
        False
        """
        if pa.types.is_decimal(type):
            digits = type.precision - type.scale
            return 0 <= type.scale <= _SCALE and digits <= _PRECISION - _SCALE
        return order.supports(type)

    def value_type(self, type: pa.DataType | None) -> bytes:
        """Return the encoded type of bounds. None for the type of a deleted record."""
        return _NULL

    def wrapped(self, keys: pa.Array, type: pa.DataType) -> tuple[str, pa.Array]:
        """Return the record of bounds and their values in it. Those of nulls are undefined."""
        match order.kind_of(type):
            case "bool":
                return "BooleanWrapper", pc.cast(keys.fill_null(_FALSE), pa.large_binary())
            case "int":
                name = "IntWrapper" if type.bit_width <= 32 else "LongWrapper"
                return name, avro_values.longs(_integers(keys))
            case "date":
                return "DateWrapper", avro_values.longs(_integers(keys))
            case "timestamp":
                return "TimestampMicrosWrapper", avro_values.longs(_integers(keys))
            case "float":
                name = "FloatWrapper" if type.bit_width == 32 else "DoubleWrapper"
                return name, avro_values.fixed(_floats(keys, type.bit_width))
            case "string":
                return "StringWrapper", avro_values.texts(keys.fill_null(b""))
            case "decimal":
                return "DecimalWrapper", avro_values.texts(_decimals(keys, _SCALE - type.scale))
        return "BytesWrapper", avro_values.texts(keys.fill_null(b""))


class Form2(Form1):
    """The form of bounds since table version 9: primitive values, with Hudi's number of their type.

    Hudi's writers fail on a wrong number.
    """

    version = "V2"

    _NO_TYPE = 1
    _TYPES: ClassVar[dict[order.Kind, int]] = {
        "bool": 2,
        "string": 7,
        "binary": 8,
        "decimal": 10,
        "date": 12,
    }

    def supports(self, type: pa.DataType) -> bool:
        """Return True if there is a form for bounds of columns of ``type``, a stored type.

        >>> Form2().supports(pa.decimal128(38, 2))
        True
        """
        return order.supports(type)

    def value_type(self, type: pa.DataType | None) -> bytes:
        """Return the encoded type of bounds. None for the type of a deleted record."""
        parameters = _NULL
        if type is not None and pa.types.is_decimal(type):
            digits = f"{type.precision},{type.scale}".encode()
            parameters = _NOT_NULL + varint(2 * len(digits)) + digits
        return _NOT_NULL + varint(2 * self._number(type)) + parameters

    def _number(self, type: pa.DataType | None) -> int:
        """Return Hudi's number of a type."""
        if type is None:
            return self._NO_TYPE
        match order.kind_of(type):
            case "int":
                return 3 if type.bit_width <= 32 else 4
            case "float":
                return 5 if type.bit_width == 32 else 6
            case "timestamp":
                if type.tz is None:  # local timestamps
                    return 18 if type.unit == "ms" else 19
                return 15 if type.unit == "ms" else 16
            case kind:
                assert kind is not None, "a type with bounds"
                return self._TYPES[kind]

    def wrapped(self, keys: pa.Array, type: pa.DataType) -> tuple[str, pa.Array]:
        """Return the record of bounds and their values in it. Those of nulls are undefined."""
        match order.kind_of(type):
            case "date":
                return "IntWrapper", avro_values.longs(_integers(keys))
            case "timestamp":
                unit = 1000 if type.unit == "ms" else 1
                return "LongWrapper", avro_values.longs(_integers(keys) // unit)
            case "decimal":
                return "BytesWrapper", avro_values.texts(_decimals(keys, 0))
        return super().wrapped(keys, type)


FORMS: Mapping[int, Form1] = {6: Form1(), 9: Form2()}
"""Version of a table -> form of its bounds."""


def entries(
    form: Form1, files: FileKeys, column: str, type: pa.DataType, ranges: pa.Table
) -> pa.RecordBatch:
    """Return the entries of a column of n files, unsorted.

    Args:
        column: Its name in Hudi's files.
        type: Its type in Hudi's files, which ``form`` supports.
        ranges: RANGES [n].
    """
    rows, nulls, size = (_longs(ranges[name]) for name in ("rows", "nulls", "bytes"))
    values = avro_values.join(
        *_names(files, column),
        _bounds(form, _lower(plain(ranges["min"]), type), type),
        _bounds(form, plain(ranges["max"]), type),
        _NOT_NULL,
        rows,
        _NOT_NULL,
        nulls,
        _NOT_NULL + b"\0" + _NOT_NULL,  # the size in the file is not known
        size,
        form.value_type(type) + _FALSE + _FALSE,
    )
    return _entries(files, column, values)


def deletions(form: Form1, files: FileKeys, column: str) -> pa.RecordBatch:
    """Return the entries that delete those of a column of n files, unsorted."""
    end = 6 * _NULL + form.value_type(None) + _TRUE + _FALSE
    values = avro_values.join(*_names(files, column), end)
    return _entries(files, column, values)


def merge(parts: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the last entry of each key, sorted by key, without those that were deleted.

    Args:
        parts: Entries of this module, oldest first. The keys of a part differ.

    Raises Corrupt for an entry that is too short.
    """
    merged = hfile_entries.merge(parts)
    shortest = pc.min(pc.binary_length(merged["value"])).as_py()
    if shortest is not None and shortest < -_DELETED_PLACE:
        raise _damaged(f"it has {shortest} bytes")
    ends = avro_values.edges(merged["value"])[1:]
    flags = np.frombuffer(merged["value"].buffers()[2] or b"", np.uint8)[ends + _DELETED_PLACE]
    return merged.filter(pa.array(flags == 0))


def column_prefix(column: str) -> bytes:
    """Return the begin of the keys of a column."""
    return _hash(column)


def suffix_of(key: bytes) -> bytes:
    """Return what follows the column in a key, as in :class:`FileKeys`."""
    return key[HASH_CHARACTERS:]


def name_in(value: bytes) -> str:
    """Return the name of the file in a value of this module. Raises Corrupt for other bytes."""
    start = len(_HEAD) + len(_NOT_NULL)
    try:
        return str(fastavro.schemaless_reader(BytesIO(value[start:]), "string", None))
    except DAMAGE as error:
        raise _damaged(str(error)[:200]) from error


def _damaged(reason: str) -> Corrupt:
    return Corrupt(
        f"an entry of Hudi's column statistics cannot be read: {reason}",
        path=f"{FOLDER}/column_stats",
    )


def _names(files: FileKeys, column: str) -> tuple[bytes | pa.Array, ...]:
    [name] = avro_values.texts(pa.array([column])).to_pylist()
    return files.head + _NOT_NULL, files.names, _NOT_NULL + name


def _entries(files: FileKeys, column: str, values: pa.Array) -> pa.RecordBatch:
    keys = avro_values.join(column_prefix(column), files.suffixes)
    return pa.record_batch([keys, values], schema=ENTRIES)


def _longs(values: pa.ChunkedArray) -> pa.Array:
    return avro_values.longs(values.to_numpy().astype(np.int64))


def _bounds(form: Form1, keys: pa.Array, type: pa.DataType) -> pa.Array:
    """Return bounds with the number of their record in the union -> large_binary[n]."""
    wrapper, values = form.wrapped(keys, type)
    tagged = avro_values.join(_BRANCHES[wrapper], values)
    return pc.if_else(keys.is_valid(), tagged, pa.scalar(_NULL, pa.large_binary()))


def _words(keys: pa.Array) -> npt.NDArray[np.uint64]:
    data = avro_values.join(keys.cast(pa.large_binary()).fill_null(bytes(8)))
    return np.frombuffer(data.buffers()[2] or b"", ">u8", len(keys)).astype(np.uint64)


def _integers(keys: pa.Array) -> npt.NDArray[np.int64]:
    return (_words(keys) ^ _SIGN).view(np.int64)


def _floats(keys: pa.Array, bits: int) -> npt.NDArray[np.floating]:
    words = _words(keys)
    values = np.where(words & _SIGN, words ^ _SIGN, ~words).view(np.float64)
    return values.astype(f"<f{bits // 8}")


def _lower(keys: pa.Array, type: pa.DataType) -> pa.Array:
    """Return lower bounds that Hudi's readers may use: the first character of texts.

    For a prefix, Hudi 1.2 requires that the prefix itself is between the bounds, and would skip
    files whose lower bound begins with it.
    """
    if order.kind_of(type) != "string":
        return keys
    starts = pc.dictionary_encode(pc.binary_slice(keys, 0, _CHARACTER_BYTES_MAX))
    texts = [start.decode(errors="ignore")[:1].encode() for start in starts.dictionary.to_pylist()]
    return pa.array(texts, pa.binary()).take(starts.indices)


def _decimals(keys: pa.Array, digits: int) -> pa.Array:
    """Return the unscaled values of keys with more digits after the point."""
    factor, unscaled = 10**digits, []
    for key in keys.to_pylist():
        number = 0
        if key is not None:
            number = (int.from_bytes(key) - (1 << (8 * len(key) - 1))) * factor
        unscaled.append(number.to_bytes(number.bit_length() // 8 + 1, signed=True))
    return pa.array(unscaled, pa.binary())
