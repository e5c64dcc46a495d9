r"""Partition paths: the directory of each row, derived from its partition columns.

Values are escaped like in Hudi's ``PartitionPathEncodeUtils`` (Hive's ``FileUtils``): control
characters, DEL and ``" # % ' * / : = ? \ { [ ] ^``, but not ``}``. A value can therefore not add a
level or leave the table's directory. Text is processed once per distinct value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Invalid
from mdt.hudi.plain_arrays import plain
from mdt.schema.names import avro_name
from mdt.schema.time_paths import TimePath
from mdt.session import memo

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Path component for a null partition value."""
COMPONENT_BYTES_MAX = 255
"""Longest directory name on common file systems."""

_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^") | frozenset(map(chr, range(32)))
_TABLE = {ord(char): f"%{ord(char):02X}" for char in _ESCAPED}
_HEX = re.compile("%([0-9A-Fa-f]{2})")
_DATE = re.compile("(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}")
_RESERVED = frozenset({".", "..", ".hoodie"})
_HIDDEN = frozenset({"metadata", "_delta_log"})


def escape(value: str) -> str:
    """Return ``value`` with all special characters of paths replaced by ``%XX``.

    >>> escape("a/b=c"), unescape(escape("a/b=c"))
    ('a%2Fb%3Dc', 'a/b=c')
    """
    return value.translate(_TABLE)


def unescape(text: str) -> str:
    """Invert :func:`escape`."""
    return _HEX.sub(lambda match: chr(int(match.group(1), 16)), text)


def partition_paths(
    table: pa.Table,
    fields: Sequence[str],
    hive_style: bool = True,
    time_path: TimePath | None = None,
) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Return the partition path of each row as ``(codes: int64[n], paths)``.

    Row i is in ``paths[codes[i]]``, and every path is used. The codes are read-only. Levels are
    joined by ``/``, and nulls become NULL_PARTITION. Without ``fields`` the only path is "".

    Args:
        fields: Partition columns: strings, integers, booleans or dates.
        hive_style: ``column=value`` instead of ``value``, with the column's name in Hudi's files.
        time_path: Form of the path if the partition column is a time.

    Raises Invalid with the values for an empty string, a value that reads as null, a reserved or
    overlong name, a date outside of the years 1 to 9999, and for another type.

    >>> rows = pa.table({"city": ["Oslo", None, "Oslo"], "year": [2024, 2024, 2024]})
    >>> codes, paths = partition_paths(rows, ["city", "year"])
    >>> codes.tolist(), paths
    ([0, 1, 0], ['city=Oslo/year=2024', 'city=__HIVE_DEFAULT_PARTITION__/year=2024'])
    >>> partition_paths(rows, ["year"], hive_style=False)[1], partition_paths(rows, [])[1]
    (['2024'], [''])
    """
    paths = [""] if len(table) else []
    if not fields:
        return np.broadcast_to(np.int64(0), len(table)), paths  # takes no memory
    codes = np.zeros(len(table), dtype=np.int64)
    for field in fields:
        level_codes, names = (
            _components(table, field, hive_style)
            if time_path is None
            else _times(table, field, hive_style, time_path)
        )
        codes, pairs = _renumber(codes * max(len(names), 1) + level_codes)
        paths = [
            f"{paths[pair // len(names)]}{names[pair % len(names)]}/" for pair in pairs.tolist()
        ]
    return codes, [path.removesuffix("/") for path in paths]


def is_hidden(path: str) -> bool:
    """Return True if hudi-rs ignores a partition, because other formats use a directory of its
    name.

    >>> is_hidden("metadata/2024"), is_hidden("kind=metadata"), is_hidden("2024/metadata")
    (True, False, False)
    """
    return path.partition("/")[0] in _HIDDEN


def partition_values(paths: Sequence[str], schema: pa.Schema, hive_style: bool = True) -> pa.Table:
    """Return the values of the partition columns in ``schema`` for each of n partition paths, as n
    rows.

    >>> values = partition_values(["a=x%2Fy/n=3"], pa.schema({"a": pa.string(), "n": pa.int64()}))
    >>> values.to_pylist()
    [{'a': 'x/y', 'n': 3}]
    """
    columns = []
    for level, field in enumerate(schema):
        names = [path.split("/")[level] for path in paths]
        texts = [name.partition("=")[2] if hive_style else name for name in names]
        values = [None if text == NULL_PARTITION else unescape(text) for text in texts]
        columns.append(pc.cast(pa.array(values, pa.string()), field.type))
    return pa.table(columns, schema=schema)


@memo(4096)
def null_levels(path: str) -> frozenset[int]:
    """Return the levels of a partition path, from 0, with a null value.

    >>> null_levels("city=__HIVE_DEFAULT_PARTITION__/year=2024")
    frozenset({0})
    """
    return frozenset(
        n for n, name in enumerate(path.split("/")) if name.rpartition("=")[2] == NULL_PARTITION
    )


def _renumber(
    codes: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the codes renumbered without gaps, and the old code of each new code."""
    old_codes, renumbered = np.unique(codes, return_inverse=True)
    return renumbered.astype(np.int64), old_codes


def _components(
    table: pa.Table, field: str, hive_style: bool
) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Return the directory code of each row, and the directory name of each code."""
    column = plain(table[field])
    kinds = pa.types
    if not any(
        is_kind(column.type)
        for is_kind in (
            kinds.is_string,
            kinds.is_large_string,
            kinds.is_integer,
            kinds.is_boolean,
            kinds.is_date32,
        )
    ):
        by_time = (
            ", or derive paths from the time: options={'mdt.partition.time.pattern': 'yyyy/MM/dd'}"
        )
        raise Invalid(
            f"column {field!r} of type {column.type} cannot partition a table",
            hint="partition by a string, integer, boolean or date column; derive one with a cast"
            + (by_time if kinds.is_timestamp(column.type) else ""),
        )
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    values = pc.cast(encoded.dictionary, pa.string()).to_pylist()
    names = _names(field, values, hive_style, kinds.is_date32(column.type))
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), names


def _times(
    table: pa.Table, field: str, hive_style: bool, time_path: TimePath
) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Like :func:`_components`, for a time column. A name may have several levels."""
    texts = pc.dictionary_encode(
        time_path.texts(plain(table[field])).cast(pa.string()), null_encoding="encode"
    )
    prefix = f"{avro_name(field)}=" if hive_style else ""
    names = [
        f"{prefix}{NULL_PARTITION if text is None else text}"
        for text in texts.dictionary.to_pylist()
    ]
    return texts.indices.to_numpy(zero_copy_only=False).astype(np.int64), names


def _names(field: str, values: list[str | None], hive_style: bool, are_dates: bool) -> list[str]:
    prefix = ""
    if hive_style:
        prefix = f"{avro_name(field)}="
    refused: dict[str, list[str]] = {}
    names = []
    for value in values:
        if value is None:
            names.append(prefix + NULL_PARTITION)
            continue
        name = prefix + escape(value)
        reason = _rejection(value, prefix + value, name)
        if are_dates and not _DATE.fullmatch(value):
            reason = "is not in the years 1 to 9999"
        refused.setdefault(reason, []).append(value)
        names.append(name)
    refused.pop("", None)
    for reason, refused_values in refused.items():
        examples = ", ".join(repr(value[:60]) for value in refused_values[:10])
        raise Invalid(
            f"a value of partition column {field!r} {reason}: {examples}",
            hint="replace the value, or use null for rows without one",
        )
    return names


def _rejection(value: str, unescaped: str, name: str) -> str:
    """Return the reason why ``value`` cannot be a directory ``name``, or ""."""
    if not value:
        return "is empty"
    if value == NULL_PARTITION:
        return f"reads as null in a path ({NULL_PARTITION})"
    if unescaped in _RESERVED:
        return "is reserved"
    if len(name.encode()) > COMPONENT_BYTES_MAX:
        return f"gives a directory name over {COMPONENT_BYTES_MAX} bytes"
    return ""


def partition_depth(path: str) -> int:
    """Return the number of directory levels of a partition below the table.

    >>> partition_depth("city=Oslo/day=3"), partition_depth("")
    (2, 0)
    """
    return path.count("/") + 1 if path else 0
