"""Values in Avro's binary encoding, for whole columns at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_VARINT_BYTES_MAX = 10
_SHIFTS = np.arange(0, 7 * _VARINT_BYTES_MAX, 7, dtype=np.uint64)


def longs(values: npt.NDArray[np.int64]) -> pa.Array:
    r"""Return ints or longs, int64[n], as large_binary[n]: zigzag, then 7 bits per byte.

    >>> longs(np.array([0, -1, 64])).to_pylist()
    [b'\x00', b'\x01', b'\x80\x01']
    """
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    shifted = zigzag[:, np.newaxis] >> _SHIFTS
    is_used = shifted > 0
    is_used[:, 0] = True
    more = np.zeros_like(is_used)
    more[:, :-1] = is_used[:, 1:]
    groups = (shifted & np.uint64(0x7F)).astype(np.uint8) | more.astype(np.uint8) << 7
    return _of_parts(groups[is_used], is_used.sum(axis=1))


def texts(values: pa.Array) -> pa.Array:
    r"""Return strings or bytes as large_binary[n]: the length, then the bytes.

    >>> texts(pa.array(["oslo"])).to_pylist()
    [b'\x08oslo']
    """
    data = pc.cast(values, pa.large_binary())
    return join(longs(np.asarray(pc.binary_length(data), np.int64)), data)


def fixed(values: npt.NDArray[np.generic]) -> pa.Array:
    r"""Return the bytes of each row of a contiguous array as large_binary[n].

    >>> fixed(np.array([1.5, -2.0], "<f4")).to_pylist()
    [b'\x00\x00\xc0?', b'\x00\x00\x00\xc0']
    """
    count = len(values)
    width = values.nbytes // count if count else 0
    return _of_parts(values, np.full(count, width, np.int64))


def join(*parts: pa.Array | bytes) -> pa.Array:
    """Return the concatenation of the parts of each row as large_binary[n]. At least one part is
    an array.
    """
    arrays = [
        pa.scalar(part, pa.large_binary()) if isinstance(part, bytes) else part
        for part in (*parts, b"")
    ]
    return pc.binary_join_element_wise(*arrays)


def slices(
    data: pa.Buffer, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], type: pa.DataType
) -> pa.Array:
    """Return the bytes from ``starts`` to ``ends``, which ascend without overlap, as ``type``[n],
    binary or large_binary.

    The values and the gaps between them are an array over ``data``, without a copy. Taking every
    second element copies the values only.
    """
    if not len(starts):
        return pa.array([], type)
    offset_type = np.int64 if pa.types.is_large_binary(type) else np.int32
    edges = np.empty(2 * len(starts), offset_type)
    edges[0::2], edges[1::2] = starts, ends
    whole = pa.Array.from_buffers(type, len(edges) - 1, [None, pa.py_buffer(edges), data])
    return whole.take(pa.array(np.arange(0, len(edges), 2)))


def edges(values: pa.Array) -> npt.NDArray[np.int64]:
    """Return the offsets of large_binary[n] in its buffer, int64[n + 1]."""
    offsets = np.frombuffer(values.buffers()[1] or b"", np.int64)
    if not len(offsets):
        return np.zeros(1, np.int64)
    return offsets[values.offset : values.offset + len(values) + 1]


def _of_parts(data: npt.NDArray[np.generic], lengths: npt.NDArray[np.int64]) -> pa.Array:
    """Return large_binary[n] with values of these lengths, whose bytes follow one another."""
    ends = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.large_binary(), len(lengths), buffers)
