"""What runs pure functions over Arrow batches somewhere: threads of this process, tasks of Spark, or something else.

The functions (:mod:`mdt.engines.tasks`) know no engine, and what is built on engines (:mod:`mdt.engines.write`,
:mod:`mdt.engines.indexing`) knows none of them by name.  To add one, implement :class:`Engine`: a folder or a module of its own.

An engine holds rows in parts, in whatever form it likes, ``R``.  It may start a task more than once, and lose what an attempt
returned: tasks write under names that carry the number of their attempt, and what the last attempt did not return is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import pyarrow as pa

from mdt.schema.definition import TableDefinition

R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")

BatchFunction = Callable[[Iterator[pa.RecordBatch], int], Iterator[pa.RecordBatch]]
"""What a task makes of its batches.  The number is that of the attempt; no other attempt of the same write has it."""
ResultFunction = Callable[[Iterator[pa.RecordBatch], int], "bytes | None"]
"""What a task returns to the driver for its batches, None if it has nothing to say; the number as above."""


@dataclass(frozen=True, slots=True)
class Deal:
    """Which bucket takes which rows, and how many tasks share the buckets.

    ``places``: table (place: string, number: int64, bounds: list<struct>, takers: list<int32>).  A row belongs to the place of its
    partition path if it is an insert, else to ``""``, and of its file group's number.  Of several takers, the one that
    follows all bounds up to the row's ``key``, the columns named so, in the order of the columns' types.
    """

    places: pa.Table
    key: tuple[str, ...]
    tasks: int


class Engine(Protocol[R]):
    """Rows in parts, functions over parts, and the few questions that a driver asks; all of them leave ``rows`` as they are.

    What a function raises of :mod:`mdt.errors` is raised to the caller as it is.
    """

    @property
    def name(self) -> str:
        """What results call it."""

    @property
    def is_here(self) -> bool:
        """Whether tasks run in this process, so that they can be given the open table; others open it themselves."""

    @property
    def processors(self) -> int:
        """How many tasks can run at a time."""

    def spread(self, table: pa.Table) -> R:
        """Return the rows of a small table of the driver, in as many parts as there shall be tasks."""

    def joined(self, rows: R, more: R) -> R:
        """Return the rows of both, which have the same columns; what :meth:`mapped` keeps of either is kept as long as that one."""

    def grouped(self, rows: R, names: Sequence[str]) -> R:
        """Return the rows with equal values of the columns ``names`` in one part."""

    def mapped(self, rows: R, function: BatchFunction, schema: pa.Schema) -> R:
        """Return what ``function`` makes of each part, in ``schema``; kept, so that it runs once, until it is dropped."""

    def dropped(self, rows: R) -> None:
        """Give back what :meth:`mapped` or :meth:`Labels.labelled` keeps."""

    def counted(self, rows: R, by: Sequence[str], total: str) -> pa.Table:
        """Return how many rows there are of each combination of ``by``, and their sum of ``total``: columns rows and total."""

    def selected(
        self, rows: R, chosen: Mapping[str, Collection[Any]], names: Sequence[str], *,
        rows_max: int | None = None, share: float = 1.0,
    ) -> pa.Table:  # fmt: skip
        """Return columns ``names`` of the rows whose values are among the chosen ones.

        Of these at most ``rows_max``, or a sample: about ``share`` of them.
        """

    def dealt(self, rows: R, deal: Deal) -> R:
        """Return the rows that belong to a bucket, with its number (column tasks.BUCKET); all of a bucket in one part."""

    def results(self, rows: R, function: ResultFunction) -> list[bytes]:
        """Return what ``function`` says of each part.  Raises Unavailable if tasks fail and may still be writing."""

    def each(self, function: Callable[[S, int], T], shares: Sequence[S]) -> list[T]:
        """Return what ``function`` says of each share, in their order.  Raises Unavailable as :meth:`results` does."""


@runtime_checkable
class Labels(Protocol[R]):
    """What an engine has, too, that finds the partition of a row by itself: rows that need no look-up go to a task once then."""

    def rereads(self, rows: R) -> bool:
        """Return whether the rows can be read again for little."""

    def frequencies(self, rows: R, by: Sequence[str]) -> pa.Table:
        """Return the values of the columns ``by`` that occur together, and how often: column rows, last."""

    def labelled(self, rows: R, definition: TableDefinition, places: pa.Table, row_bytes: int) -> R:
        """Return the table's columns of the rows, with tasks.CONTROL as of inserts into new file groups; kept if they cannot be read again for little.

        ``places``: the partition columns, as the rows have them, and the path ``__mdt_partition`` of each combination that occurs.
        """
