"""File lists for Spark: locations, deleted rows, and the difference between two versions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from mdt.plan.planner import Figure


@dataclass(frozen=True, slots=True)
class DeadRows:
    """Deleted positions of m files. A file's bitmap is given here, or read by tasks from an object,
    or both.

    ``bitmaps``: serialized, or None. ``objects``: percent-encoded URI and size of each object.
    ``object``: the number of the object with a file's bitmap, -1 for none. ``offset``, ``length``,
    ``crc``: its byte range in the object, and the CRC-32 of these bytes. ``rows``: its number of
    positions. All arrays are int64[m].
    """

    bitmaps: Sequence[bytes | None]
    objects: Sequence[tuple[str, int]]
    object: npt.NDArray[np.int64]
    offset: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    crc: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]

    @classmethod
    def inline(cls, bitmaps: Sequence[bytes | None]) -> DeadRows:
        """Return deleted rows whose bitmaps are all given directly."""
        none = np.zeros((5, len(bitmaps)), np.int64)
        none[0] = -1
        return cls(bitmaps, [], *none)


@dataclass(frozen=True, slots=True)
class NativeFiles:
    """n Parquet files, or Parquet data inside other files.

    ``uris``: percent-encoded.
    ``sizes``: bytes of Parquet data, int64[n].
    ``offsets``: start of the data in the file, -1 for a whole file, int64[n].
    ``file_sizes``: bytes of the whole file, int64[n].
    ``footer_sizes``: bytes at the end that are verified by ``footer_crcs`` before use, 0 for none,
        int32[n].
    ``footer_crcs``: CRC-32, uint32[n].
    ``versions``: the file's older schema version, -1 for the newest, int32[n].
    ``has_dead``: True for files with deleted positions, bool[n].
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
    """The difference of a file list from an older list: removed files, remaining files with other
    deleted positions, and appended files.

    ``gone``, ``dead``: sorted positions in the older list, int32. ``has_dead``: True for files of
    ``dead`` that have deleted positions now, bool[dead].
    """

    gone: npt.NDArray[np.int32]
    dead: npt.NDArray[np.int32]
    has_dead: npt.NDArray[np.bool_]
    added: NativeFiles


class Files(Protocol):
    """The files of a version of a table. Their description for the JVM is made on demand."""

    def __len__(self) -> int:
        """Return the number of files."""

    def native(self) -> NativeFiles:
        """Return the description of all files. O(files)."""

    def dead(self, at: Sequence[int], /) -> DeadRows:
        """Return the deleted rows of files that have any. ``at``: sorted positions of the files."""

    def since(self, before: Files) -> Changes | None:
        """Return the difference from an older version's files, or None if it is not known."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The answer to a call: ``files`` of a ``version``, and the subset that the query must read.

    Equal versions have equal ``files``, so the JVM may reuse them. ``keep``: distinct positions in
    ``files``, int32[k], or None for all. ``bitmaps``: for each of ``keep`` a serialized bitmap of
    the positions that may match, None for all positions; or None. ``figures``: plan metrics for
    Spark's UI, with the same names for every plan of a query.
    """

    version: Hashable
    files: Files
    keep: npt.NDArray[np.int32] | None = None
    bitmaps: Sequence[bytes | None] | None = None
    figures: Sequence[Figure] = ()
