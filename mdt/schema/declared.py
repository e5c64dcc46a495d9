"""Mapping between declared column types and the types of Hudi's files.

*Stored* types are those that Spark, hudi-rs and mdt read back alike (:func:`stored_schema`).
Filters, statistics, indexes, keys and services use only these. *Declared* types are accepted by
writes (:mod:`mdt.write.normalize`) and returned by scans (:class:`Restoration`). The mapping
preserves order, so a range of stored values is also a range of declared values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa

from mdt.errors import Corrupt, Invalid
from mdt.schema import names
from mdt.schema.convert import convert, is_encoded, is_same
from mdt.schema.nested import fields_of, holds, is_list, with_fields

_RESERVED = {"_hoodie_": "Hudi", "__mdt_": "mdt"}
"""Reserved name prefixes and their owners."""
_CHANGE_COLUMNS = frozenset(("_change", "_seq", "_instant"))
"""Columns added to changes (:mod:`mdt.changes`); compared without case."""
_SHOWN_CHARACTERS_MAX = 80
DEPTH_MAX = 50
"""Maximum nesting depth of types. It keeps recursive readers away from their stack limits."""

_STORED: dict[pa.DataType, pa.DataType] = {
    pa.bool_(): pa.bool_(),
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.int32(): pa.int32(),
    pa.int64(): pa.int64(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.float32(): pa.float32(),
    pa.float64(): pa.float64(),
    pa.string(): pa.string(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.binary(): pa.binary(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date32(): pa.date32(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.int32(),
    pa.time32("ms"): pa.int32(),
    pa.time64("us"): pa.int64(),
    pa.time64("ns"): pa.int64(),
    **{pa.duration(unit): pa.int64() for unit in ("s", "ms", "us", "ns")},
    pa.timestamp("s"): pa.timestamp("ms", "UTC"),
    pa.timestamp("ms"): pa.timestamp("ms", "UTC"),
    pa.timestamp("us"): pa.timestamp("us", "UTC"),
    pa.timestamp("ns"): pa.timestamp("us", "UTC"),
}

_NO_REPLACEMENTS: Mapping[pa.DataType, pa.DataType] = MappingProxyType({})
_WITHOUT_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
_REMEDIES = (
    (pa.types.is_null, "cast it to the type that its values will have"),
    (
        pa.types.is_decimal,
        "use a decimal with 1 to 38 digits and a scale from 0 to the number of digits",
    ),
    (pa.types.is_map, "use string keys"),
    (pa.types.is_struct, "give it a field"),
    (pa.types.is_fixed_size_list, "use a list, or a size of at least 1"),
    (pa.types.is_union, "use a struct with a field for each type"),
    (pa.types.is_interval, "use a duration, or a struct of months, days and nanoseconds"),
    (is_encoded, "encode only flat values, or remove the encoding"),
)


def stored_schema(schema: pa.Schema, allowed: Collection[str] = ()) -> pa.Schema:
    """Return ``schema`` with the types of data files, as in the table below.

    Names and nullability are kept, metadata is dropped. Names in ``allowed`` may be reserved.

    | declared | stored |
    |---|---|
    | int8, int16, uint8, uint16; uint32 | int32; int64 |
    | uint64; half float | decimal128(20, 0); float |
    | large and view strings and binaries, fixed-size binary | string, binary |
    | large, view and fixed-size lists | list |
    | unordered dictionary, run-end encoded | the value type |
    | timestamp(s); timestamp(ns) | timestamp(ms); timestamp(us), nanoseconds are refused |
    | timestamp in any time zone | UTC, the same instant |
    | timestamp without time zone | UTC, **the same digits**: Hudi readers share no local type |
    | date64; decimal32, decimal64, decimal256 up to 38 digits | date32; decimal128 |
    | time32; time64, duration | int32; int64, the count of the declared unit |

    Raises Invalid with column, type and remedy for other types: null, union, interval, extension
    types, ordered dictionaries, maps with keys that are not strings, empty structs, and nesting
    beyond DEPTH_MAX. Also raises Invalid for names that are empty, too long, reserved or repeated,
    that contain control characters, or that differ only in case or Unicode form. Two fields must
    not share a path or a name in Hudi's files (:func:`mdt.schema.names.avro_name`).

    >>> stored_schema(
    ...     pa.schema(
    ...         {
    ...             "n": pa.uint8(),
    ...             "at": pa.timestamp("s"),
    ...             "city": pa.dictionary(pa.int32(), pa.string()),
    ...         }
    ...     )
    ... )
    n: int32
    at: timestamp[ms, tz=UTC]
    city: string
    >>> stored_schema(pa.schema({"n": pa.null()}))
    Traceback (most recent call last):
        ...
    mdt.errors.Invalid: column 'n' has the type null, which a Hudi table cannot hold
      hint: cast it to the type that its values will have
    """
    _check_names(schema.names, "")
    for name in schema.names:
        lowered, avro = name.lower(), names.avro_name(name).lower()
        for prefix, owner in _RESERVED.items():
            if name in allowed:
                continue
            if lowered.startswith(prefix) or avro.startswith(prefix):
                raise Invalid(
                    f"column {name!r}: names that begin with {prefix} are reserved for {owner}",
                    hint="rename it",
                )
        if lowered in _CHANGE_COLUMNS:
            raise Invalid(
                f"the column name {name!r} is reserved for changes of rows",
                hint="rename it",
            )
    result = pa.schema([_field(field, field.name, field.name, 1) for field in schema])
    if not names.are_avro(result):
        _refuse_same_paths(result)
    return result


def _field(field: pa.Field, name: str, path: str, depth: int) -> pa.Field:
    return pa.field(name, _type(field.type, path, depth), field.nullable)


def _check_names(field_names: Sequence[str], prefix: str) -> None:
    by_folded: dict[str, str] = {}
    in_files: dict[str, str] = {}
    for name in field_names:
        if why := names.refusal(name):
            raise Invalid(
                f"the column name {prefix}{name[:_SHOWN_CHARACTERS_MAX]!r} {why}", hint="rename it"
            )
        folded, avro = names.fold_name(name), names.avro_name(name)
        previous = by_folded.get(folded)
        if previous is not None:
            raise Invalid(
                f"columns {prefix}{previous!r} and {prefix}{name!r} have the same name, ignoring"
                " case",
                hint="rename one of them",
            )
        previous = in_files.get(avro.lower())
        if previous is not None:
            raise Invalid(
                f"columns {prefix}{previous!r} and {prefix}{name!r} would both be {avro!r} in"
                " Hudi's files",
                hint="rename one of them",
            )
        by_folded[folded] = in_files[avro.lower()] = name


def _refuse_same_paths(schema: pa.Schema) -> None:
    """Raise Invalid if two fields share a path, e.g. a column ``a.b`` and a struct ``a`` with
    ``b``.
    """
    folded_paths: set[str] = set()
    for path in names.paths(schema):
        if names.fold_name(path) in folded_paths:
            raise Invalid(
                f"two columns or fields of structs have the path {path!r}",
                hint="rename one of them",
            )
        folded_paths.add(names.fold_name(path))


def _type(type: pa.DataType, path: str, depth: int) -> pa.DataType:
    if depth > DEPTH_MAX:
        raise Invalid(
            f"column {path[:200]!r} is nested deeper than {DEPTH_MAX} levels", hint="flatten it"
        )
    kinds = pa.types
    if isinstance(type, pa.BaseExtensionType):
        hint = f"declare its storage type {type.storage_type}, and convert the values"
        raise Invalid(
            f"column {path!r} has the extension type {type}, which a Hudi table cannot hold",
            hint=hint,
        )
    if kinds.is_dictionary(type) and type.ordered:
        hint = "use an unordered dictionary, and a second column for the order"
        raise Invalid(
            f"column {path!r} has the type {type}, an ordered dictionary whose order would be lost",
            hint=hint,
        )
    if is_encoded(type) and not type.value_type.num_fields and not is_encoded(type.value_type):
        return _type(type.value_type, path, depth)
    if kinds.is_timestamp(type):
        type = pa.timestamp(type.unit)
    if type in _STORED:
        return _STORED[type]
    if kinds.is_fixed_size_binary(type):
        return pa.binary()
    if kinds.is_decimal(type) and 0 <= type.scale <= type.precision <= 38:
        return pa.decimal128(type.precision, type.scale)
    return _nested(type, path, depth)


def _nested(type: pa.DataType, path: str, depth: int) -> pa.DataType:
    kinds = pa.types
    # pyarrow cannot create lists of size 0: it divides by the size
    is_empty_list = kinds.is_fixed_size_list(type) and not type.list_size
    if is_list(type) and not is_empty_list:
        return pa.list_(_field(type.value_field, "element", f"{path}.element", depth + 1))
    if kinds.is_map(type) and _type(type.key_type, f"{path}.key", depth + 1) == pa.string():
        return pa.map_(pa.string(), _field(type.item_field, "value", f"{path}.value", depth + 1))
    if kinds.is_struct(type) and type.num_fields:
        _check_names([field.name for field in type], f"{path}.")
        return pa.struct([_field(f, f.name, f"{path}.{f.name}", depth + 1) for f in type])
    hint = next(
        (hint for kind, hint in _REMEDIES if kind(type)), "cast it to a type that Avro supports"
    )
    raise Invalid(f"column {path!r} has the type {type}, which a Hudi table cannot hold", hint=hint)


def plain(
    type: pa.DataType, instead: Mapping[pa.DataType, pa.DataType] = _NO_REPLACEMENTS
) -> pa.DataType:
    """Return ``type`` without dictionary and run-end encoding at any depth: the type of its values.

    ``instead`` maps types to replacements.
    """
    if is_encoded(type):
        return plain(type.value_type, instead)
    fields = [field.with_type(plain(field.type, instead)) for field in fields_of(type)]
    return with_fields(instead.get(type, type), fields)


def without_views(type: pa.DataType) -> pa.DataType:
    """Return the plain ``type`` without views, because pyarrow cannot take rows of views."""
    return plain(type, _WITHOUT_VIEWS)


def with_local_timestamps(declared: pa.Schema, stored: pa.Schema) -> pa.Schema:
    """Return the ``stored`` columns, with timestamps declared without time zone left without one.

    Spark reads these columns as local timestamps.
    """
    return pa.schema(_local_fields(declared, stored))


def _local_fields(declared: Iterable[pa.Field], stored: Iterable[pa.Field]) -> list[pa.Field]:
    pairs = zip(declared, stored, strict=True)
    return [
        stored_field.with_type(_local_type(declared_field.type, stored_field.type))
        for declared_field, stored_field in pairs
    ]


def _local_type(declared: pa.DataType, stored: pa.DataType) -> pa.DataType:
    if is_encoded(declared):
        return _local_type(declared.value_type, stored)
    if pa.types.is_timestamp(declared):
        if declared.tz is None:
            return pa.timestamp(stored.unit)
        return stored
    return with_fields(stored, _local_fields(fields_of(declared), fields_of(stored)))


def with_local_times(table: pa.Table, local: Mapping[str, pa.DataType]) -> pa.Table:
    """Return stored rows with times without a time zone, which have the same numbers.

    Args:
        local: Column -> its type, as :attr:`mdt.schema.definition.TableDefinition.local_times`.
    """
    for number, field in enumerate(table.schema):
        if field.name in local:
            type = local[field.name]
            values = pa.chunked_array([c.view(type) for c in table[number].chunks], type)
            table = table.set_column(number, field.with_type(type), values)
    return table


@dataclass(frozen=True, slots=True)
class Restoration:
    """Converts stored columns to their declared types.

    Attributes:
        schema: The declared columns.
        columns: Positions of the columns that are stored as another type.
    """

    schema: pa.Schema
    columns: tuple[int, ...]

    @classmethod
    def from_schemas(cls, declared: pa.Schema, stored: pa.Schema) -> Restoration:
        """Return the conversion from ``stored`` to ``declared`` columns of the same names."""
        if declared.equals(stored, check_metadata=True):
            return cls(declared, ())
        pairs = enumerate(zip(declared, stored, strict=True))
        return cls(declared, tuple(i for i, (a, b) in pairs if not is_same(a.type, b.type)))

    def restore(self, table: pa.Table) -> pa.Table:
        """Return the stored ``table`` with declared types.

        Schema metadata and nullability left by file readers are dropped. O(rows) for columns that
        differ, else O(1). Raises Corrupt for a value outside the declared type.

        >>> declared = pa.schema({"n": pa.uint8(), "city": pa.string()})
        >>> rows = pa.table({"n": pa.array([7], pa.int32()), "city": ["Oslo"]})
        >>> Restoration.from_schemas(declared, rows.schema).restore(rows).schema.types
        [DataType(uint8), DataType(string)]
        """
        if not self.columns and table.schema.equals(self.schema, check_metadata=True):
            return table
        columns = list(table.columns)
        for i in self.columns:
            field = self.schema.field(i)
            try:
                chunks = [part for chunk in columns[i].chunks for part in _parts(chunk, field.type)]
            except (ValueError, pa.ArrowException) as error:
                raise Corrupt(
                    f"column {field.name!r} contains a value that is not a valid {field.type}:"
                    f" {error}"
                ) from error
            columns[i] = pa.chunked_array(chunks, field.type)
        return pa.table(columns, schema=self.schema)


def _parts(array: pa.Array, type: pa.DataType) -> Iterator[pa.Array]:
    """Yield ``array`` converted to ``type``.

    The array is split if it has more distinct values than the dictionary index can count.
    """
    try:
        converted = convert(array, type)
    except pa.ArrowInvalid:
        if len(array) < 2 or not holds(type, pa.types.is_dictionary):
            raise
        half = len(array) // 2
        yield from _parts(array.slice(0, half), type)
        yield from _parts(array.slice(half), type)
        return
    yield converted
