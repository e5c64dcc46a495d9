"""What Spark is told of the files of a table: where they are, which of their rows are dead, and how
one version follows from another.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from mdt.plan.planner import Figure


@dataclass(frozen=True, slots=True)
class DeadRows:
    """Which positions of m files are dead: those in a bitmap that stands here, and those in one
    that tasks read from an object.

    ``bitmaps``: serialized, None for none.  ``objects``: URI, percent-encoded, and bytes of each
    object.  ``object``: the number of the one that has a bitmap of a file, -1 for none; ``offset``,
    ``length``, ``crc``: its bytes there, and their CRC-32; ``rows``: how many positions it has;
    int64[m].
    """

    bitmaps: Sequence[bytes | None]
    objects: Sequence[tuple[str, int]]
    object: npt.NDArray[np.int64]
    offset: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    crc: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]

    @classmethod
    def here(cls, bitmaps: Sequence[bytes | None]) -> DeadRows:
        """Return dead rows of which none stands elsewhere."""
        none = np.zeros((5, len(bitmaps)), np.int64)
        none[0] = -1
        return cls(bitmaps, [], *none)


@dataclass(frozen=True, slots=True)
class NativeFiles:
    """n files of Parquet data, or parts of files.

    ``uris``: percent-encoded.  ``sizes``: bytes of Parquet data, int64[n].  ``offsets``: where
    these begin in the file, -1 for a whole file, int64[n].  ``file_sizes``: of the files that hold
    them, int64[n].  ``footer_sizes``: bytes at the end that are compared with ``footer_crcs``
    before they are read, 0 for none, int32[n]; CRC-32, uint32[n].  ``versions``: number of the
    older version of the columns that the file has, -1 for the newest, int32[n].  ``has_dead``:
    whether there are positions that are not returned, bool[n].
    """

    uris: Sequence[str]
    sizes: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    file_sizes: npt.NDArray[np.int64]
    footer_sizes: npt.NDArray[np.int32]
    footer_crcs: npt.NDArray[np.uint32]
    versions: npt.NDArray[np.int32]
    has_dead: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.uris)


@dataclass(frozen=True, slots=True)
class Changes:
    """How a list of files follows from an older one: which of these are gone, of which that stay
    other positions are dead, and which come behind them.

    ``gone``, ``dead``: positions in the older list, rising, int32.  ``has_dead``: whether a file of
    ``dead`` has positions that are not returned now, bool[dead].
    """

    gone: npt.NDArray[np.int32]
    dead: npt.NDArray[np.int32]
    has_dead: npt.NDArray[np.bool_]
    more: NativeFiles


class Files(Protocol):
    """The files of one version of a table: what the JVM has to know of them is made when it has to
    know it.
    """

    def __len__(self) -> int:
        """Return how many there are."""

    def native(self) -> NativeFiles:
        """Return all of them.  O(files)."""

    def dead(self, at: Sequence[int], /) -> DeadRows:
        """Return the dead rows of files that have some; ``at``: their positions, rising."""

    def since(self, before: Files) -> Changes | None:
        """Return how the list follows from that of an older version, None if that is not known."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The answer to one call: ``files`` of one ``version``, and which of them the query must read.

    Equal versions promise equal ``files``, which may then be read again or not at all.  ``keep``:
    int32[k], distinct positions in ``files``, or None for all.  ``wanted``: for each of ``keep``
    the serialized bitmap of the only positions in it that may match, None for any; or None.
    ``figures``: what Spark's UI is told of the plan, with the same names for every plan of a query.
    """

    version: Hashable
    files: Files
    keep: npt.NDArray[np.int32] | None = None
    wanted: Sequence[bytes | None] | None = None
    figures: Sequence[Figure] = ()
