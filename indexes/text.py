"""The inverted index: the rows that contain each token.

It supports ``match`` directly. Equality, prefix and LIKE tests also use it, because a text that
matches them contains the n-grams of the pattern's literal parts, and its complete words. The result
is a superset of the matching rows.

Format "text/1", little-endian: a container of blocks (``indexes.blocks``) of kind ``text/1``. The
first block is a header. The others hold terms and postings. A *part* is bytes of known length,
compressed with zstd if that makes it clearly shorter.

======  ============================================================================================
header  rows uint32, bytes of the identity uint32, bytes of the fences uint32; the identity (UTF-8:
        spec, space, version of the tokenizer); end of each fence uint32[blocks - 1]; the fences
block   terms t uint32, postings p uint32, bytes of the terms uint32, bytes of five parts uint32
        each; the parts: the directory (end of each term uint32[t], postings of each term uint32[t],
        the terms), and four times uint8[p]: the lowest bytes of all gaps, the second lowest bytes,
        and so on; a part is empty if all of its bytes are zero
======  ============================================================================================

Terms are UTF-8, truncated to 128 code points, and sorted by their bytes across all blocks. A fence
is the shortest text above all terms of the preceding blocks and not above those of the following
blocks.

The first gap of a term is its first row. Each further gap is the distance from the previous row,
minus one. Bytes of equal significance are stored together, because only the higher bytes compress.
A term is stored in a single block of about 8 KiB, so a lookup costs two or three reads.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from indexes import tokenizers, values
from indexes.arrays import run_starts
from indexes.base import BoolArray, Int64Array, SkippingIndex, Summary
from indexes.blocks import Blocks, pack
from indexes.characters import buffers
from indexes.dictionary import common_length
from indexes.like import parse_like
from indexes.predicate import Leaf, match_query
from indexes.tokenizers import Tokenizer

BLOCK_BYTES = 8192
"""Approximate size of a block before compression. A single term may exceed it."""
BLOCKS_KEPT = 8
"""Decoded blocks cached by a reader."""
_BLOCK_BYTES_READ_MAX = 65_536
"""Largest block that readers accept, for any version of the writer. Part of the format."""
TERM_LENGTH_MAX = 128
"""Stored code points of a token. Longer tokens with the same prefix share their rows."""
TOKENS_MAX = 16
"""Maximum number of tokens to look up for a text, spread over it. More would hardly exclude more
rows.
"""
TEXTS_MAX = 256
"""Maximum number of texts of an IN list. With more, the reads cost more than they save."""

_KIND = b"text/1"
_HEADER = struct.Struct("<3I")
_BLOCK = struct.Struct("<8I")
_PLANES = 4
_CODEC = pa.Codec("zstd", 1)
_SAVING_BYTES_MIN = 768  # of 8 KiB; decompressing a part takes as long as the rest of a lookup
_UINT32 = np.dtype("<u4")
_ROWS_MAX = 2**27
_TERM_WEIGHT, _POSTING_WEIGHT = 4, 2
_TERM_BYTES_MAX = 4 * TERM_LENGTH_MAX  # UTF-8 has at most four bytes per code point
_LOW_32 = np.uint64(2**32 - 1)

UInt32Array = npt.NDArray[np.uint32]
Alternatives = list[list[str]]
"""Rows must contain all tokens of at least one list. An empty list of lists matches no row."""


class TextIndex(SkippingIndex):
    """Inverted index of text. ``tokenizer`` is a tokenizer specification (``indexes.tokenizers``),
    e.g. "ngram(3)".

    Raises ValueError if the tokenizer is unknown or its package is not installed.

    >>> from indexes.base import InMemory
    >>> column = pa.array(["a black umbrella", "", "black", None])
    >>> notes = InMemory(TextIndex("word").summarize(column))
    >>> TextIndex("word").rows([notes], Leaf("note", "match", "black umbrella"), pa.string())
    [BitMap([0])]
    """

    name = "text/1"
    finds_rows = True

    def __init__(self, tokenizer: str = "word") -> None:
        self.tokenizer = tokenizers.find(tokenizer)

    def supports(self, type: pa.DataType) -> bool:
        return values.kind_of(type) == "string"

    def summarize(self, values: pa.Array) -> bytes:
        if len(values) >= _ROWS_MAX:
            raise ValueError(
                f"{len(values)} rows are too many for a text index; write smaller files"
            )
        terms, counts, gaps = _postings(self.tokenizer, _as_string(values))
        return _pack_blocks(_identity(self.tokenizer), len(values), terms, counts, gaps)

    def can_test(self, leaf: Leaf, type: pa.DataType) -> bool:
        return self.supports(type) and self._alternatives(leaf) is not None

    def prune(self, summaries: Sequence[Summary], leaf: Leaf, type: pa.DataType) -> BoolArray:
        positions = self.rows(summaries, leaf, type)
        return np.array([rows is None or bool(rows) for rows in positions], np.bool_)

    def rows(
        self, summaries: Sequence[Summary], leaf: Leaf, type: pa.DataType
    ) -> list[BitMap | None]:
        alternatives = self._alternatives(leaf) if self.supports(type) else None
        if alternatives is None:
            return [None] * len(summaries)
        coded = [[token.encode() for token in tokens] for tokens in alternatives]
        identity = _identity(self.tokenizer)
        return [_search(summary, identity, coded) for summary in summaries]

    def _alternatives(self, leaf: Leaf) -> Alternatives | None:
        """Return the tokens that matching rows must contain, or None if the leaf implies
        no tokens.
        """
        texts = _texts(leaf)
        if leaf.op == "match" and leaf.value is not None:
            alternatives: Alternatives | None = self._matching(leaf)
        elif texts is None or len(texts) > TEXTS_MAX:
            return None
        else:
            alternatives = [self._implied(parts) for parts in texts]
        if alternatives is None or not all(alternatives):
            return None
        return [_sample_tokens(tokens) for tokens in alternatives]

    def _matching(self, leaf: Leaf) -> Alternatives | None:
        text, tokenizer = match_query(leaf)
        tokens = tokenizer.query(text)
        if tokenizer.spec == self.tokenizer.spec or not tokens:
            if tokens:
                return [tokens]
            return []
        if not tokenizer.cuts_words:
            return None
        return [
            [implied for token in tokens for implied in self.tokenizer.implied(token, True, True)]
        ]

    def _implied(self, parts: list[str | None]) -> list[str]:
        """Return the tokens contained in every text that matches a LIKE pattern.

        ``parts`` is a result of ``parse_like``.
        """
        last = len(parts) - 1
        implied = [
            self.tokenizer.implied(part, i > 0, i < last) for i, part in enumerate(parts) if part
        ]
        return [token for tokens in implied for token in tokens]


def _texts(leaf: Leaf) -> list[list[str | None]] | None:
    """Return the alternative texts of ``leaf`` as parsed LIKE patterns, or None for other
    operators.
    """
    if leaf.op == "in" and isinstance(leaf.value, tuple):
        literals = [value for value in leaf.value if value is not None]
        if all(isinstance(value, str) for value in literals):
            return [[value] for value in literals]
        return None
    if not isinstance(leaf.value, str):
        return None
    if leaf.op in ("=", "<=>"):
        return [[leaf.value]]
    if leaf.op == "starts with":
        return [[leaf.value, None]]
    if leaf.op == "like":
        return [parse_like(leaf.value)]
    return None


def _sample_tokens(tokens: list[str]) -> list[str]:
    """Return at most TOKENS_MAX distinct tokens spread over the text, truncated like terms."""
    distinct = list(dict.fromkeys(token[:TERM_LENGTH_MAX] for token in tokens))
    if len(distinct) <= TOKENS_MAX:
        return distinct
    return [distinct[i * (len(distinct) - 1) // (TOKENS_MAX - 1)] for i in range(TOKENS_MAX)]


def _identity(tokenizer: Tokenizer) -> bytes:
    return f"{tokenizer.spec} {tokenizer.version}".encode()


def _as_string(column: Any) -> Any:
    """Return ``column`` as string or large_string[n]."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column
    return column.cast(pa.large_string())


def _postings(tokenizer: Tokenizer, column: Any) -> tuple[Any, Int64Array, UInt32Array]:
    """Return the sorted terms: string[t], the row count of each: int64[t], and the gaps:
    uint32[p].
    """
    tokens, row = tokenizer.tokens(column)
    terms, code = _distinct(tokens)
    order = pc.array_sort_indices(terms)
    rank = np.empty(len(terms), np.uint64)
    rank[order.to_numpy()] = np.arange(len(terms), dtype=np.uint64) << np.uint64(32)
    pairs = np.sort(rank[code] | row.astype(np.uint64))
    pairs = pairs[np.diff(pairs, prepend=pairs[:1] + np.uint64(1)) != 0]
    rows = (pairs & _LOW_32).astype(np.int64)
    counts = np.bincount((pairs >> np.uint64(32)).astype(np.int64), minlength=len(terms))
    gaps = np.diff(rows, prepend=-1) - 1
    first = run_starts(counts)
    gaps[first] = rows[first]
    return terms.take(order), counts, gaps.astype(np.uint32)


def _distinct(tokens: Any) -> tuple[Any, Int64Array]:
    """Return the distinct truncated tokens, and the number of each token -> (string[t],
    int64[tokens]).
    """
    encoded = tokens if pa.types.is_dictionary(tokens.type) else tokens.dictionary_encode()
    code = encoded.indices.to_numpy()
    used = np.bincount(code, minlength=len(encoded.dictionary)) > 0
    cut = pc.utf8_slice_codeunits(
        encoded.dictionary.filter(pa.array(used)), 0, TERM_LENGTH_MAX
    ).dictionary_encode()
    number = np.zeros(len(used), np.int64)
    number[used] = cut.indices.to_numpy()
    return cut.dictionary, number[code]


def _pack_blocks(
    identity: bytes, rows: int, terms: Any, counts: Int64Array, gaps: UInt32Array
) -> bytes:
    """Return the summary. The arguments are the results of :func:`_postings`."""
    bounds, raw = buffers(terms)
    starts = np.append(0, np.cumsum(counts))
    weight = np.cumsum(np.diff(bounds) + _TERM_WEIGHT + counts * _POSTING_WEIGHT)
    cuts = np.flatnonzero(np.diff(weight // BLOCK_BYTES, prepend=-1)).tolist()
    blocks, fences = [], []
    for low, high in pairwise([*cuts, len(counts)]):
        texts = raw[bounds[low] : bounds[high]]
        ends = bounds[low + 1 : high + 1] - bounds[low]
        blocks.append(_block(texts, ends, counts[low:high], gaps[starts[low] : starts[high]]))
        if low:
            fences.append(
                _fence(*(raw[bounds[at] : bounds[at + 1]].tobytes() for at in (low - 1, low)))
            )
    joined_fences = b"".join(fences)
    ends = np.cumsum([len(fence) for fence in fences], dtype=_UINT32).tobytes()
    header = _HEADER.pack(rows, len(identity), len(joined_fences)) + identity + ends + joined_fences
    return pack([header, *blocks], kind=_KIND)


def _fence(below: bytes, above: bytes) -> bytes:
    """Return the shortest prefix of ``above`` that is greater than ``below``. Requires below <
    above.
    """
    return above[: common_length(below, above) + 1]


def _block(texts: Any, ends: Int64Array, counts: Int64Array, gaps: UInt32Array) -> bytes:
    planes = gaps.astype(_UINT32).view(np.uint8).reshape(-1, _PLANES).T
    directory = ends.astype(_UINT32).tobytes() + counts.astype(_UINT32).tobytes() + texts.tobytes()
    parts = [
        _compress(directory),
        *(_compress(plane.tobytes()) if plane.any() else b"" for plane in planes),
    ]
    return b"".join((_BLOCK.pack(len(ends), len(gaps), len(texts), *map(len, parts)), *parts))


def _compress(raw: bytes) -> bytes:
    """Return ``raw`` as a part, compressed if the saving is worth the decompression."""
    packed: bytes = _CODEC.compress(raw, asbytes=True) if len(raw) > _SAVING_BYTES_MIN else raw
    if len(packed) + _SAVING_BYTES_MIN < len(raw):
        return packed
    return raw


def _decompress(part: memoryview, size: int) -> bytes | memoryview:
    """Return the ``size`` bytes of a part. Raises ValueError if decompression fails."""
    if len(part) == size:
        return part
    try:
        raw: bytes = _CODEC.decompress(part, size, asbytes=True)
    except OSError as error:
        raise ValueError(f"a part of a text index cannot be decompressed: {error}") from error
    return raw


def _search(summary: Summary, identity: bytes, alternatives: list[list[bytes]]) -> BitMap | None:
    """Return the rows that contain all tokens of any of the lists.

    Returns None if the summary was written with another tokenizer.
    """
    matches = BitMap()
    if not alternatives:
        return matches
    reader = summary.keep(partial(_Reader.open, summary))
    if reader.identity != identity:
        return None
    for tokens in alternatives:
        postings = reader.postings(tokens)
        if postings is not None:
            matches |= _intersection(postings)
    return matches


def _intersection(postings: list[UInt32Array]) -> BitMap:
    shortest, *longer = sorted(postings, key=len)
    is_row = np.zeros(max(int(rows[-1]) for rows in postings) + 1, np.bool_)
    for posting in longer:
        is_row[posting] = True
        shortest = shortest[is_row[shortest]]
        is_row[posting] = False
    return BitMap(array("I", shortest.tobytes()))  # 15x faster than from the numpy array


@dataclass(slots=True)
class _Reader:
    """Reader of a summary with ``rows`` rows. Loads blocks on demand."""

    identity: bytes
    rows: int
    _fences: _Texts
    _container: Blocks
    _blocks: dict[int, _Block] = field(default_factory=dict)

    @classmethod
    def open(cls, summary: Summary) -> _Reader:
        """Read the header. Raises ValueError for other bytes."""
        container = Blocks.open(summary, _KIND)
        header = container.read(0)
        _require(len(header) >= _HEADER.size, "its header is too short")
        rows, identity_bytes, size = _HEADER.unpack_from(header)
        start = _HEADER.size + identity_bytes
        middle = start + max(container.count - 2, 0) * _UINT32.itemsize
        _require(
            rows < _ROWS_MAX and middle + size == len(header),
            "the lengths in its header do not add up",
        )
        fences = _Texts.parse(header[start:middle], bytes(header[middle:]))
        return cls(bytes(header[_HEADER.size : start]), rows, fences, container)

    def postings(self, tokens: Iterable[bytes]) -> list[UInt32Array] | None:
        """Return the rows of each token in ascending order, or None if a token has no rows."""
        postings = []
        for token in tokens:
            rows = self._token_rows(token)
            if rows is None:
                return None
            postings.append(rows)
        return postings

    def _token_rows(self, token: bytes) -> UInt32Array | None:
        if self._container.count < 2:
            return None
        at = self._fences.count_not_above(token)
        block = self._blocks.get(at)
        if block is None:
            block = _Block.read(self._container.read(at + 1), self.rows)
            if len(self._blocks) >= BLOCKS_KEPT:
                self._blocks.clear()
            self._blocks[at] = block
        return block.find(token)


@dataclass(slots=True)
class _Block:
    """A block with decoded terms. Its gaps are decoded on demand."""

    rows: int
    _terms: _Texts
    _counts: UInt32Array
    _postings: int
    _planes: list[memoryview]

    @classmethod
    def read(cls, data: memoryview, rows: int) -> _Block:
        """Decode a block of a segment with ``rows`` rows. Raises ValueError for other bytes."""
        _require(len(data) >= _BLOCK.size, "a block is too short")
        terms, postings, size, *lengths = _BLOCK.unpack_from(data)
        _require(terms <= _BLOCK_BYTES_READ_MAX, "a block has too many terms")
        _require(postings <= _BLOCK_BYTES_READ_MAX + rows, "a block has too many postings")
        _require(
            size <= _BLOCK_BYTES_READ_MAX + _TERM_BYTES_MAX, "the terms of a block are too long"
        )
        bounds = [*accumulate(lengths, initial=_BLOCK.size)]
        _require(bounds[-1] == len(data), "the lengths in a block do not add up")
        parts = [data[low:high] for low, high in pairwise(bounds)]
        width = terms * _UINT32.itemsize
        directory = memoryview(_decompress(parts[0], 2 * width + size))
        counts = np.frombuffer(directory[width : 2 * width], _UINT32)
        _require(
            int(counts.sum(dtype=np.uint64)) == postings, "the postings of a block do not add up"
        )
        return cls(
            rows,
            _Texts.parse(directory[:width], bytes(directory[2 * width :])),
            counts,
            postings,
            parts[1:],
        )

    def find(self, token: bytes) -> UInt32Array | None:
        """Return the rows of ``token`` in ascending order, or None if it is not in the block."""
        at = self._terms.count_not_above(token) - 1
        if at < 0 or self._terms[at] != token:
            return None
        start = int(self._counts[:at].sum(dtype=np.int64))
        stop = start + int(self._counts[at])
        gaps = np.ones(stop - start, np.int64)
        for weight, plane in enumerate(self._planes):
            if len(plane):
                raw = np.frombuffer(_decompress(plane, self._postings), np.uint8)
                gaps += raw[start:stop].astype(np.int64) << 8 * weight
        rows = np.cumsum(gaps) - 1
        _require(len(rows) > 0 and int(rows[-1]) < self.rows, "a row lies outside the segment")
        return rows.astype(np.uint32)


@dataclass(slots=True)
class _Texts:
    """Sorted texts: joined bytes and the end of each text, uint32[n]."""

    _ends: UInt32Array
    _joined: bytes

    @classmethod
    def parse(cls, ends: memoryview, texts: bytes) -> _Texts:
        """Raise ValueError unless the ends ascend to the length of ``texts``."""
        bounds = np.frombuffer(ends, _UINT32)
        whole = (
            int(bounds[-1]) == len(texts) and bool((bounds[1:] >= bounds[:-1]).all())
            if len(bounds)
            else not texts
        )
        _require(whole, "texts overlap")
        return cls(bounds, texts)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, at: int) -> bytes:
        return self._joined[int(self._ends[at - 1]) if at else 0 : int(self._ends[at])]

    def count_not_above(self, text: bytes) -> int:
        """Return the number of texts that are at most ``text``. O(log n)."""
        return bisect_right(range(len(self)), text, key=self.__getitem__)


def _require(condition: bool, message: str) -> None:
    """Raise ValueError unless ``condition`` holds."""
    if not condition:
        raise ValueError(f"a text index is damaged: {message}")
