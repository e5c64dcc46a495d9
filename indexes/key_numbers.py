"""Vectorized conversion of keys (:mod:`indexes.values`) to the nearest floats, for estimates."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes import values

_SIGN_BIT = np.uint64(1 << 63)


def as_numbers(keys: pa.Array | pa.ChunkedArray, type: pa.DataType) -> npt.NDArray[np.float64]:
    """Return the values of n keys -> float64[n].

    Dates become days, timestamps microseconds, and booleans 0 or 1. Nulls, text and bytes become
    NaN. O(n). Raises ValueError for keys of the wrong width for ``type``.

    >>> as_numbers(values.encode(pa.array([-7, None, 2**40])), pa.int64()).tolist()
    [-7.0, nan, 1099511627776.0]
    """
    numbers = np.full(len(keys), np.nan)
    present = np.flatnonzero(keys.is_valid())
    width = values.key_width(type)
    if width is None or not len(present):
        return numbers
    key_bytes = b"".join(keys.drop_null().to_pylist())
    if len(key_bytes) != width * len(present):
        raise ValueError(f"keys of type {type} must have {width} bytes each")
    if width == 1:
        numbers[present] = np.frombuffer(key_bytes, np.uint8)
        return numbers
    words = np.frombuffer(key_bytes, ">u8").astype(np.uint64).reshape(len(present), -1)
    numbers[present] = _floats(words[:, 0]) if values.kind_of(type) == "float" else _integers(words)
    if values.kind_of(type) == "decimal":
        numbers /= 10.0 ** values.plain_type(type).scale
    return numbers


def _floats(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    return np.where(words & _SIGN_BIT, words ^ _SIGN_BIT, ~words).view(np.float64)


def _integers(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Return integers of several words, most significant first.

    Negative numbers are computed from their complement, to avoid cancellation.
    """
    is_negative = (words[:, 0] & _SIGN_BIT) == 0
    digits = words ^ np.concatenate(([_SIGN_BIT], np.zeros(words.shape[1] - 1, np.uint64)))
    digits = np.where(is_negative[:, None], ~digits, digits)
    total = np.zeros(len(words))
    for word in digits.T:
        total = total * 2.0**64 + word
    return np.where(is_negative, -1.0 - total, total)
