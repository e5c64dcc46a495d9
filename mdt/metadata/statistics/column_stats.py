"""What column statistics prove about the files of a snapshot: bounds of stripes first, then of
single files.

The checkpoint keeps ``partition_stats``, bounds of stripes that follow each other.  Only the pages
of statistics that hold files of the stripes that are left are read and tested; files that records
have added since have no stripes.  Verdicts are made for all files, those that have left included,
so that what was read of the checkpoint serves every snapshot that stands on it.

Law: a stripe's bounds cover all of its files, so what proves that no row of the run matches proves
it of each file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from indexes import column_stats
from indexes import paths as column_paths
from indexes.arrays import numbers
from indexes.base import BoolArray, Int64Array
from indexes.bounds import Bounds
from indexes.predicate import Call, Predicate, leaves
from mdt.errors import Corrupt
from mdt.metadata.snapshot.snapshot import Snapshot

CANDIDATES_MAX = 4_096
"""Up to so many files that are left by cheaper tests are looked for in stripes and pages; of more
files most pages are read.
"""

WHOLE = -1
"""Stands for all blocks of a column."""


@dataclass(frozen=True, slots=True)
class Tested:
    """Verdict on some files.  ``maybe``: bool[n], False is a proof; ``asked``: files that were
    tested and have statistics of a tested column.
    """

    maybe: BoolArray
    asked: int


@dataclass(frozen=True, slots=True)
class Stripes:
    """Which stripes of the checkpoint are left.  ``starts``: int64[stripes + 1], the numbers of
    their first files, and the end; ``maybe``: bool[stripes]; ``asked``: files in stripes that have
    bounds of a tested column.
    """

    starts: Int64Array
    maybe: BoolArray
    asked: int

    def files(self) -> BoolArray:
        """Return the verdict on each file of the checkpoint -> bool[starts[-1]]."""
        found = np.zeros(int(self.starts[-1]), np.bool_)
        edges = np.flatnonzero(np.diff(self.maybe, prepend=False, append=False))
        for first, last in self.starts[edges].reshape(-1, 2).tolist():
            found[first:last] = True
        return found

    def blocks(self, every: int) -> Int64Array:
        """Return the numbers of the blocks of ``every`` files that hold files of stripes that are
        left, rising.
        """
        left = np.flatnonzero(self.maybe)
        change = np.zeros(-(-int(self.starts[-1]) // every) + 1, np.int64)
        np.add.at(change, self.starts[left] // every, 1)
        np.add.at(change, (self.starts[left + 1] - 1) // every + 1, -1)
        return np.flatnonzero(np.cumsum(change)[:-1])

    def holding(self, files: Int64Array) -> Stripes:
        """Return the same without stripes that hold none of ``files``, numbers that rise."""
        held = np.searchsorted(files, self.starts)
        return Stripes(self.starts, self.maybe & (held[1:] > held[:-1]), self.asked)


class FileStats:
    """The statistics of the columns that one predicate tests, for one snapshot.

    ``tested``: these columns; ``known``: those of them of which any file has statistics, with their
    types.
    """

    def __init__(
        self, snapshot: Snapshot, predicate: Predicate, tested: Sequence[str] | None = None
    ) -> None:
        self._snapshot = snapshot
        self._checkpoint = snapshot.checkpoint
        self._predicate = predicate
        kept, definition = set(snapshot.stats_columns), snapshot.definition
        self.tested = sorted(_compared(predicate)) if tested is None else list(tested)
        self._names = {path: definition.statistics_name(path) for path in self.tested}
        self.known = {
            path: column_paths.type_at(definition.schema, path)
            for path in self.tested
            if self._names[path] in kept
        }

    @property
    def has_stripes(self) -> bool:
        """Whether the checkpoint keeps bounds of stripes for a tested column."""
        return any(
            f"partition_stats/{self._names[path]}" in self._checkpoint for path in self.known
        )

    def stripes(self) -> Stripes:
        """Return what bounds of stripes prove.  Raises Corrupt if they are damaged: all stripes are
        left then.
        """
        starts = numbers(self._checkpoint.optional("stripe_start")["value"]).astype(np.int64)
        if (
            len(starts) < 2
            or starts[0]
            or starts[-1] != self._checkpoint.rows
            or bool(np.any(np.diff(starts) < 1))
        ):
            raise Corrupt(
                "the stripes of a checkpoint are impossible",
                path=f"partition_stats of checkpoint {self._checkpoint.seq}",
            )
        count = len(starts) - 1
        found = {}
        for path, type in self.known.items():
            column = f"partition_stats/{self._names[path]}"
            if column in self._checkpoint:
                table = self._checkpoint.optional(column)
                if len(table) != count:
                    raise Corrupt(f"{len(table)} rows of {column} for {count} stripes", path=column)
                found[path] = (
                    self._checkpoint.statistics(column, WHOLE, partial(Bounds.read, table, type)),
                    type,
                )
        maybe = column_stats.prune_predicate(found.get, self._predicate, count)
        return Stripes(
            starts,
            maybe,
            int(np.diff(starts)[_any_known([b for b, _ in found.values()], count)].sum()),
        )

    def all_stripes(self) -> Stripes:
        """Return stripes of which nothing is known: the pages of the statistics of files."""
        starts = np.append(
            np.arange(0, self._checkpoint.rows, self._every() or 1), self._checkpoint.rows
        )
        return Stripes(starts, np.ones(len(starts) - 1, np.bool_), 0)

    def checkpoint_files(self, stripes: Stripes) -> Tested:
        """Return what the statistics of single files prove about the files of the checkpoint;
        others than those of ``stripes`` are not read where they stand on pages of their own.
        """
        every = self._every()
        if every == self._checkpoint.rows and bool(stripes.maybe.all()):
            return self._all_files()
        blocks = stripes.blocks(every) if every else np.empty(0, np.int64)
        count = -(-self._checkpoint.rows // every) if every else 0
        if not len(blocks):
            return Tested(stripes.files(), 0)
        if 2 * len(blocks) > count:
            found = self._all_files()
            return Tested(found.maybe & stripes.files(), found.asked)
        sizes = np.minimum(every, self._checkpoint.rows - every * blocks)
        stored = self._stored()
        self._checkpoint.load([self._column(path) for path in stored], (every * blocks).tolist())
        parts = {
            path: Bounds.concat([self._block(path, n, every) for n in blocks.tolist()])
            for path in stored
        }
        found = self._tested(int(sizes.sum()), parts)
        maybe = np.zeros(self._checkpoint.rows, np.bool_)
        for n, verdict in zip(
            blocks.tolist(), np.split(found.maybe, np.cumsum(sizes)[:-1]), strict=True
        ):
            maybe[n * every : n * every + len(verdict)] = verdict
        return Tested(maybe & stripes.files(), found.asked)

    def _all_files(self) -> Tested:
        return self._tested(
            self._checkpoint.rows, {path: self._whole(path) for path in self._stored()}
        )

    def added_files(self) -> Tested:
        """Return what statistics prove about the files since the checkpoint."""
        snapshot = self._snapshot
        parts = {
            path: snapshot.added_bounds(self._names[path], type)
            for path, type in self.known.items()
        }
        return self._tested(snapshot.numbered - self._checkpoint.rows, parts)

    def warm(self) -> None:
        """Read the statistics of all files."""
        if self._checkpoint.rows:
            self._checkpoint.load(self.stored())
            for path in self._stored():
                self._whole(path)
        self.added_files()

    def stored(self) -> list[str]:
        """Return the columns of the checkpoint that hold the statistics of files."""
        return [self._column(path) for path in self._stored()]

    def _stored(self) -> list[str]:
        return [path for path in self.known if self._column(path) in self._checkpoint]

    def _column(self, path: str) -> str:
        """Return the column of the checkpoint with the statistics of files."""
        return f"stats/{self._names[path]}"

    def _every(self) -> int:
        """Return how many files a block has: a page of every tested column, or all files."""
        found = {self._checkpoint.every(self._column(path)) for path in self._stored()}
        if len(found) != 1:
            return self._checkpoint.rows
        return found.pop() or self._checkpoint.rows

    def _tested(self, n: int, parts: dict[str, Bounds]) -> Tested:
        maybe = column_stats.prune_predicate(
            lambda path: (parts[path], self.known[path]) if path in parts else None,
            self._predicate,
            n,
        )
        return Tested(maybe, int(np.count_nonzero(_any_known(list(parts.values()), n))))

    def _whole(self, path: str) -> Bounds:
        column, type = self._column(path), self.known[path]
        return self._checkpoint.statistics(
            column, WHOLE, lambda: Bounds.read(self._checkpoint.table(column), type)
        )

    def _block(self, path: str, n: int, every: int) -> Bounds:
        column, type = self._column(path), self.known[path]

        def read() -> Bounds:
            table, first = self._checkpoint.page(column, n * every)
            return Bounds.read(table.slice(n * every - first, every), type)

        return self._checkpoint.statistics(column, n, read)


def _any_known(parts: Sequence[Bounds], n: int) -> BoolArray:
    if len(parts) == 1:
        return parts[0].known
    return np.logical_or.reduce([np.zeros(n, np.bool_), *(part.known for part in parts)])


def _compared(predicate: Predicate) -> frozenset[str]:
    """Return the columns whose statistics may prove something: predicate functions are no business
    of theirs.
    """
    return frozenset(leaf.column for leaf in leaves(predicate) if not isinstance(leaf, Call))
