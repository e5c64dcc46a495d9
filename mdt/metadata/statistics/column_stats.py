"""Prunes the files of a snapshot by column statistics: stripes first, then single files.

The checkpoint has ``partition_stats``, the bounds of stripes of consecutive files.  Statistics
pages are read only for files in the remaining stripes.  Files that were added by later records have
no stripes.  The verdicts cover all files, including removed ones, so the data read from the
checkpoint serves every snapshot based on it.

A stripe's bounds cover all of its files.  So a proof that no row of the stripe matches holds for
each of its files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from indexes import column_stats
from indexes import paths as column_paths
from indexes.base import BoolArray, Int64Array
from indexes.bounds import Bounds
from indexes.predicate import Call, Predicate, leaves
from mdt.errors import Corrupt
from mdt.metadata.snapshot.snapshot import Snapshot

CANDIDATES_MAX = 4_096
"""Stripes and pages are pruned for up to this many candidate files.  More candidates need most
pages.
"""

WHOLE = -1
"""The part number of a whole column."""


@dataclass(frozen=True, slots=True)
class PruneResult:
    """Verdict on files.

    ``maybe`` is bool[n]; False is a proof.  ``tested`` counts the tested files with statistics of a
    tested column.
    """

    maybe: BoolArray
    tested: int


@dataclass(frozen=True, slots=True)
class Stripes:
    """The remaining stripes of a checkpoint.

    ``starts`` are the numbers of the stripes' first files, and the end, int64[stripes + 1].
    ``maybe`` is bool[stripes].  ``tested`` counts the files in stripes with bounds of a tested
    column.
    """

    starts: Int64Array
    maybe: BoolArray
    tested: int

    def files(self) -> BoolArray:
        """Return the verdict on each file of the checkpoint -> bool[starts[-1]]."""
        maybe = np.zeros(int(self.starts[-1]), np.bool_)
        edges = np.flatnonzero(np.diff(self.maybe, prepend=False, append=False))
        for first, last in self.starts[edges].reshape(-1, 2).tolist():
            maybe[first:last] = True
        return maybe

    def blocks(self, every: int) -> Int64Array:
        """Return the blocks of ``every`` files that have files of remaining stripes, ascending."""
        remaining = np.flatnonzero(self.maybe)
        change = np.zeros(-(-int(self.starts[-1]) // every) + 1, np.int64)
        np.add.at(change, self.starts[remaining] // every, 1)
        np.add.at(change, (self.starts[remaining + 1] - 1) // every + 1, -1)
        return np.flatnonzero(np.cumsum(change)[:-1])

    def holding(self, files: Int64Array) -> Stripes:
        """Keep only the stripes with any of ``files`` (ascending numbers)."""
        held = np.searchsorted(files, self.starts)
        return Stripes(self.starts, self.maybe & (held[1:] > held[:-1]), self.tested)


class FileStats:
    """The statistics of the columns that a predicate tests, for one snapshot.

    ``tested`` are these columns.  ``known`` maps the columns with statistics to their types.
    """

    def __init__(
        self, snapshot: Snapshot, predicate: Predicate, tested: Sequence[str] | None = None
    ) -> None:
        self._snapshot = snapshot
        self._checkpoint = snapshot.checkpoint
        self._predicate = predicate
        stats_columns, definition = set(snapshot.stats_columns), snapshot.definition
        self.tested = sorted(_compared(predicate)) if tested is None else list(tested)
        self._names = {path: definition.statistics_name(path) for path in self.tested}
        self.known = {
            path: column_paths.type_at(definition.schema, path)
            for path in self.tested
            if self._names[path] in stats_columns
        }

    @property
    def has_stripes(self) -> bool:
        """True if the checkpoint has stripe bounds for a tested column."""
        return any(
            f"partition_stats/{self._names[path]}" in self._checkpoint for path in self.known
        )

    def stripes(self) -> Stripes:
        """Prune stripes by their bounds.

        Raises Corrupt if the bounds are damaged.  Then use :meth:`all_stripes`.
        """
        starts = self._checkpoint.stripe_starts()
        if starts is None:
            raise Corrupt(
                "the stripes of a checkpoint are invalid",
                path=f"partition_stats of checkpoint {self._checkpoint.seq}",
            )
        count = len(starts) - 1
        bounds = {}
        for path, type in self.known.items():
            column = f"partition_stats/{self._names[path]}"
            if column in self._checkpoint:
                table = self._checkpoint.optional(column)
                if len(table) != count:
                    raise Corrupt(f"{len(table)} rows of {column} for {count} stripes", path=column)
                bounds[path] = (
                    self._checkpoint.statistics(column, WHOLE, partial(Bounds.read, table, type)),
                    type,
                )
        maybe = column_stats.prune_predicate(bounds.get, self._predicate, count)
        return Stripes(
            starts,
            maybe,
            int(np.diff(starts)[_any_known([b for b, _ in bounds.values()], count)].sum()),
        )

    def all_stripes(self) -> Stripes:
        """Return stripes without bounds, one per page of file statistics."""
        starts = np.append(
            np.arange(0, self._checkpoint.rows, self._every() or 1), self._checkpoint.rows
        )
        return Stripes(starts, np.ones(len(starts) - 1, np.bool_), 0)

    def checkpoint_files(self, stripes: Stripes) -> PruneResult:
        """Prune the files of the checkpoint by their own statistics.

        Pages without a file in ``stripes`` are not read.
        """
        every = self._every()
        if every == self._checkpoint.rows and bool(stripes.maybe.all()):
            return self._all_files()
        blocks = stripes.blocks(every) if every else np.empty(0, np.int64)
        count = -(-self._checkpoint.rows // every) if every else 0
        if not len(blocks):
            return PruneResult(stripes.files(), 0)
        if 2 * len(blocks) > count:
            result = self._all_files()
            return PruneResult(result.maybe & stripes.files(), result.tested)
        sizes = np.minimum(every, self._checkpoint.rows - every * blocks)
        stored = self._stored()
        self._checkpoint.load([self._column(path) for path in stored], (every * blocks).tolist())
        parts = {
            path: Bounds.concat([self._block(path, n, every) for n in blocks.tolist()])
            for path in stored
        }
        result = self._prune(int(sizes.sum()), parts)
        maybe = np.zeros(self._checkpoint.rows, np.bool_)
        for n, verdict in zip(
            blocks.tolist(), np.split(result.maybe, np.cumsum(sizes)[:-1]), strict=True
        ):
            maybe[n * every : n * every + len(verdict)] = verdict
        return PruneResult(maybe & stripes.files(), result.tested)

    def _all_files(self) -> PruneResult:
        return self._prune(
            self._checkpoint.rows, {path: self._whole(path) for path in self._stored()}
        )

    def added_files(self) -> PruneResult:
        """Prune the files that were added after the checkpoint."""
        snapshot = self._snapshot
        parts = {
            path: snapshot.added_bounds(self._names[path], type)
            for path, type in self.known.items()
        }
        return self._prune(snapshot.numbered - self._checkpoint.rows, parts)

    def warm(self) -> None:
        """Read the statistics of all files."""
        if self._checkpoint.rows:
            self._checkpoint.load(self.stored())
            for path in self._stored():
                self._whole(path)
        self.added_files()

    def stored(self) -> list[str]:
        """Return the checkpoint columns with the statistics of files."""
        return [self._column(path) for path in self._stored()]

    def _stored(self) -> list[str]:
        return [path for path in self.known if self._column(path) in self._checkpoint]

    def _column(self, path: str) -> str:
        """Return the checkpoint column with the statistics of files for column ``path``."""
        return f"stats/{self._names[path]}"

    def _every(self) -> int:
        """Return the files per block: a page of every tested column, or all files."""
        page_sizes = {self._checkpoint.every(self._column(path)) for path in self._stored()}
        if len(page_sizes) != 1:
            return self._checkpoint.rows
        return page_sizes.pop() or self._checkpoint.rows

    def _prune(self, n: int, parts: dict[str, Bounds]) -> PruneResult:
        maybe = column_stats.prune_predicate(
            lambda path: (parts[path], self.known[path]) if path in parts else None,
            self._predicate,
            n,
        )
        return PruneResult(maybe, int(np.count_nonzero(_any_known(list(parts.values()), n))))

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
    """Return the columns whose statistics may exclude files.  Predicate functions are left out."""
    return frozenset(leaf.column for leaf in leaves(predicate) if not isinstance(leaf, Call))
