"""Record keys, which identify rows to Hudi as text, and sort keys, which order rows by bytes.

With a single key field, the record key is the value, or ``f1:v1`` in tables whose keys have the
name. With several, it is ``f1:v1,f2:v2``, with the names in Hudi's files. The encoding is
injective: values that could make two keys equal are rejected. As text, 10 sorts before 9.
:func:`sort_keys` sort like the columns' own types.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes import values as orders
from indexes.arrays import is_sorted, stable_order
from mdt.errors import Invalid
from mdt.hudi.plain_arrays import plain
from mdt.schema.names import avro_name

_SHOWN = 10
_WORD_BYTES = 8
_SAMPLE = 64


def record_keys(
    table: pa.Table, fields: Sequence[str], *, named: bool = False, numbered: bool = True
) -> pa.Array:
    """Return the record key of each row as string[n] without nulls.

    Strings are unchanged, integers decimal, booleans ``true`` and ``false``, dates ISO, and
    timestamps microseconds since 1970.

    Args:
        named: True if the key of a single field has its name, too.
        numbered: True if row numbers are meaningful to the caller. Otherwise messages contain only
            values.

    Raises Invalid with the first ten rows for a null or an empty string. With several fields,
    raises Invalid for a value that contains the beginning of the next field. Also raises it for
    other types.

    >>> rows = pa.table({"id": ["a", "b"], "n": [7, 10]})
    >>> record_keys(rows, ["n"]).to_pylist(), record_keys(rows, ["id", "n"]).to_pylist()
    (['7', '10'], ['id:a,n:7', 'id:b,n:10'])
    >>> record_keys(rows, ["n"], named=True).to_pylist()
    ['n:7', 'n:10']
    """
    if not fields:
        raise Invalid("a table needs at least one key column", hint="name it: key=['id']")
    texts = [_text(table, field, numbered) for field in fields]
    if len(fields) == 1 and not named:
        return texts[0]
    parts: list[pa.Array | str] = []
    separator = ""
    for i, (field, text) in enumerate(zip(fields, texts, strict=True)):
        if i + 1 < len(fields):
            _refuse(
                text,
                field,
                pc.match_substring(text, f",{avro_name(fields[i + 1])}:"),
                "contains the name of the next key field",
                numbered,
            )
        parts += [f"{separator}{avro_name(field)}:", text]
        separator = ","
    return pc.binary_join_element_wise(*parts, "")


def sort_keys(table: pa.Table, fields: Sequence[str]) -> pa.Array:
    """Return string[n] or binary[n] whose bytes sort like the key columns, the first column first.

    Column types as in :func:`record_keys`. A single string column is returned unchanged. Other
    values are encoded by :mod:`indexes.values`. With several columns, every string before the last
    column ends with 00 00, which sorts below any other byte, and zero bytes in it become 00 FF.

    >>> rows = pa.table({"n": [9, 10]})
    >>> [
    ...     keys.to_pylist() == sorted(keys.to_pylist())
    ...     for keys in (record_keys(rows, ["n"]), sort_keys(rows, ["n"]))
    ... ]
    [False, True]
    """
    columns = [plain(table[field]) for field in fields]
    if len(columns) == 1 and pa.types.is_string(columns[0].type):
        return columns[0]
    parts = list(map(orders.encode, columns))
    if len(parts) == 1:
        return parts[0]
    for i, column in enumerate(columns[:-1]):
        if orders.key_width(column.type) is None:
            parts[i] = _terminated(parts[i])
    return pc.binary_join_element_wise(*parts, b"")


def sort_permutation(keys: pa.Array) -> npt.NDArray[np.int64] | None:
    """Return the permutation int64[n] that sorts n sort keys, or None if they are sorted. O(n log
    n).

    >>> sort_permutation(pa.array(["b", "a"])).tolist(), sort_permutation(pa.array(["a", "b"]))
    ([1, 0], None)
    """
    if is_sorted(keys):
        return None
    words = _words(keys)
    if words is not None:
        return stable_order(words)
    order: npt.NDArray[np.int64] = pc.sort_indices(keys).to_numpy().astype(np.int64)
    return order


def _words(keys: pa.Array) -> npt.NDArray[np.uint64] | None:
    """Return uint64[n] that sort like the keys, or None.

    This needs keys of equal length that differ only within a range of 8 bytes.
    """
    offsets = np.frombuffer(keys.buffers()[1], np.int32, len(keys) + 1, 4 * keys.offset)
    width = int(offsets[1] - offsets[0])
    if not width or bool(np.any(np.diff(offsets) != width)):
        return None
    rows = np.frombuffer(keys.buffers()[2], np.uint8, len(keys) * width, int(offsets[0])).reshape(
        -1, width
    )
    differs = np.flatnonzero((rows[:_SAMPLE] != rows[0]).any(axis=0))
    end = min(width, max(_WORD_BYTES, int(differs[-1]) + 1)) if len(differs) else width
    begin = max(0, end - _WORD_BYTES)
    outside = rows[:, :begin], rows[:, end:]
    if any(not np.array_equal(part, np.broadcast_to(part[0], part.shape)) for part in outside):
        return None
    words = np.zeros((len(rows), _WORD_BYTES), np.uint8)
    words[:, begin - end :] = rows[:, begin:end]
    return words.view(">u8").ravel().astype(np.uint64)


def _terminated(values: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring(values, b"\0")).as_py():
        values = pc.replace_substring(values, pattern=b"\0", replacement=b"\0\xff")
    return pc.binary_join_element_wise(values, b"\0\0", b"")


def _text(table: pa.Table, field: str, numbered: bool) -> pa.Array:
    values = plain(table[field])
    if values.null_count:
        _refuse(values, field, pc.is_null(values), "is null", numbered)
    text = as_text(values, field)
    if len(text) and not pa.types.is_primitive(values.type):
        offsets = np.frombuffer(text.buffers()[1], np.int32, len(text) + 1, 4 * text.offset)
        if not np.diff(offsets).all():
            _refuse(text, field, pc.equal(pc.binary_length(text), 0), "is empty", numbered)
    return text


def as_text(values: pa.Array, field: str) -> pa.Array:
    """Return the values of a key column as string[n]. Raises Invalid for other types.

    Args:
        field: Name of the column, for messages.
    """
    kinds = pa.types
    if kinds.is_string(values.type):
        return values
    if kinds.is_timestamp(values.type) and values.type.unit in ("s", "ms", "us"):
        try:
            values = pc.cast(pc.cast(values, pa.timestamp("us", values.type.tz)), pa.int64())
        except pa.ArrowInvalid as error:
            raise Invalid(
                f"key column {field!r} has a moment that 64 bits of microseconds do not hold:"
                f" {error}",
                hint="a key must be within 290,000 years of 1970",
            ) from error
    if kinds.is_decimal128(values.type) and values.type.scale == 0:
        return pc.cast(values, pa.string())
    supported = (
        kinds.is_integer,
        kinds.is_boolean,
        kinds.is_date32,
        kinds.is_large_string,
        kinds.is_string_view,
    )
    if not any(kind(values.type) for kind in supported):
        raise Invalid(
            f"column {field!r} of type {values.type} cannot be a key",
            hint=(
                "use a string, integer, boolean, date or timestamp (up to microseconds) column, or"
                " cast it to string"
            ),
        )
    return pc.cast(values, pa.string())


def _refuse(
    values: pa.Array, field: str, is_invalid: pa.Array, problem: str, numbered: bool
) -> None:
    """Raise Invalid if any element of ``is_invalid`` is true."""
    if not pc.any(is_invalid).as_py():
        return
    rows = np.flatnonzero(is_invalid.to_numpy(zero_copy_only=False))
    examples = [values[int(row)].as_py() for row in rows[:_SHOWN]]
    if numbered:
        listing = ", ".join(
            f"row {row}" + _quote(value) for row, value in zip(rows, examples, strict=False)
        )
    else:
        listing = ", ".join(_quote(value).removeprefix(": ") for value in examples if value)
    raise Invalid(
        f"key column {field!r} {problem} in {len(rows)} rows"
        + (f" ({listing})" if listing else ""),
        hint="a key must be present and unambiguous; fill it, or leave these rows out",
    )


def _quote(value: object) -> str:
    if value is None:
        return ""
    return f": {str(value)[:60]!r}"
