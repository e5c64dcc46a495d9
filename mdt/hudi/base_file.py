"""Base files: names, meta columns and Parquet encoding. Data blocks of log files contain the same
Parquet bytes.

The files are written for other readers. They have no Arrow schema, and statistics only where these
are correct: parquet-cpp leaves NaN out of min and max while Spark orders it above all numbers, so a
column with a NaN gets no statistics. Floats have no dictionary, because parquet-java compares
dictionary entries with ``= 0.0`` bit by bit and would skip row groups that contain only -0.0.
Decimals are stored as bytes, because Hudi 1.2 loses the scale of integer decimals when it rewrites
a base file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mdt.hudi.avro_schema import (
    COMMIT_SEQNO,
    COMMIT_TIME,
    FILE_NAME,
    META_FIELDS,
    PARTITION_PATH,
    RECORD_KEY,
)
from mdt.hudi.file_names import BASE
from mdt.limits import PAGE_BYTES, PAGE_ROWS_MAX, SINGLE_PAGE_ROWS_MAX
from mdt.parquet import digests
from mdt.parquet.field_ids import with_field_ids
from mdt.parquet.nested import LeafColumn, leaf_columns, leaf_values
from mdt.schema.declared import with_local_times
from mdt.schema.names import in_files, with_file_names
from mdt.session import memo

COMPRESSION = "lz4"
"""Default codec (LZ4_RAW). With small pages, a full read takes 25 % less time than with zstd or
snappy.
"""
LEVELS = {"zstd": 1}
"""Compression levels. zstd 3 takes 20 % more time than zstd 1 for the same size."""

MIN_KEY, MAX_KEY = "hoodie_min_record_key", "hoodie_max_record_key"
FILTER, FILTER_TYPE = "org.apache.hudi.bloomfilter", "hoodie_bloom_filter_type_code"
"""Footer keys for Hudi's Bloom index: the range of the record keys, and a Bloom filter
(:mod:`indexes.hudi_bloom`).
"""
CALENDAR = {"org.apache.spark.version": "4.0.0"}
"""Footer entry which marks dates and times as proleptic Gregorian, as Spark has written them since
3.1.

Without it, Spark and Hudi's readers on it rebase them if the session is configured to do so for old
files (``spark.sql.parquet.datetimeRebaseModeInRead``).
"""
BLOOM_SIMPLE = "SIMPLE"

_SINGLE_PAGE_BYTES_MAX = 1 << 20
_PAGE_FACTORS = {"zstd": 4}
"""zstd needs about 10 µs to start a page, because it queries CPU features, which is slow on a
virtual machine. Larger pages compensate.
"""
_WRITE_BATCH_ROWS = 64
"""Number of values between parquet-cpp's checks for a full page. Smaller for long values."""
_PROBED_ROWS = 1000
_SMALL_ROWS = 2000
"""Below this row count, probing every column costs more than a dictionary saves."""
_CONSTANT = frozenset({COMMIT_TIME, PARTITION_PATH, FILE_NAME})
_UNIQUE = frozenset({COMMIT_SEQNO, RECORD_KEY})
_DISTINCT_SHARE_MAX = 0.75
"""A dictionary probably pays if at most this share of the first values is distinct."""
_FEW_SHARE_MAX = 0.125
_PREFIXED = "DELTA_BYTE_ARRAY"
"""Encoding of strings as a shared prefix with the previous value and a suffix."""
_PREFIXED_SHARE = 0.25
"""Strings are encoded this way if it reduces them to at most this share of their bytes. Sorted keys
reach 10 %.
"""
_HEX = re.compile(r"[0-9a-f]{32}")

KeyMetadata = tuple[str | None, str | None, bytes | None]
"""The smallest and the largest record key, and Hudi's Bloom filter of the keys in base64. None for
what the footer lacks.
"""


def _without_keys() -> KeyMetadata:
    return None, None, None


def name(file_id: str, token: str, instant: str) -> str:
    """Return the name of a base file.

    >>> name("6f2c-0", "3-77-0", "20240229120000123")
    '6f2c-0_3-77-0_20240229120000123.parquet'
    """
    text = f"{file_id}_{token}_{instant}.parquet"
    assert BASE.fullmatch(text), text
    return text


def new_file_id(hex32: str) -> str:
    """Return a file group id from 32 random hexadecimal digits: a version 4 UUID followed by
    ``-0``.
    """
    assert _HEX.fullmatch(hex32), hex32
    variant = "89ab"[int(hex32[16], 16) & 3]
    return f"{hex32[:8]}-{hex32[8:12]}-4{hex32[13:16]}-{variant}{hex32[17:20]}-{hex32[20:]}-0"


def bucket_file_id(file_id: str, bucket: int) -> str:
    """Return a file group id whose first eight digits are the bucket number, as in Hudi's bucket
    index.

    >>> bucket_file_id("6f2c0a11-aaaa-4bbb-8ccc-ddddeeeeffff-0", 7)
    '00000007-aaaa-4bbb-8ccc-ddddeeeeffff-0'
    """
    assert 0 <= bucket < 10**8, bucket
    return f"{bucket:08d}{file_id[8:]}"


def meta_columns(
    n: int,
    *,
    instant: str,
    task: int,
    keys: pa.Array,
    partition: str,
    file_name: str,
) -> list[pa.Array]:
    """Return the five meta columns of ``n`` new rows, in the order of META_FIELDS.

    Constant columns are dictionary<int32, string> arrays, which take 4 bytes per row in memory and
    almost nothing in the file.

    Args:
        task: Number of the task, a part of ``_hoodie_commit_seqno``.
        keys: string[n], the record keys.
    """
    assert len(keys) == n, (len(keys), n)
    if n == 1:
        seqno = pa.array([f"{instant}_{task}_0"], pa.string())
    else:
        seqno = pc.binary_join_element_wise(f"{instant}_{task}_", _row_numbers(n), "")
    zeros = _zeros(n)
    # One array holds all three texts: there may be thousands of small files, and each array costs
    # more than its texts.
    texts = pa.array([instant, partition, file_name], pa.string())
    time, path, file = (
        pa.DictionaryArray.from_arrays(zeros, texts.slice(at, 1)) for at in range(len(texts))
    )
    return [time, seqno, keys, path, file]


def _zeros(n: int) -> pa.Array:
    if n <= _SMALL_ROWS:
        return _many_zeros().slice(0, n)
    return pa.array(np.zeros(n, dtype=np.int32))


@cache
def _many_zeros() -> pa.Array:
    return pa.array(np.zeros(_SMALL_ROWS, dtype=np.int32))


def _row_numbers(n: int) -> pa.Array:
    if n <= _SMALL_ROWS:
        return _first_row_numbers().slice(0, n)
    return pc.cast(pa.array(np.arange(n, dtype=np.int64)), pa.string())


@cache
def _first_row_numbers() -> pa.Array:
    return pc.cast(pa.array(np.arange(_SMALL_ROWS, dtype=np.int64)), pa.string())


def with_meta_columns(table: pa.Table, meta: Sequence[pa.Array]) -> pa.Table:
    """Return ``table`` with the five meta columns in front."""
    if RECORD_KEY in table.column_names:  # a column of generated keys
        table = table.drop_columns([RECORD_KEY])
    fields = [pa.field(name, column.type) for name, column in zip(META_FIELDS, meta, strict=True)]
    return pa.table([*meta, *table.columns], schema=pa.schema([*fields, *table.schema]))


def stack(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate tables with the same columns, whether or not their meta columns are
    dictionaries.
    """
    types = [table.schema.types for table in tables]
    plain = [len(set(column_types)) > 1 for column_types in zip(*types, strict=True)]
    return pa.concat_tables([_decode(table, plain) for table in tables])


def _decode(table: pa.Table, plain: Sequence[bool]) -> pa.Table:
    for i, is_plain in enumerate(plain):
        column = table.column(i)
        if is_plain and pa.types.is_dictionary(column.type):
            table = table.set_column(
                i, table.schema.field(i).name, pc.cast(column, column.type.value_type)
            )
    return table


@dataclass(frozen=True, slots=True)
class FileForm:
    """How the Parquet files of a table are written.

    Attributes:
        avro_schema: Includes the meta columns.
        row_group_rows: Rows of a row group.
        page_bytes: Target page size, multiplied for zstd.
        bloom_type: Kind of Hudi's Bloom filter.
        field_ids: Ids of all fields, parents first (:func:`mdt.parquet.field_ids.with_field_ids`).
            Empty for none.
        local_times: :attr:`mdt.schema.definition.TableDefinition.local_times`.
    """

    avro_schema: str
    row_group_rows: int
    compression: str = COMPRESSION
    page_bytes: int = PAGE_BYTES
    bloom_type: str = BLOOM_SIMPLE
    field_ids: tuple[int, ...] = ()
    local_times: Mapping[str, pa.DataType] = field(default_factory=dict)

    def stored(self, table: pa.Table) -> pa.Table:
        """Return ``table`` with the names and types of columns in files."""
        return with_file_names(with_local_times(table, self.local_times))


def encode(
    table: pa.Table,
    form: FileForm,
    *,
    key_metadata: Callable[[], KeyMetadata] = _without_keys,
) -> tuple[pa.Buffer, pq.FileMetaData]:
    """Encode ``table`` as Parquet, with row groups from :func:`row_groups_of`. Return bytes and
    footer.

    Columns have their names in Hudi's files (:mod:`mdt.schema.names`). An empty table has a single,
    empty row group. A small table has a single page per column chunk and no page index. The footer
    contains digests of all column chunks (:mod:`mdt.parquet.digests`).

    Args:
        key_metadata: Called after the rows are encoded.
    """
    sink = pa.BufferOutputStream()
    footer = encode_parts(
        [table],
        sink,
        form,
        rows=len(table),
        unbounded=without_bounds(table),
        key_metadata=key_metadata,
    )
    data = sink.getvalue()
    digests.fill(data, footer)
    return data, footer


def encode_parts(
    parts: Iterable[pa.Table],
    sink: Any,
    form: FileForm,
    *,
    rows: int,
    unbounded: AbstractSet[str],
    key_metadata: Callable[[], KeyMetadata],
) -> pq.FileMetaData:
    """Write the rows of ``parts``, at least one, as Parquet to the file object ``sink``. Return the
    footer.

    See :func:`encode`. Each part begins a row group, and the first one determines the encodings.
    The caller fills in the digests (:func:`mdt.parquet.digests.fill`).

    Args:
        rows: Total number of rows.
        unbounded: Result of :func:`without_bounds` for all rows.
    """
    remaining = map(form.stored, parts)
    first = next(remaining)
    row_groups = 0
    with pq.ParquetWriter(
        sink,
        with_field_ids(first.schema.remove_metadata(), form.field_ids),
        store_schema=False,
        write_page_checksum=True,
        store_decimal_as_integer=False,
        **_encoding(first, unbounded, form.compression),
        **_paging(first, form.page_bytes, form.compression, rows),
    ) as writer:
        for part in chain([first], remaining):
            writer.write_table(part, row_group_size=form.row_group_rows)
            row_groups += len(row_groups_of(len(part), form.row_group_rows))
        entries = _footer(form, *key_metadata())
        place = digests.placeholder_text(row_groups * len(leaf_columns(first.schema)))
        writer.add_key_value_metadata(entries | {digests.KEY: place})
    return writer.writer.metadata  # a metadata_collector would hide errors of the sink


def _encoding(table: pa.Table, unbounded: AbstractSet[str], compression: str) -> dict[str, Any]:
    """Return the settings of statistics, encodings and codecs for rows like those of ``table``."""
    paths = [leaf.path for leaf in leaf_columns(table.schema)]
    statistics = [path for path in paths if path not in unbounded]
    repetitive = _repetitive(table)
    codecs = {path: _codec(compression, repetitive.get(path, 1.0)) for path in paths}
    levels = {path: LEVELS[codec] for path, codec in codecs.items() if codec in LEVELS}
    return {
        "compression": codecs,
        "compression_level": levels or None,
        "use_dictionary": sorted(repetitive),
        "column_encoding": _encodings(table, repetitive.keys(), compression) or None,
        "write_statistics": statistics or False,
    }


def floats(schema: pa.Schema) -> list[str]:
    """Return the floating-point columns, which have no bounds if they contain a NaN."""
    return [field.name for field in schema if _is_floating(field.type)]


def without_bounds(table: pa.Table) -> frozenset[str]:
    """Return the leaf paths, in files, whose parquet-cpp min/max are not valid bounds (NaN, signed
    order).
    """
    leaves = _leaves_in_files(table.schema)
    return frozenset(
        leaf.path for leaf in leaves if not _has_valid_bounds(table.column(leaf.column), leaf.type)
    )


@memo(64)
def _leaves_in_files(schema: pa.Schema) -> tuple[LeafColumn, ...]:
    """Return the :func:`mdt.parquet.nested.leaf_columns` with their paths in files."""
    return leaf_columns(in_files(schema))


def row_groups_of(rows: int, row_group_rows: int) -> tuple[int, ...]:
    """Return the row count of each row group in a file with ``rows`` rows.

    >>> row_groups_of(250, 100), row_groups_of(0, 100)
    ((100, 100, 50), (0,))
    """
    full, remainder = divmod(rows, row_group_rows)
    return (row_group_rows,) * full + ((remainder,) if remainder or not full else ())


def _codec(compression: str, distinct: float) -> str:
    """Return the codec of one column.

    parquet-java fails on LZ4 dictionaries above 8 KiB (issue 3478, open in the release used by
    Spark 4.3). zstd hardly shrinks columns with few distinct values, but adds time per page.
    """
    if distinct <= {"lz4": _DISTINCT_SHARE_MAX, "zstd": _FEW_SHARE_MAX}.get(compression, -1.0):
        return "snappy"
    return "none" if compression == "uncompressed" else compression


def _paging(table: pa.Table, page_bytes: int, compression: str, rows: int) -> dict[str, int | bool]:
    """Return the page settings. Arrow values do not grow when encoded, so a small table fits in one
    page.
    """
    if rows <= SINGLE_PAGE_ROWS_MAX and table.nbytes <= _SINGLE_PAGE_BYTES_MAX:
        return {
            "data_page_size": 2 * _SINGLE_PAGE_BYTES_MAX,
            "max_rows_per_page": SINGLE_PAGE_ROWS_MAX,
        }
    factor = _PAGE_FACTORS.get(compression, 1)
    widest = max((column.nbytes for column in table.columns), default=0) // max(1, len(table))
    return {
        "data_page_size": factor * page_bytes,
        "max_rows_per_page": factor * PAGE_ROWS_MAX,
        "write_batch_size": max(1, min(_WRITE_BATCH_ROWS, factor * page_bytes // max(1, widest))),
        "write_page_index": True,
    }


def _footer(
    form: FileForm, low: str | None, high: str | None, bloom: bytes | None
) -> dict[str, str]:
    entries = {"parquet.avro.schema": form.avro_schema, **CALENDAR}
    if low is not None and high is not None:
        entries |= {MIN_KEY: low, MAX_KEY: high}
    if bloom is not None:
        entries |= {FILTER: bloom.decode("ascii"), FILTER_TYPE: form.bloom_type}
    return entries


def _is_floating(leaf: pa.DataType) -> bool:
    if pa.types.is_dictionary(leaf):
        leaf = leaf.value_type
    return pa.types.is_floating(leaf)


def _has_valid_bounds(column: pa.ChunkedArray, leaf: pa.DataType) -> bool:
    """Return True if parquet-cpp's min/max of a leaf of ``column`` are valid bounds for all
    readers.
    """
    if not _is_floating(leaf):
        return True
    if column.type != leaf:
        return False
    if pa.types.is_dictionary(leaf):
        column = pc.cast(column, leaf.value_type)
    return not pc.any(pc.is_nan(column)).as_py()


def _encodings(table: pa.Table, repetitive: AbstractSet[str], compression: str) -> dict[str, str]:
    """Return the encodings of flat columns that use neither a dictionary nor plain values.

    Decoding a prefix-encoded string takes 10 ns more, which for a key column is 12 % of a
    look-up of 100 keys. Therefore only meta columns, which are rarely read, use it, and others if
    size comes first (zstd). Spark's vectorized reader supports it since 3.3, but BYTE_STREAM_SPLIT,
    which would suit floats, only since 4.3. DELTA_BINARY_PACKED would suit integers and times, but
    Spark up to 4.1 returns wrong values when a page index makes it skip rows of such a page.
    """
    texts = _texts(table.schema)
    if len(table) < _SMALL_ROWS:
        return dict.fromkeys((texts & {COMMIT_SEQNO}) - repetitive, _PREFIXED)
    if compression != "zstd":
        texts &= _UNIQUE
    sample = table.select(sorted(texts - repetitive)).slice(0, _PROBED_ROWS)
    return dict.fromkeys(_prefixed(sample), _PREFIXED)


@memo(64)
def _texts(schema: pa.Schema) -> frozenset[str]:
    """Return the columns of strings and binaries."""
    return frozenset(
        field.name
        for field in schema
        if pa.types.is_string(field.type) or pa.types.is_binary(field.type)
    )


def _prefixed(sample: pa.Table) -> list[str]:
    """Return the string columns that shrink enough if each value omits its prefix shared with the
    previous value.
    """
    names = sample.column_names
    if not names:
        return []
    sink = pa.BufferOutputStream()
    pq.write_table(
        sample,
        sink,
        compression="none",
        use_dictionary=False,
        column_encoding=dict.fromkeys(names, _PREFIXED),
        store_schema=False,
        write_statistics=False,
    )
    chunks = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0)
    sizes = [chunks.column(number).total_uncompressed_size for number in range(len(names))]
    return [
        name
        for name, size in zip(names, sizes, strict=True)
        if size <= _PREFIXED_SHARE * sample[name].nbytes
    ]


def _repetitive(table: pa.Table) -> Mapping[str, float]:
    """Return the leaves for which a dictionary probably pays, with the share of distinct first
    values.
    """
    always, perhaps = _dictionaries(table.schema)
    if len(table) < _SMALL_ROWS:
        return always
    shares = dict(always)
    for leaf in perhaps:
        share = _distinct_share(table.column(leaf.column).slice(0, _PROBED_ROWS), leaf)
        if share <= _DISTINCT_SHARE_MAX:
            shares[leaf.path] = share
    return shares


def _distinct_share(sample: pa.ChunkedArray, leaf: LeafColumn) -> float:
    values = leaf_values(sample, leaf).slice(0, _PROBED_ROWS)
    return float(pc.count_distinct(values).as_py() / len(values)) if len(values) else 1.0


@memo(64)
def _dictionaries(schema: pa.Schema) -> tuple[Mapping[str, float], tuple[LeafColumn, ...]]:
    """Return the leaves that always have a dictionary, with an estimated share of distinct values,
    and the leaves that may have one.
    """
    always, perhaps = dict[str, float](), []
    for leaf in leaf_columns(schema):
        if _is_floating(leaf.type) or leaf.path in _UNIQUE or pa.types.is_boolean(leaf.type):
            continue
        if leaf.path in _CONSTANT:
            always[leaf.path] = 0.0
        elif pa.types.is_dictionary(leaf.type):
            always[leaf.path] = _DISTINCT_SHARE_MAX
        else:
            perhaps.append(leaf)
    return always, tuple(perhaps)
