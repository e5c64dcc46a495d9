"""Record keys: the text that identifies a row to Hudi, made from the key columns, and bytes that
put rows in order.

One key field: the value.  Several: ``f1:v1,f2:v2``, by the names that Hudi's files have.  The text
is injective: what would make two keys equal is refused. As text, 10 comes before 9;
:func:`sort_keys` has the order of the columns' own types.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes import values as orders
from indexes.arrays import is_rising, stable_order
from mdt.errors import Invalid
from mdt.hudi.plain_arrays import plain
from mdt.schema.names import avro_name

_SHOWN = 10
_WORD_BYTES = 8
_SAMPLE = 64


def record_keys(table: pa.Table, fields: Sequence[str], *, numbered: bool = True) -> pa.Array:
    """Return the record key of each row -> string[n], without nulls.

    Strings stay, integers are decimal, booleans ``true`` and ``false``, dates ISO, timestamps
    microseconds since 1970. Raises Invalid, naming the first ten rows, for a null, an empty string,
    or, with several fields, a value that holds the text by which the next field begins; and for
    another type.  ``numbered``: whether the numbers of rows mean anything to the caller; else
    values are named only.

    >>> rows = pa.table({"id": ["a", "b"], "n": [7, 10]})
    >>> record_keys(rows, ["n"]).to_pylist(), record_keys(rows, ["id", "n"]).to_pylist()
    (['7', '10'], ['id:a,n:7', 'id:b,n:10'])
    """
    if not fields:
        raise Invalid("a table needs at least one key column", hint="name it: key=['id']")
    texts = [_text(table, field, numbered) for field in fields]
    if len(fields) == 1:
        return texts[0]
    parts: list[pa.Array | str] = []
    separator = ""
    for i, (field, text) in enumerate(zip(fields, texts, strict=True)):
        if i + 1 < len(fields):
            _refuse(
                text,
                field,
                pc.match_substring(text, f",{avro_name(fields[i + 1])}:"),
                "holds the name of the next key field",
                numbered,
            )
        parts += [f"{separator}{avro_name(field)}:", text]
        separator = ","
    return pc.binary_join_element_wise(*parts, "")


def sort_keys(table: pa.Table, fields: Sequence[str]) -> pa.Array:
    """Return for each row bytes that compare as its key columns do, the first column first ->
    string or binary[n].

    The columns must be such as :func:`record_keys` takes.  One string column is returned as it is;
    each other value is its key (:mod:`indexes.values`), and of several columns the strings before
    the last get an end that is below every byte: zeros in them are replaced by 00 FF, and 00 00
    follows.

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
            parts[i] = _ended(parts[i])
    return pc.binary_join_element_wise(*parts, b"")


def rising(keys: pa.Array) -> npt.NDArray[np.int64] | None:
    """Return the permutation that puts n sort keys in order -> int64[n]; None if they are.  O(n log
    n).

    >>> rising(pa.array(["b", "a"])).tolist(), rising(pa.array(["a", "b"]))
    ([1, 0], None)
    """
    if is_rising(keys):
        return None
    words = _words(keys)
    if words is not None:
        return stable_order(words)
    order: npt.NDArray[np.int64] = pc.sort_indices(keys).to_numpy().astype(np.int64)
    return order


def _words(keys: pa.Array) -> npt.NDArray[np.uint64] | None:
    """Return numbers that compare as the keys do -> uint64[n]: of keys of one length that differ in
    a stretch of up to 8 bytes; None for others.
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


def _ended(values: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring(values, b"\0")).as_py():
        values = pc.replace_substring(values, pattern=b"\0", replacement=b"\0\xff")
    return pc.binary_join_element_wise(values, b"\0\0", b"")


def _text(table: pa.Table, field: str, numbered: bool) -> pa.Array:
    values = plain(table[field])
    if values.null_count:
        _refuse(values, field, pc.is_null(values), "is null", numbered)
    text = _as_text(values, field)
    if len(text) and not pa.types.is_primitive(values.type):
        offsets = np.frombuffer(text.buffers()[1], np.int32, len(text) + 1, 4 * text.offset)
        if not np.diff(offsets).all():
            _refuse(text, field, pc.equal(pc.binary_length(text), 0), "is empty", numbered)
    return text


def _as_text(values: pa.Array, field: str) -> pa.Array:
    kinds = pa.types
    if kinds.is_string(values.type):
        return values
    if kinds.is_timestamp(values.type) and values.type.unit in ("s", "ms", "us"):
        values = pc.cast(pc.cast(values, pa.timestamp("us", values.type.tz)), pa.int64())
    if kinds.is_decimal128(values.type) and values.type.scale == 0:
        return pc.cast(values, pa.string())
    known = (
        kinds.is_integer,
        kinds.is_boolean,
        kinds.is_date32,
        kinds.is_large_string,
        kinds.is_string_view,
    )
    if not any(kind(values.type) for kind in known):
        raise Invalid(
            f"column {field!r} of type {values.type} cannot be a key",
            hint=(
                "use a string, integer, boolean, date or timestamp (up to microseconds) column, or"
                " cast it to string"
            ),
        )
    return pc.cast(values, pa.string())


def _refuse(values: pa.Array, field: str, wrong: pa.Array, what: str, numbered: bool) -> None:
    """Raise Invalid if any element of ``wrong`` is true."""
    if not pc.any(wrong).as_py():
        return
    rows = np.flatnonzero(wrong.to_numpy(zero_copy_only=False))
    named = [values[int(row)].as_py() for row in rows[:_SHOWN]]
    if numbered:
        shown = ", ".join(
            f"row {row}" + _quoted(value) for row, value in zip(rows, named, strict=False)
        )
    else:
        shown = ", ".join(_quoted(value).removeprefix(": ") for value in named if value)
    raise Invalid(
        f"key column {field!r} {what} in {len(rows)} rows" + (f" ({shown})" if shown else ""),
        hint="a key must be present and unambiguous; fill it, or leave these rows out",
    )


def _quoted(value: object) -> str:
    if value is None:
        return ""
    return f": {str(value)[:60]!r}"
