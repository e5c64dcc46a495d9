"""Deletion vectors: the positions of the rows of a segment that are no longer live, as roaring
bitmaps.

Those of a checkpoint stand one after the other in its pages.  Whoever knows the length and the
CRC-32 of each can read one without the others, and without the page: :class:`StoredVectors` are
such references, a column each, however many there are.
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
    """Where n deletion vectors stand: ``length`` bytes from ``offset`` on of ``objects[object]``,
    with the CRC-32 ``crc``; all int64[n].

    ``objects``: path and bytes of each object.  ``page_bytes``: of the page that a vector is in,
    int64[n].  A segment without one has length 0.
    """

    objects: Sequence[tuple[str, int]]
    object: Int64s
    offset: Int64s
    length: Int64s
    crc: Int64s
    page_bytes: Int64s


def positions(data: bytes | None, rows: int, *, path: str) -> BitMap:
    """Return the dead positions of a segment of ``rows`` rows.  Raises Corrupt for bytes that are
    none.
    """
    try:
        return roaring.checked(b"" if data is None else data, rows)
    except ValueError as error:
        raise Corrupt(f"a deletion vector cannot be read: {error}", path=path) from error


def serialized(vector: BitMap) -> bytes:
    """Return a deletion vector in the portable format: equal ones as equal bytes, whatever they
    were put together from.

    Where n runs take as many bytes as their 2 n + 1 rows, roaring leaves them in the form in which
    it finds them.

    >>> serialized(BitMap(range(3))) == serialized(BitMap([0, 1, 2]))
    True
    """
    has_runs = vector.get_statistics()["n_run_containers"]
    best = BitMap(vector.to_array()) if has_runs else vector.copy()
    best.run_optimize()
    return best.serialize()


def first_vector(page: pa.Buffer) -> int:
    """Return where in a page of deletion vectors, an Arrow IPC stream, the first of them begins; -1
    if they do not follow each other.
    """
    values = pa.ipc.open_stream(pa.BufferReader(page)).read_all().column(0)
    if values.num_chunks != 1:
        return -1
    _, offsets, data = values.chunk(0).buffers()
    if data is None or not data.size:
        return 0
    return int(data.address - page.address + np.frombuffer(offsets, np.int32, 1)[0])
