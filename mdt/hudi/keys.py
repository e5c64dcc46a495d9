"""Record keys: the text that identifies a row to Hudi, made from the key columns.

One key field: the value.  Several: ``f1:v1,f2:v2``.  The text is injective: what would make two keys equal is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Invalid
from mdt.hudi.arrays import plain

_SHOWN = 10


def record_keys(table: pa.Table, fields: Sequence[str]) -> pa.Array:
    """Return the record key of each row -> string[n], without nulls.

    Strings stay, integers are decimal, booleans ``true`` and ``false``, dates ISO, timestamps microseconds since 1970.
    Raises Invalid, naming the first ten rows, for a null, an empty string, or, with several fields, a value that holds the
    text by which the next field begins; and for another type.
    """
    if not fields:
        raise Invalid("a table needs at least one key column", hint="name it: key=['id']")
    texts = [_text(table, field) for field in fields]
    if len(fields) == 1:
        return texts[0]
    parts: list[pa.Array | str] = []
    for i, (field, text) in enumerate(zip(fields, texts, strict=True)):
        if i + 1 < len(fields):
            _refuse(text, field, pc.match_substring(text, f",{fields[i + 1]}:"), "holds the name of the next key field")
        parts += [f"{',' if i else ''}{field}:", text]
    return pc.binary_join_element_wise(*parts, "")


def _text(table: pa.Table, field: str) -> pa.Array:
    values = plain(table[field])
    if values.null_count:
        _refuse(values, field, pc.is_null(values), "is null")
    text = _as_text(values, field)
    if not pa.types.is_primitive(values.type):
        _refuse(text, field, pc.equal(pc.binary_length(text), 0), "is empty")
    return text


def _as_text(values: pa.Array, field: str) -> pa.Array:
    kinds = pa.types
    if kinds.is_string(values.type):
        return values
    if kinds.is_timestamp(values.type) and values.type.unit in ("s", "ms", "us"):
        values = pc.cast(pc.cast(values, pa.timestamp("us", values.type.tz)), pa.int64())
    known = (kinds.is_integer, kinds.is_boolean, kinds.is_date32, kinds.is_large_string, kinds.is_string_view)
    if not any(kind(values.type) for kind in known):
        raise Invalid(
            f"column {field!r} of type {values.type} cannot be a key",
            hint="use a string, integer, boolean, date or timestamp (up to microseconds) column, or cast it to string",
        )
    return pc.cast(values, pa.string())


def _refuse(values: pa.Array, field: str, wrong: pa.Array, what: str) -> None:
    """Raise Invalid if any element of ``wrong`` is true."""
    if not pc.any(wrong).as_py():
        return
    rows = np.flatnonzero(wrong.to_numpy(zero_copy_only=False))
    shown = ", ".join(f"row {row}" + _quoted(values[int(row)].as_py()) for row in rows[:_SHOWN])
    raise Invalid(
        f"key column {field!r} {what} in {len(rows)} rows ({shown})",
        hint="a key must be present and unambiguous; fill it, or leave these rows out",
    )


def _quoted(value: object) -> str:
    return "" if value is None else f": {str(value)[:60]!r}"
