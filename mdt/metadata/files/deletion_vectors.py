"""Deletion vectors: positions of the deleted or replaced rows of a segment, as roaring bitmaps.

A checkpoint stores its vectors consecutively in pages.  With the length and CRC-32 of a vector, a
reader can fetch it alone, without the rest of its page.  :class:`StoredVectors` holds these
references, an array per field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from indexes import positions as roaring
from mdt.errors import Corrupt

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StoredVectors:
    """References to n stored deletion vectors.

    Vector i has ``length[i]`` bytes at ``offset[i]`` of ``objects[object[i]]``, with the CRC-32
    ``crc[i]``.  Length 0 means that the segment has none.  ``page_bytes`` is the size of the
    vector's page.  All arrays are int64[n].  ``objects`` are (path, bytes) pairs.
    """

    objects: Sequence[tuple[str, int]]
    object: Int64s
    offset: Int64s
    length: Int64s
    crc: Int64s
    page_bytes: Int64s


def positions(data: bytes | None, rows: int, *, path: str) -> BitMap:
    """Return the dead positions of a segment with ``rows`` rows.

    Raises Corrupt if ``data`` is not a deletion vector of that segment.
    """
    try:
        return roaring.deserialize(b"" if data is None else data, rows)
    except ValueError as error:
        raise Corrupt(f"a deletion vector cannot be read: {error}", path=path) from error


def serialize(vector: BitMap) -> bytes:
    """Return a deletion vector in roaring's portable format.  Equal vectors have equal bytes.

    Where n runs take as many bytes as their 2 n + 1 rows, ``run_optimize`` keeps the existing form.
    So runs are expanded first.

    >>> serialize(BitMap(range(3))) == serialize(BitMap([0, 1, 2]))
    True
    """
    has_runs = vector.get_statistics()["n_run_containers"]
    best = BitMap(vector.to_array()) if has_runs else vector.copy()
    best.run_optimize()
    return best.serialize()


def first_vector(page: pa.Buffer) -> int:
    """Return the offset of the first deletion vector in a page, an Arrow IPC stream.

    -1 if the vectors are not contiguous.
    """
    values = pa.ipc.open_stream(pa.BufferReader(page)).read_all().column(0)
    if values.num_chunks != 1:
        return -1
    _, offsets, data = values.chunk(0).buffers()
    if data is None or not data.size:
        return 0
    return int(data.address - page.address + np.frombuffer(offsets, np.int32, 1)[0])
