"""Loads straight from Parquet files: where row groups have keys of their own, each new file is written from some of them, and nobody brings rows together.

The footers of the files say how many rows there are, and between which values the first column of the key is in each row group.  Row groups
whose ranges overlap go to one new file, so that equal keys meet there, as they do where rows are dealt by key.  What a footer says of keys is
checked against the rows by who writes them: a wrong bound is an error, never a key that lives twice.

A task reads its row groups, normalizes their rows and writes its file.  Rows pass through no other process, and the driver sees footers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mdt.commit.operation import Changes
from mdt.config import Options
from mdt.engines.loading import Load, slice_of_bucket
from mdt.engines.plain_files import GivenFiles, Piece, PlainFiles, Span
from mdt.engines.tasks import INSERT, opened
from mdt.engines.write_tasks import drained
from mdt.errors import CorruptInput
from mdt.metadata.snapshot import Snapshot
from mdt.write.assign import NEW, Assignment, assign
from mdt.write.files import WriteJob
from mdt.write.operations import collect
from mdt.write.transfer import encode

_TIMES_EVEN = 1.5
"""How many times the rows of files of one size a file may get, since row groups are not cut."""


@dataclass(frozen=True, slots=True)
class Share:
    """A new file, the one with this ``number`` of a load: from the rows of ``pieces``, the first column of whose keys is within ``bounds``, if it is not the only one."""

    number: int
    pieces: tuple[Piece, ...]
    bounds: tuple[Any, Any] | None


@dataclass(frozen=True, slots=True)
class Straight:
    """New files and the row groups that each is written from.  ``files``: without pieces; ``rows``: of all files, of ``row_bytes`` each in Arrow."""

    files: PlainFiles
    work: tuple[Assignment, ...]
    shares: tuple[Share, ...]
    rows: int
    row_bytes: float

    def counted(self) -> dict[str, Any]:
        """Return how many rows are inserted where, as :meth:`mdt.engines.engine.Engine.counted` does, with their bytes."""
        counts = {"rows": self.rows, "total": int(self.rows * self.row_bytes)}
        return {"__mdt_kind": INSERT, "__mdt_partition": "", "__mdt_group": NEW, **counts}


@dataclass(frozen=True, slots=True)
class StraightLoad:
    """What the tasks of such a load share."""

    load: Load
    files: PlainFiles


def planned(given: GivenFiles, snapshot: Snapshot, options: Options, writers: int) -> Straight | None:
    """Return how new files are written from the row groups of ``files``, rows of which meet none of the table; None where that makes no files of about one size.

    ``writers``: how many files can be written at a time.  Raises Conflict if a file is another one by now, CorruptInput if one cannot be read.  O(row groups · log row groups).
    """
    definition, files = snapshot.definition, given.files
    if definition.partition_by or not files.pieces:
        return None
    spans = files.spans(definition.key[0])
    rows, row_bytes = sum(span.rows for span in spans), files.row_bytes()
    wanted = assign(
        snapshot, replace(options, max_file_bytes=given.file_bytes_max), can_index_log_files=True, touched=(), returns=(), inserts={("", NEW): rows}, row_bytes=row_bytes,
        writers=writers, use_small_files=False,
    )  # fmt: skip
    parts = _cut(_units(spans), rows, len(wanted))
    if not parts or max(map(_rows, parts)) * len(wanted) > _TIMES_EVEN * rows:
        return None
    ends = np.cumsum([0, *map(_rows, parts)]).tolist()
    work = [Assignment("", NEW, False, range(start, end)) for start, end in pairwise(ends)]
    shares = [
        Share(number, tuple(span.piece for span in part), _range(part) if len(parts) > 1 else None)
        for number, part in enumerate(parts)
    ]
    return Straight(replace(files, pieces=()), tuple(work), tuple(shares), rows, row_bytes)


def _rows(spans: Sequence[Span]) -> int:
    return sum(span.rows for span in spans)


def _range(spans: Sequence[Span]) -> tuple[Any, Any]:
    known = [span.bounds for span in spans if span.bounds is not None]
    assert len(known) == len(spans), "a row group without bounds is alone with all others"
    return min(low for low, _ in known), max(high for _, high in known)


def _units(spans: Sequence[Span]) -> list[list[Span]]:
    """Return row groups, those together that may have a key in common, in the order of the keys; within a unit in their own order."""
    known = [(span.bounds, at) for at, span in enumerate(spans) if span.bounds is not None]
    if len(known) < len(spans):
        return [list(spans)]
    units: list[list[int]] = []
    last: Any = None
    for (low, high), at in sorted(known):
        if units and low <= last:
            units[-1].append(at)
            last = max(last, high)
        else:
            units.append([at])
            last = high
    return [[spans[at] for at in sorted(unit)] for unit in units]


def _cut(units: Sequence[Sequence[Span]], rows: int, files: int) -> list[list[Span]]:
    """Return the row groups of at most so many files, units whole, each about as large as the others."""
    ends = np.cumsum([0, *map(_rows, units)])
    wanted = rows * np.arange(files + 1) / max(1, files)
    after = np.clip(np.searchsorted(ends, wanted), 1, len(ends) - 1)
    nearest = np.where(wanted - ends[after - 1] < ends[after] - wanted, after - 1, after)
    bounds = np.unique(nearest).tolist()
    return [[span for unit in units[start:end] for span in unit] for start, end in pairwise(bounds)]


def write(work: StraightLoad, share: Share, attempt: int) -> bytes:
    """Write the file of ``share``; return what was written, see :mod:`mdt.write.transfer`.

    Raises CorruptInput if its files cannot be read, or have keys that their footers do not tell, and Conflict if one is another one by now.
    """
    return encode(_write(work, share, attempt))


def _write(work: StraightLoad, share: Share, attempt: int) -> Changes:
    load = work.load
    metadata, snapshot = opened(load.source)
    shared = WriteJob.of(metadata, snapshot, load.source.parsed(), load.claim.tried(attempt))
    given = [_read(work.files, share, snapshot.definition.key[0])]
    late: list[int] = []
    slices = (slice_of_bucket(load, snapshot.definition, share.number, rows, late) for rows in drained(given))
    done = (shared.run(share.number, one) for one in slices)
    changes = collect(shared, done, threads=1, part=f"-{attempt}")
    return replace(changes, counts={"late": sum(late)})


def _read(files: PlainFiles, share: Share, name: str) -> pa.Table:
    """Return the rows of a share, whose column ``name`` is within its bounds."""
    table = pa.Table.from_batches(files.read(share.pieces), files.schema)
    if share.bounds is not None:
        found = pc.min_max(table[name])
        low, high = found["min"].as_py(), found["max"].as_py()
        if low is not None and not share.bounds[0] <= low <= high <= share.bounds[1]:
            raise CorruptInput(
                f"column {name!r} has values beyond the bounds that the footer tells", path=share.pieces[0].path
            )
    return table
