"""Avro records as Arrow columns, decoded column by column with NumPy instead of row by row.

All rows are decoded together. A cursor holds the offset of the next byte of each row, and each
field moves the cursors of all rows by the bytes that it takes. The binary encoding and the logical
types are those of the Avro specification 1.11.

Nothing that the bytes claim is trusted. Every length is compared with the bytes that are left in
its row before it is used, and the number of items of an array or a map with the bytes of its row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mdt.errors import Corrupt, Unsupported
from mdt.hudi import avro_values
from mdt.limits import AVRO_SCHEMA_BYTES_MAX, AVRO_SCHEMA_DEPTH_MAX

Int64s = npt.NDArray[np.int64]

_FIELDS_MAX = 20_000
"""Fields of a schema, counted at each use of a named type. Named types may be used several times,
so a short schema could have 2**50 fields.
"""
_ROUNDS_MAX = 1_000_000
"""Items of one array or map. Items of different rows are decoded together, those of a row in turn.
"""
_VISITS_MAX = 5_000_000
"""Fields of the items of all arrays and maps, counted once for each round, about 10 µs each."""
_BRANCHES_MAX = 127
"""Branches of a union. Arrow numbers them with signed bytes, and does not check the number."""
_BYTES_MAX = 2**31 - 1 - 16
_VARINT_SHIFT_MAX = 63
_DECIMAL_BYTES = 16
_DECIMAL_DIGITS_MAX = 38
_PADDING = 16
"""Zero bytes after the content, so that values of a fixed size can be gathered at any offset."""

_NUMBERS: Mapping[str, pa.DataType] = {"int": pa.int32(), "long": pa.int64()}
_LOGICAL: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
_OF_VECTORS: Mapping[str, pa.DataType] = {
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "INT8": pa.int8(),
}
"""Types of the numbers in Hudi's type VECTOR."""


def decode(
    content: bytes | memoryview | pa.Buffer,
    starts: Int64s,
    ends: Int64s,
    schema: str,
    names: Collection[str] | None = None,
) -> pa.Table:
    r"""Return the records at ``starts`` to ``ends`` of ``content`` as a table [n].

    A union of null and another type is a nullable column, and any other union a dense union.

    Args:
        content: Bytes with records in Avro's binary encoding, less than 2 GiB.
        starts: Offset of each record, int64[n], ascending.
        ends: End of each record, int64[n]. Records do not overlap.
        schema: The writer's schema: the JSON text of a record.
        names: Fields to return, or None for all. Others that are null everywhere take no time.

    Raises Corrupt if a record does not fill its bytes exactly, or for a damaged schema, and
    Unsupported for types that Arrow does not have.

    >>> schema = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "string"}]}'
    >>> decode(b"\x02a\x04bc", np.array([0, 2]), np.array([2, 5]), schema)["id"].to_pylist()
    ['a', 'bc']
    """
    data = np.frombuffer(content, np.uint8)
    if len(data) > _BYTES_MAX:
        raise Unsupported(f"{len(data)} bytes of Avro records, at most {_BYTES_MAX} are supported")
    is_inside = not len(starts) or (starts[0] >= 0 and ends[-1] <= len(data))
    if not is_inside or (starts > ends).any() or (starts[1:] < ends[:-1]).any():
        raise Corrupt("damaged Avro records: a record is outside of its block")
    padded = np.concatenate([data, np.zeros(_PADDING, np.uint8)])
    rows = _Rows(padded, pa.py_buffer(padded), starts.astype(np.int64), ends.astype(np.int64))
    schema_types = _Types.parse(schema)
    record = schema_types.record(rows, schema_types.top, names)
    rows.check(rows.at == rows.end, "bytes are left over in a record")
    fields = [record.type.field(number) for number in range(record.type.num_fields)]
    return pa.table(record.flatten(), schema=pa.schema(fields))


def arrow_schema(schema: str) -> pa.Schema:
    """Return the columns that :func:`decode` returns for records of ``schema``.

    Raises Corrupt for a damaged schema, and Unsupported for types that Arrow does not have.

    >>> arrow_schema('{"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]}')
    n: int32 not null
    """
    none = np.empty(0, np.int64)
    return decode(b"", none, none, schema).schema


def default_values(schema: str) -> dict[str, Any]:
    """Return the default value of each field of a record that has one, as in JSON.

    Raises Corrupt for a damaged schema.
    """
    fields = _Types.parse(schema).top["fields"]
    return {member["name"]: member["default"] for member in fields if "default" in member}


@dataclass(slots=True)
class _Rows:
    """The bytes of n rows. ``at``: offset of the next byte of each row; ``end``: end of each row.

    ``buffer`` has the bytes of ``data``. Offsets ascend from row to row.
    """

    data: npt.NDArray[np.uint8]
    buffer: pa.Buffer
    at: Int64s
    end: Int64s

    def __len__(self) -> int:
        return len(self.at)

    def check(self, condition: npt.NDArray[np.bool_], message: str) -> None:
        """Raise Corrupt unless ``condition`` is true for all rows."""
        if not condition.all():
            raise Corrupt(f"damaged Avro records: {message}")

    def some(self, rows: Int64s) -> _Rows:
        """Return the given rows. Call :meth:`advance` after they were read."""
        return _Rows(self.data, self.buffer, self.at[rows], self.end[rows])

    def advance(self, rows: Int64s, part: _Rows) -> None:
        """Move the cursors of ``rows`` to those of ``part``."""
        self.at[rows] = part.at

    def skip(self, lengths: Int64s | int) -> Int64s:
        """Move over ``lengths`` bytes of each row and return where they begin, int64[n]."""
        self.check(
            np.asarray((lengths >= 0) & (lengths <= self.end - self.at)), "a value does not fit"
        )
        starts = self.at
        self.at = starts + lengths
        return starts

    def byte(self) -> npt.NDArray[np.uint8]:
        """Read one byte of each row -> uint8[n]."""
        return self.data[self.skip(1)]

    def long(self) -> Int64s:
        """Read a zigzag varint of each row -> int64[n]."""
        byte = self.byte()
        value = (byte & 0x7F).astype(np.uint64)
        more = np.flatnonzero(byte >= 0x80)
        shift = 7
        while len(more):
            part = self.some(more)
            byte = part.byte()
            self.advance(more, part)
            fits = byte <= 1 if shift == _VARINT_SHIFT_MAX else byte >= 0
            self.check(fits, "a number has more than 64 bits")
            value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            more = more[byte >= 0x80]
            shift += 7
        sign = np.uint64(0) - (value & np.uint64(1))
        return ((value >> np.uint64(1)) ^ sign).view(np.int64)

    def fixed(self, size: int) -> npt.NDArray[np.uint8]:
        """Read ``size`` bytes of each row -> uint8[n, size], with ``size`` at most 16."""
        return self.data[self.skip(size)[:, None] + np.arange(size)]

    def slices(self, lengths: Int64s) -> pa.Array:
        """Read ``lengths`` bytes of each row -> binary[n]."""
        starts = self.skip(lengths)
        return avro_values.slices(self.buffer, starts, self.at, pa.binary())


class _Types:
    """The types of a schema, and how their values are read. ``top``: the record."""

    def __init__(self, top: Mapping[str, Any], named: Mapping[str, Any]) -> None:
        self.top = top
        self._named = named
        self._fields = 0
        self._visits = 0
        self._depth = 0
        self._readers: Mapping[str, Callable[[_Rows, Any], pa.Array]] = {
            "null": lambda rows, type: pa.nulls(len(rows)),
            "boolean": self._boolean,
            "int": self._number,
            "long": self._number,
            "float": lambda rows, type: pa.array(rows.fixed(4).view("<f4").ravel()),
            "double": lambda rows, type: pa.array(rows.fixed(8).view("<f8").ravel()),
            "bytes": self._bytes,
            "string": self._string,
            "fixed": self._fixed,
            "enum": self._enum,
            "array": self._array,
            "map": self._map,
            "record": self.record,
        }

    @classmethod
    def parse(cls, text: str) -> _Types:
        """Return the types of a schema. Raises Corrupt unless it is a valid schema of a record."""
        if len(text) > AVRO_SCHEMA_BYTES_MAX:
            raise Corrupt(f"an Avro schema of {len(text)} characters is too large")
        named: dict[str, Any] = {}
        try:
            top = fastavro.parse_schema(json.loads(text), named_schemas=named)
        except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
            raise Corrupt(f"damaged Avro schema: {error}") from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise Corrupt(f"damaged Avro schema: {error!r}") from error
        if not isinstance(top, dict) or top.get("type") != "record":
            raise Corrupt("damaged Avro schema: it is not a record")
        return cls(top, named)

    def value(self, rows: _Rows, type: Any) -> pa.Array:
        """Read a value of each row -> type[n].

        Types are visited even for zero rows, so a recursive type would never end.
        """
        self._fields += 1
        if self._fields > _FIELDS_MAX:
            raise Unsupported(f"an Avro schema with more than {_FIELDS_MAX} fields")
        self._depth += 1
        if self._depth > AVRO_SCHEMA_DEPTH_MAX:
            raise Unsupported(
                f"an Avro schema that is recursive or has more than {AVRO_SCHEMA_DEPTH_MAX} levels"
            )
        values = self._value(rows, type)
        self._depth -= 1
        return values

    def _value(self, rows: _Rows, type: Any) -> pa.Array:
        if isinstance(type, list):
            return self._union(rows, type)
        if isinstance(type, str):
            type = self._named.get(type, {"type": type})
        kind = type["type"]
        reader = self._readers.get(kind)
        if reader is None:
            raise Unsupported(f"the Avro type {kind[:60]!r}")
        return reader(rows, type)

    def record(
        self, rows: _Rows, type: Mapping[str, Any], names: Collection[str] | None = None
    ) -> pa.Array:
        """Read a record of each row -> struct[n], with all fields or only ``names``."""
        for member in type["fields"]:
            if not _is_text(member["name"]):
                raise Corrupt("damaged Avro schema: the name of a field is not text")
        columns, fields = list[pa.Array](), list[pa.Field]()
        for member in type["fields"]:
            if names is not None and member["name"] not in names:
                self._skip(rows, member["type"])
                continue
            columns.append(self.value(rows, member["type"]))
            is_nullable = _is_nullable(member["type"])
            fields.append(pa.field(member["name"], columns[-1].type, is_nullable))
        if not fields:
            return pa.Array.from_buffers(pa.struct([]), len(rows), [None])
        return pa.StructArray.from_arrays(columns, fields=fields)

    def _skip(self, rows: _Rows, type: Any) -> None:
        """Read a value of each row. The type of a value that is always null is not visited."""
        if isinstance(type, list) and len(type) == 2 and type[0] == "null":
            branch = rows.long()
            rows.check((branch == 0) | (branch == 1), "unknown branch of a union")
            present = np.flatnonzero(branch)
            if len(present):
                self._nullable(rows, type[1], present)
        else:
            self.value(rows, type)

    def _union(self, rows: _Rows, types: Sequence[Any]) -> pa.Array:
        if not 1 <= len(types) <= _BRANCHES_MAX:
            raise Unsupported(f"an Avro union of {len(types)} types")
        branch = rows.long()
        rows.check((branch >= 0) & (branch < len(types)), "unknown branch of a union")
        values = [number for number, type in enumerate(types) if type != "null"]
        if len(values) == 1 and len(types) <= 2:
            return self._nullable(rows, types[values[0]], np.flatnonzero(branch == values[0]))
        positions = np.zeros(len(rows), np.int32)
        children = []
        for number, type in enumerate(types):
            chosen = np.flatnonzero(branch == number)
            part = rows.some(chosen)
            children.append(self.value(part, type))
            rows.advance(chosen, part)
            positions[chosen] = np.arange(len(chosen))
        return pa.UnionArray.from_dense(
            pa.array(branch.astype(np.int8)), pa.array(positions), children
        )

    def _nullable(self, rows: _Rows, type: Any, present: Int64s) -> pa.Array:
        """Read a value of the rows ``present``, and null for the others."""
        if len(present) == len(rows):
            return self.value(rows, type)
        part = rows.some(present)
        values = self.value(part, type)
        rows.advance(present, part)
        places = np.zeros(len(rows), np.int64)
        is_null = np.ones(len(rows), np.bool_)
        places[present], is_null[present] = np.arange(len(present)), False
        return values.take(pa.array(places, mask=is_null))

    def _boolean(self, rows: _Rows, type: Any) -> pa.Array:
        byte = rows.byte()
        rows.check(byte <= 1, "a boolean is neither 0 nor 1")
        return pa.array(byte == 1)

    def _number(self, rows: _Rows, type: Mapping[str, Any]) -> pa.Array:
        name = type["type"]
        values = rows.long()
        if name == "int":
            rows.check(values == values.astype(np.int32), "an int has more than 32 bits")
        numbers = pa.array(values.astype(_NUMBERS[name].to_pandas_dtype(), copy=False))
        logical = _LOGICAL.get((name, str(type.get("logicalType"))))
        if logical is None:
            return numbers
        return _valid(numbers.view(logical))

    def _bytes(self, rows: _Rows, type: Mapping[str, Any]) -> pa.Array:
        if type.get("logicalType") == "decimal":
            return _decimals(rows, rows.long(), type)
        return rows.slices(rows.long())

    def _string(self, rows: _Rows, type: Any) -> pa.Array:
        try:
            return rows.slices(rows.long()).cast(pa.string())
        except pa.ArrowInvalid as error:
            raise Corrupt("damaged Avro records: a string is not UTF-8") from error

    def _fixed(self, rows: _Rows, type: Mapping[str, Any]) -> pa.Array:
        size = type["size"]
        if not isinstance(size, int) or not 0 <= size <= _BYTES_MAX:
            raise Corrupt(f"damaged Avro schema: a fixed type of {size!r} bytes")
        lengths = np.full(len(rows), size, np.int64)
        if type.get("logicalType") == "decimal":
            return _decimals(rows, lengths, type)
        values = rows.slices(lengths).cast(pa.binary(size))
        if type.get("logicalType") == "vector":
            return vectors(values, _vector_type(type))
        return values

    def _enum(self, rows: _Rows, type: Mapping[str, Any]) -> pa.Array:
        symbols = type["symbols"]
        number = rows.long()
        rows.check((number >= 0) & (number < len(symbols)), "unknown symbol of an enum")
        return pa.array(symbols, pa.string()).take(pa.array(number))

    def _array(self, rows: _Rows, type: Mapping[str, Any]) -> pa.Array:
        offsets, items = self._items(rows, lambda part: self.value(part, type["items"]))
        element = pa.field("element", items.type, _is_nullable(type["items"]))
        return pa.ListArray.from_arrays(offsets, items, type=pa.list_(element))

    def _map(self, rows: _Rows, type: Mapping[str, Any]) -> pa.Array:
        def entry(part: _Rows) -> pa.Array:
            keys = self._string(part, None)
            return pa.StructArray.from_arrays([keys, self.value(part, type["values"])], ["k", "v"])

        offsets, entries = self._items(rows, entry)
        keys, values = entries.flatten()
        value = pa.field("value", values.type, _is_nullable(type["values"]))
        return pa.MapArray.from_arrays(offsets, keys, values, type=pa.map_(pa.string(), value))

    def _items(self, rows: _Rows, read: Callable[[_Rows], pa.Array]) -> tuple[pa.Array, pa.Array]:
        """Read the blocks of an array or map of each row -> (offsets int32[n + 1], items).

        ``read`` reads an item of each of some rows.
        """
        items, owners = [read(rows.some(np.empty(0, np.int64)))], [np.empty(0, np.int64)]
        fields = self._fields
        active = np.arange(len(rows))
        while len(active):
            active, counts = self._block(rows, active)
            for number in range(int(counts.max(initial=0))):
                owner = active[counts > number]
                part = rows.some(owner)
                items.append(read(part))
                self._count_visits(self._fields - fields)
                self._fields = fields
                rows.check(part.at > rows.at[owner], "an item has no bytes")
                rows.advance(owner, part)
                owners.append(owner)
            if len(items) > _ROUNDS_MAX:
                raise Unsupported(f"an Avro array with more than {_ROUNDS_MAX} items")
        owner = np.concatenate(owners)
        order = pa.array(np.argsort(owner, kind="stable"))
        ends = np.cumsum(np.bincount(owner, minlength=len(rows)))
        offsets = np.concatenate([np.zeros(1, np.int32), ends.astype(np.int32)])
        return pa.array(offsets), pa.concat_arrays(items).take(order)

    def _count_visits(self, fields: int) -> None:
        self._visits += fields
        if self._visits > _VISITS_MAX:
            raise Unsupported(f"Avro arrays with more than {_VISITS_MAX} fields in all items")

    def _block(self, rows: _Rows, active: Int64s) -> tuple[Int64s, Int64s]:
        """Read the head of the next block of the rows ``active``.

        Returns the rows whose block is not empty, and the numbers of their items.
        """
        part = rows.some(active)
        counts = part.long()
        sized = np.flatnonzero(counts < 0)
        with_size = part.some(sized)
        with_size.long()  # bytes of the block, for readers that skip it
        part.advance(sized, with_size)
        counts = np.where(counts < 0, -counts, counts)
        part.check((counts >= 0) & (counts <= part.end - part.at), "more items than bytes")
        if counts.max(initial=0) > _ROUNDS_MAX:
            raise Unsupported(f"an Avro array with more than {_ROUNDS_MAX} items")
        rows.advance(active, part)
        is_open = counts > 0
        return active[is_open], counts[is_open]


def _is_text(value: object) -> bool:
    """Return True for a string that has an encoding in UTF-8, so without single surrogates."""
    return isinstance(value, str) and value == value.encode(errors="replace").decode()


def _is_nullable(type: Any) -> bool:
    return type == "null" or (isinstance(type, list) and "null" in type)


def _vector_type(type: Mapping[str, Any]) -> pa.DataType:
    """Return the Arrow type of a fixed type that is a vector (Apache Hudi, RFC-99)."""
    name, form = str(type.get("elementType")), str(type.get("storageBacking"))
    numbers = type.get("dimension")
    if name not in _OF_VECTORS or form != "FIXED_BYTES":
        raise Unsupported(f"vectors of {name[:60]} in the form {form[:60]}")
    if not isinstance(numbers, int) or not 0 < numbers <= type["size"]:
        raise Corrupt(f"damaged Avro schema: a vector of {numbers!r} numbers")
    return pa.list_(pa.field("element", _OF_VECTORS[name], nullable=False), numbers)


def vectors(values: pa.FixedSizeBinaryArray, type: pa.FixedSizeListType) -> pa.Array:
    r"""Return bytes (n) as vectors. Numbers are little-endian.

    Raises Corrupt if the sizes differ.

    >>> vector = pa.list_(pa.field("element", pa.float32(), nullable=False), 2)
    >>> vectors(pa.array([bytes(4) + b"\0\0\0?"], pa.binary(8)), vector).to_pylist()
    [[0.0, 0.5]]
    """
    numbers = type.list_size
    if values.type.byte_width * 8 != numbers * type.value_type.bit_width:
        raise Corrupt(f"{values.type.byte_width} bytes are no vector of {numbers} numbers")
    values = pa.concat_arrays([values, values[:0]])  # without an offset
    validity, data = values.buffers()
    count = len(values) * numbers
    elements = pa.Array.from_buffers(type.value_type, count, [None, data])
    return pa.Array.from_buffers(type, len(values), [validity], children=[elements])


def _decimals(rows: _Rows, lengths: Int64s, type: Mapping[str, Any]) -> pa.Array:
    """Read big-endian two's complement numbers of ``lengths`` bytes -> decimal128[n]."""
    digits, scale = type.get("precision"), type.get("scale", 0)
    if not isinstance(digits, int) or not isinstance(scale, int) or digits < 1 or scale < 0:
        raise Corrupt(
            f"damaged Avro schema: a decimal of {digits!r} digits, {scale!r} of them last"
        )
    if digits > _DECIMAL_DIGITS_MAX:
        raise Unsupported(
            f"decimals of {digits} digits, at most {_DECIMAL_DIGITS_MAX} are supported"
        )
    rows.check((lengths > 0) & (lengths <= _DECIMAL_BYTES), "a decimal has a wrong size")
    starts = rows.skip(lengths)
    sign = np.where(rows.data[starts] >= 0x80, 0xFF, 0).astype(np.uint8)
    number = np.empty((len(rows), _DECIMAL_BYTES), np.uint8)
    for place in range(_DECIMAL_BYTES):
        has_byte = place < lengths
        number[:, place] = np.where(has_byte, rows.data[rows.at - 1 - place * has_byte], sign)
    values = pa.Array.from_buffers(
        pa.decimal128(digits, scale), len(rows), [None, pa.py_buffer(number)]
    )
    return _valid(values)


def _valid(values: pa.Array) -> pa.Array:
    """Return decimals or times. Raises Corrupt if a value is outside of the range of its type."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        raise Corrupt(f"damaged Avro records: {error}") from error
    return values
