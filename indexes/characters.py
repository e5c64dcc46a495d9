"""Word characters and case folding, pinned to Unicode 14.0.

Persisted indexes must have the same meaning for every later reader. The Unicode tables of Python,
Arrow and Java change with their versions, so this module has its own tables, generated from Unicode
14.0.

- A *word character* is a letter, a mark or a number (general categories L, M, N), except for
  variation selectors (U+FE00 to U+FE0F), which only select a glyph. A code point that Unicode 14.0
  had not assigned counts like the nearest assigned code point below it. New letters of a script are
  therefore letters.
- *Folding* maps each code point to a code point: Unicode's simple case folding (statuses C and S of
  ``CaseFolding.txt``), and İ to i. So Σ, σ and ς are equal, ß is not ss, and a letter with a
  combining accent stays two code points. Text is not normalized.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

CODE_POINTS = 0x110000
"""Number of code points."""

_ASCII = 128

# Distances between changes from other to word characters and back, hexadecimal.
_WORD_STEPS = (
    "30 a 7 1a 6 1a 2f 1 7 2 1 1 3 2 1 3 1 17 1 1f 1 1ca 4 c e 5 7 1 1 1 11 75 1 8 1 5 2 1 1 6e 1"
    " 8b 1 d7 6 29 8 2d 1 1 1 2 1 2 1 2c 1d b 5 4a 4 66 1 8 2 a 1 13 2 1 10 e6 4 4 2 30 10 1e 2 28"
    " 1 7 8 4a 1 81 2 a 1 81 2 6 2 1 1 78 b 6f 9 77 1 82 d 77 1 7 1 4 1 ca 5 25 1 7a d 3e 1 f 1 a"
    " 27 80 17 2 6 14 1 1 1 1 1 1 4 47 1 38 8 1 39 4a 6 4e 2 5b 1 264 9 27 10 60 1 26c 2 11 1 1a 5"
    " 4b 3 47 b 94 3 1 4 24 b 3 1 131 6 98 22 1e 2 80 7 1 8 aa 11 9 c 7c 4 3b 5 3e 2 40 10 3 1 2e9"
    " 1 1 3 b 3 d 3 d 5 b 73 a 5 b 6 10 30 30 2 1 4 1 2 a 1 1 3 5 6 1 1 1 1 1 1 4 1 b 2 4 5 5 4 1 1"
    " 3a 2d6 3c 4e 16 276 1e 46c e5 6 e 4 1 2 70 f 81 2f 1 1d5 3 19 f 1 5 2 5 4 5a 2 3 1 5a 1 94 2"
    " 4 a 20 30 10 20 a 1e 8 1 f 20 a 27 f 140 19c0 40 5690 40 2e 2 10d 3 63 1 a 1 73 25 9 2 67 2"
    " 9d 4 a a 34 c 4e 2 28 3 1 1 31 2 2f 1 61 e f 2 7c 4 17 3 64 2 10 2 69 1 e 6 7b 1 2c14 2100"
    " 229 1 88 21 16b 12 7f 21 c 24 10 40 8f 11 a 7 1a 6 1a b 7a 20 100 7 30 9 39 11 2 71 1a2 1 30"
    " 1 19e 1 2e7 1 1f 2 a6 1 1f 41 d0 10 1f 1 48 1 27 10 39 7 59 10 304 3 a5 1b 16 2a 97 b 69 7 b"
    " 3 70 4 30 2 4f 4 4 1 d 1 1 4 57 6 6b 7 19b 5 a 4 68 1 fa 17 69 3 1c 20 39 7 7c 4 fb 65 a4 c"
    " 92 1 5c 8 53 3 1 12 191 f 20 2 285 b9 25 2b 470 10 b71 f 430 fd0 266e 2 85 b 37 9 4 c 347 69"
    " e2 1 4cb9 1 2 1261 50 215 5 3 6 8 8 2 7 1e 4 94 3 9b 20 60 361 1 19 1 1f 1 19 1 1f 1 19 1 1f"
    " 1 19 1 1f 1 19 1 3c 200 37 4 32 8 1 e 1 16 6b4 141 6f 4e1 17e 313 3b 1 3 1 7d 1 1c1 210 d ae3"
    " c0411 ff ff00 "
)
# Runs of code points with the same folding distance, hexadecimal:
# gap to the first code point [+ length [/ step]] > distance.
_FOLD_RUNS = (
    "41+1a>20 74>307 b+17>20 18+7>20 28+18/2>1 30>-c7 2+3/2>1 7+8/2>1 11+17/2>1 2e>-79 1+3/2>1"
    " 6>-10c 2>d2 1+2/2>1 4>ce 1>1 2+2>cd 2>1 3>4f 1>ca 1>cb 1>1 2>cd 1>cf 2>d3 1>d1 1+2/8>1 4>d3"
    " 1>d5 2>d6 3+2/2>1 4+2/8>da 1+2/8>1 2>da 3+2/9>1 5+2>d9 2+3/9>1 4>db 1>1 c>2 3>2 1+2/9>1 2>2"
    " 1+3/2>1 8+5/2>1 b+9/2>1 13>2 1+9/8>1 2+8/8>1 2>-61 1>-38 1+5/8>1 6+7/8>1 22>-82 8+2/8>1"
    " 12>2a2b 1>1 2>-a3 1>2a28 3+2/9>1 2>-c3 1>45 1>47 1+2/2>1 6+2/2>1 f9>74 2b+2/2>1 6>1 9>74 7>26"
    " 2+3>25 4>40 2+2>3f 3+11>20 12+9>20 1f>1 d>8 1>-1e 1>-19 4>-f 1>-16 2+c/2>1 18>-36 1>-30 3>-3c"
    " 1>-40 2>1 2>-7 1>1 3+3>-82 3+10>50 10+20>20 50+11/2>1 2a+1b/2>1 36>f 1+7/2>1 f+30/2>1"
    " 61+26>30 b6f+26>1c60 27>1c60 6>1c60 32b+6>-8 888>-184e 1>-184d 1>-1844 1+2>-1842 2>-1843"
    " 1>-183c 1>-1824 1>89c3 8+2b>-bc0 2d+3>-bc0 143+4b/2>1 9b>-3a 3>-1dbf 2+30/2>1 68+8>-8 10+6>-8"
    " 10+8>-8 10+8>-8 10+6>-8 11+4/2>-8 f+8>-8 20+8>-8 10+8>-8 10+8>-8 10+2>-8 2+2>-4a 2>-9 2>-1c05"
    " a+4>-56 4>-9 c+2>-8 2+2>-64 e+2>-8 2+2>-70 2>-7 c+2>-80 2+2>-7e 2>-9 12a>-1d5d 4>-20bf"
    " 1>-2046 7>1c 2e+10>10 23>1 333+1a>1a 74a+30>30 60+3/9>1 2>-29f7 1>-ee6 1>-29e7 3>1 4>1"
    " 2>-2a1c 1>-29fd 1>-2a1f 1>-2a1e 5>1 9+2>-2a3f 2+32/2>1 6b+2/2>1 7>1 794e+17/2>1 40+e/2>1"
    " a2+a/8>1 2+a/8>1 2+a/8>1 2>1 10+7/8>1 41+3/9>1 2+2/9>1 2>-8a04 1+2/2>1 8>1 7>-a528 3+4/8>1"
    " 2+3/8>1 4+3/8>1 6+2/8>1 e>-a544 1>-a54f 1>-a54b 1>-a541 1>-a544 2>-a512 1>-a52a 1>-a515 1>3a0"
    " 1+8/2>1 10>-30 1>-a543 1>-8a38 1+2/2>1 9+2/8>1 6>1 1f>1 37b+50>-97d0 53b1+1a>20 4df+28>28"
    " b0+24>28 c0+13/2>27 1+5/2>27 c+7/2>27 10+3/2>27 8>27 6eb+33>40 c20+20>20 55a0+20>20"
    " 7ac0+22>22 "
)

Codes = npt.NDArray[np.uint8] | npt.NDArray[np.uint32]
Int64Array = npt.NDArray[np.int64]
_Table = TypeVar("_Table", bound=npt.NDArray[Any])


@dataclass(frozen=True, slots=True)
class Text:
    """The code points of n rows, joined.

    Attributes:
        codes: uint8 if all are ASCII, else uint32.
        bounds: int64[n + 1]. Row i is codes[bounds[i]:bounds[i + 1]].
    """

    codes: Codes
    bounds: Int64Array


@cache
def word_table() -> npt.NDArray[np.bool_]:
    """Return True for each word character -> bool[CODE_POINTS], read-only."""
    bounds = np.cumsum([int(step, 16) for step in _WORD_STEPS.split()])
    turns = np.zeros(CODE_POINTS, np.int8)
    turns[bounds[0::2]], turns[bounds[1::2]] = 1, -1
    return _read_only(np.cumsum(turns, dtype=np.int8).astype(np.bool_))


@cache
def fold_table() -> npt.NDArray[np.uint32]:
    """Return the case folding of each code point -> uint32[CODE_POINTS], read-only.

    Folding is idempotent.
    """
    table = np.arange(CODE_POINTS, dtype=np.uint32)
    first = 0
    for run in _FOLD_RUNS.split():
        place, _, shift = run.partition(">")
        gap, _, shape = place.partition("+")
        count, _, step = shape.partition("/")
        first += int(gap, 16)
        members = first + int(step or "1", 16) * np.arange(int(count or "1", 16))
        table[members] = members + int(shift, 16)
    return _read_only(table)


@cache
def _ascii_fold() -> npt.NDArray[np.uint8]:
    return _read_only(fold_table()[:_ASCII].astype(np.uint8))


def variants(code: int) -> list[int]:
    """Return the code points that fold to ``code``, with ``code`` itself last if it is folded.

    >>> [hex(code) for code in variants(ord("k"))]  # K, the Kelvin sign, and k
    ['0x4b', '0x212a', '0x6b']
    """
    return _preimages().get(code, []) + ([code] if fold_table()[code] == code else [])


@cache
def _preimages() -> dict[int, list[int]]:
    table = fold_table()
    preimages: dict[int, list[int]] = {}
    for code in np.flatnonzero(table != np.arange(CODE_POINTS)).tolist():
        preimages.setdefault(int(table[code]), []).append(code)
    return preimages


@cache
def word_ranges() -> tuple[tuple[int, int], ...]:
    """Return the ranges of word characters in ascending order, both ends included."""
    edges = np.flatnonzero(np.diff(word_table().astype(np.int8), prepend=0, append=0))
    return tuple(
        (int(low), int(high) - 1) for low, high in zip(edges[0::2], edges[1::2], strict=True)
    )


def pattern(text: str) -> str:
    """Return a regular expression for ``text`` that ignores case. Valid in RE2 and Java."""
    fold = fold_table()
    return "".join(
        "[" + "".join(f"\\x{{{code:x}}}" for code in variants(int(fold[ord(c)]))) + "]"
        for c in text
    )


def fold(values: Any) -> Text:
    """Return the case-folded code points of ``values``: string or large_string[n]. O(bytes).

    Null rows are empty. Raises ValueError (UnicodeDecodeError) for invalid UTF-8.

    >>> text = fold(pa.array(["Oslo", "MÜNCHEN"]))
    >>> strings(text.codes, text.bounds).to_pylist()
    ['oslo', 'münchen']
    """
    bounds, raw = buffers(values)
    if not len(raw) or int(raw.max()) < _ASCII:
        return Text(_ascii_fold()[raw], bounds)
    codes = np.frombuffer(str(raw.data, "utf-8").encode("utf-32-le"), np.dtype("<u4"))
    starts = np.zeros(len(raw) + 1, np.int64)
    np.cumsum((raw & 0xC0) != 0x80, out=starts[1:])
    return Text(fold_table()[codes], starts[bounds])


def strings(codes: Codes, bounds: Int64Array) -> Any:
    """Convert rows of code points to string[n], or to large_string beyond 2 GiB. O(codes)."""
    if codes.dtype == np.uint8:
        data, offsets = codes.tobytes(), bounds
    else:
        data = codes.astype("<u4").tobytes().decode("utf-32-le").encode("utf-8")
        widths = np.ones(len(codes), np.int64)
        for limit in (0x80, 0x800, 0x10000):
            widths += codes >= limit
        ends = np.zeros(len(codes) + 1, np.int64)
        np.cumsum(widths, out=ends[1:])
        offsets = ends[bounds]
    type, width = pa.string(), "<i4"
    if len(data) > np.iinfo(np.int32).max:
        type, width = pa.large_string(), "<i8"
    buffers = [None, pa.py_buffer(offsets.astype(width)), pa.py_buffer(data)]
    return pa.Array.from_buffers(type, len(bounds) - 1, buffers)


def buffers(values: Any) -> tuple[Int64Array, npt.NDArray[np.uint8]]:
    """Return the bounds of each row in the bytes of all rows -> int64[n + 1], and these bytes (no
    copy).
    """
    if values.null_count:
        values = values.fill_null("")
    values = values.cast(pa.large_string())
    _, offsets, data = values.buffers()
    if not len(values) or offsets is None:
        return np.zeros(len(values) + 1, np.int64), np.zeros(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int64, len(values) + 1, 8 * values.offset)
    size, raw = int(bounds[-1] - bounds[0]), np.zeros(0, np.uint8)
    if size:
        raw = np.frombuffer(data, np.uint8, size, int(bounds[0]))
    return bounds - bounds[0], raw


def _read_only(table: _Table) -> _Table:
    table.flags.writeable = False
    return table
