"""A Bloom filter of the values of a column. It proves ``=``, ``<=>`` and ``in`` where min/max
bounds are too wide.

The filter contains the keys (``indexes.values``) of a segment's distinct values, hashed by
``indexes.key_hash``, in the block format of ``indexes.bloom``. Nulls are not in the filter. Two
flags record the presence of nulls and of values.

A lookup of a literal needs a single block. It reads and verifies only the 4 KiB page of that block,
however large the filter is.

Bytes, little-endian::

    header  magic "MCBL", version (1), flags (1: has nulls 1, has values 2), 0 (2),
            blocks (uint32), CRC-32 of these (4)
    pages   128 blocks each, the last page fewer, and after each its CRC-32 (4),
            which starts from the page's number
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar
from zlib import crc32

import numpy as np
import pyarrow as pa

from indexes import bloom, options, values
from indexes.arrays import run_starts, spans
from indexes.base import BoolArray, KeyHashes, SkippingIndex, Summary
from indexes.bloom import BLOCK_BYTES, FilterSet
from indexes.key_hash import hash_keys
from indexes.predicate import Leaf
from indexes.values import sorted_keys

PAGE_BLOCKS = 128
"""Blocks per checksum: 4 KiB, the page size of most stores. Smaller reads are not cheaper."""
LITERALS_MAX = 1000
"""Maximum number of literals to look up. With more, almost every filter has a false positive."""

_PAIRS_MAX = 1 << 16
_MAGIC = b"MCBL"
_VERSION = 1
_HAS_NULLS, _HAS_VALUES = 1, 2
_HEADER = struct.Struct("<4sBBHI")
_CRC = struct.Struct("<I")
_HEADER_BYTES = _HEADER.size + _CRC.size
_PAGE_BYTES = PAGE_BLOCKS * BLOCK_BYTES
_STRIDE = _PAGE_BYTES + _CRC.size
_SEED = 0
_OPS = frozenset(("=", "<=>", "in", "is null", "is not null"))


class ColumnBloom(SkippingIndex):
    """Bloom filter index: ``bloom(column, fpp='0.01')``.

    ``fpp`` is the false-positive probability for absent values, in (0, 1). Raises ValueError for
    any other ``fpp``.
    """

    name: ClassVar[str] = "bloom/1"

    def __init__(self, fpp: str = "0.01") -> None:
        self._fpp = options.probability("fpp", fpp)

    def supports(self, type: pa.DataType) -> bool:
        """Return True if columns of ``type`` can be summarized. O(1)."""
        return values.supports(type)

    def summarize(self, values: pa.Array) -> bytes:
        """Return the filter of a segment's column [rows]. O(rows), hashing O(distinct values)."""
        keys = _distinct_keys(values)
        blocks = bloom.build(hash_keys(keys, _SEED), self._fpp)
        has = _HAS_NULLS * (values.null_count > 0 or _has_null_entries(values)) | _HAS_VALUES * (
            len(keys) > 0
        )
        return _frame(blocks, has)

    def can_test(self, leaf: Leaf, type: pa.DataType) -> bool:
        """Return True if ``leaf`` tests equality or null. O(1)."""
        return leaf.op in _OPS

    def prune(self, summaries: Sequence[Summary], leaf: Leaf, type: pa.DataType) -> BoolArray:
        """Return MAYBE or NO for each of n summaries -> bool[n].

        Reads the header of each summary and a page for each literal. O(n × literals). Raises
        ValueError for bytes that this index did not write.

        >>> from indexes.base import InMemory
        >>> riders = InMemory(ColumnBloom().summarize(pa.array(["ann", "bob"])))
        >>> [
        ...     ColumnBloom().prune([riders], Leaf("rider", "=", name), pa.string()).tolist()
        ...     for name in ("ann", "cy")
        ... ]
        [[True], [False]]
        """
        if not self.can_test(leaf, type):
            return np.ones(len(summaries), np.bool_)
        heads = [summary.keep(partial(_read_header, summary)) for summary in summaries]
        if leaf.op == "is null" or (leaf.op == "<=>" and leaf.value is None):
            return np.array([head.has_nulls for head in heads], np.bool_)
        has_values = np.array([head.has_values for head in heads], np.bool_)
        if leaf.op == "is not null":
            return has_values
        hashes = _literal_hashes(leaf, type)
        if len(hashes) > LITERALS_MAX:
            return has_values
        step = _PAIRS_MAX // max(1, len(hashes))
        pieces = spans(len(heads), step)
        members = [_contains_any(summaries[piece], heads[piece], hashes) for piece in pieces]
        return np.asarray(has_values & np.concatenate([np.zeros(0, np.bool_), *members]))


@dataclass(frozen=True, slots=True)
class _Header:
    """The header of a summary. ``first_page`` comes with its checksum, from the
    same read.
    """

    has_nulls: bool
    has_values: bool
    blocks: int
    first_page: memoryview


def _distinct_keys(column: pa.Array) -> pa.Array:
    """Return the distinct keys of a column's values -> binary[d]."""
    encoded = pa.types.is_dictionary(column.type)
    distinct = column.dictionary.take(column.indices.unique()) if encoded else column.unique()
    keys = values.encode(distinct.drop_null())
    # Different entries may have equal keys: both zeros, all NaN, duplicates in a dictionary.
    if encoded or pa.types.is_floating(column.type):
        return keys.unique()
    return keys


def _has_null_entries(column: pa.Array) -> bool:
    """Return True if a dictionary has a null entry in use. ``null_count`` does not include these
    rows.
    """
    if not pa.types.is_dictionary(column.type) or not column.dictionary.null_count:
        return False
    return bool(values.plain(column).null_count)


def _frame(blocks: bytes, flags: int) -> bytes:
    head = _HEADER.pack(_MAGIC, _VERSION, flags, 0, len(blocks) // BLOCK_BYTES)
    parts = [head, _CRC.pack(crc32(head))]
    for page, start in enumerate(range(0, len(blocks), _PAGE_BYTES)):
        data = blocks[start : start + _PAGE_BYTES]
        parts += [data, _CRC.pack(crc32(data, page))]
    return b"".join(parts)


def _read_header(summary: Summary) -> _Header:
    """Read and verify the header. Raises ValueError if the header or the summary size is wrong."""
    head = summary.read(0, _HEADER_BYTES + _STRIDE)
    if len(head) < _HEADER_BYTES:
        raise ValueError(
            f"a Bloom filter must have more than {_HEADER_BYTES} bytes, got {len(head)}"
        )
    magic, version, flags, zero, blocks = _HEADER.unpack_from(head)
    if (
        magic != _MAGIC
        or version != _VERSION
        or crc32(head[: _HEADER.size]) != _CRC.unpack_from(head, _HEADER.size)[0]
    ):
        raise ValueError("not a Bloom filter of a column, or the header is damaged")
    pages = -(-blocks // PAGE_BLOCKS)
    size = _HEADER_BYTES + blocks * BLOCK_BYTES + pages * _CRC.size
    if not blocks or flags > 3 or zero or len(summary) != size:
        raise ValueError(
            f"a Bloom filter of {blocks} blocks must have {size} bytes, got {len(summary)}"
        )
    return _Header(
        bool(flags & _HAS_NULLS), bool(flags & _HAS_VALUES), blocks, head[_HEADER_BYTES:]
    )


def _literal_hashes(leaf: Leaf, type: pa.DataType) -> KeyHashes:
    """Return the hashes of the literals that a value can equal. Skips nulls and literals between
    two values.
    """
    literals = leaf.value if isinstance(leaf.value, tuple) else (leaf.value,)
    return hash_keys(pa.array(sorted_keys(literals, type), pa.binary()), _SEED)


def _contains_any(
    summaries: Sequence[Summary], heads: Sequence[_Header], hashes: KeyHashes
) -> BoolArray:
    """Return True for each of n filters that may contain any of k keys -> bool[n].

    All n × k pairs are probed in one call.
    """
    n, k = len(heads), len(hashes)
    if not n or not k:
        return np.zeros(n, np.bool_)
    which, key = np.repeat(np.arange(n), k), np.tile(np.arange(k), n)
    blocks = np.array([head.blocks for head in heads], np.int64)
    page = bloom.blocks_of(hashes.take(key), blocks[which]) // PAGE_BLOCKS
    requests, pair_page = np.unique(which << 32 | page, return_inverse=True)
    pages = [
        _read_page(summaries[request >> 32], heads[request >> 32], request & 0xFFFFFFFF)
        for request in requests.tolist()
    ]
    sizes = np.array([len(data) // BLOCK_BYTES for data in pages], np.int64)
    # A filter for each pair with its full number of blocks, shifted so that the page's blocks are
    # at their position.
    first = run_starts(sizes)[pair_page] - page * PAGE_BLOCKS
    words = np.frombuffer(b"".join(pages), np.dtype("<u4"))
    pairs = np.arange(n * k, dtype=np.int64)
    hits = FilterSet(words, first, blocks[which]).probe_pairs(pairs, key, hashes)
    return np.asarray(hits.reshape(n, k).any(axis=1))


def _read_page(summary: Summary, head: _Header, page: int) -> memoryview:
    """Return the blocks of a page. Raises ValueError if they are damaged."""
    start = _HEADER_BYTES + page * _STRIDE
    data = head.first_page[:_STRIDE] if page == 0 else summary.read(start, start + _STRIDE)
    size = min(PAGE_BLOCKS, head.blocks - page * PAGE_BLOCKS) * BLOCK_BYTES
    if len(data) != size + _CRC.size or crc32(data[:size], page) != _CRC.unpack_from(data, size)[0]:
        raise ValueError(f"page {page} of a Bloom filter is damaged")
    return data[:size]
