"""What runs pure functions over Arrow batches somewhere: threads of this process, tasks of Spark,
or something else.

The functions (:mod:`mdt.engines.tasks`) know no engine, and what is built on engines
(:mod:`mdt.engines.write`, :mod:`mdt.engines.indexing`) knows none of them by name.  To add one,
implement :class:`Engine`: a folder or a module of its own.

An engine holds rows in parts, in whatever form it likes, ``R``.  It may start a task more than
once, and lose what an attempt returned: tasks write under names that carry the number of their
attempt, and what the last attempt did not return is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from indexes.key_hash import KeyHash
from mdt.config import Options
from mdt.schema.definition import TableDefinition

R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")

BatchFunction = Callable[[Iterator[pa.RecordBatch], int], Iterator[pa.RecordBatch]]
"""What a task makes of its batches.  The number is that of the attempt; no other attempt of the
same write has it.
"""
ResultFunction = Callable[[Iterator[pa.RecordBatch], int], "bytes | None"]
"""What a task returns to the driver for its batches, None if it has nothing to say; the number as
above.
"""


@dataclass(frozen=True, slots=True)
class Deal:
    """Which bucket takes which rows, and how many tasks share the buckets.

    ``places``: table (place: string, number: int64, bounds: list<binary>, takers: list<int32>).  A
    row belongs to the place of its partition path if it is an insert, else to ``""``, and of its
    file group's number.  Of several takers, the one that follows all bounds up to the row's sort
    key (:func:`mdt.hudi.record_keys.sort_keys`) by the columns ``key``.  ``carried``: bucket ->
    bytes and number of the rows that its task reads from the table to write them anew.
    """

    places: pa.Table
    key: tuple[str, ...]
    tasks: int
    carried: Mapping[int, tuple[int, int]] = field(default_factory=dict)


class Given(Protocol[R]):
    """Rows of a caller that an engine holds (:func:`mdt.engines.choice.given`)."""

    @property
    def engine(self) -> Engine[R]:
        """The engine."""

    @property
    def rows(self) -> R:
        """The rows as the engine takes them."""

    @property
    def schema(self) -> pa.Schema:
        """The columns.  Raises Invalid for types that Arrow lacks."""

    def few(self, options: Options, *, looks: bool = False) -> pa.Table | None:
        """Return the rows if they are so few that the calling thread is faster, else None.

        ``looks``: whether to look at the first rows where an estimate says that they are many.
        """

    def narrowed(self, names: Sequence[str]) -> Given[R]:
        """Return the rows without columns that are not in ``names``."""

    def evolved_schema(self, known: pa.Schema) -> pa.Schema:
        """Return :attr:`schema`.  Raises Invalid, too, for columns that are not ``known`` and that
        a new table could not have.
        """

    def completed(self, definition: TableDefinition) -> Any:
        """Return the rows, as a caller gives them, with null in columns that only the table has."""


class Engine(Protocol[R]):
    """Rows in parts, functions over parts, and the few questions that a driver asks; all of them
    leave ``rows`` as they are.

    What a function raises of :mod:`mdt.errors` is raised to the caller as it is.
    """

    @property
    def name(self) -> str:
        """What results call it."""

    @property
    def is_here(self) -> bool:
        """Whether tasks run in this process, so that they can be given the open table; others open
        it themselves.
        """

    @property
    def processors(self) -> int:
        """How many tasks can run at a time."""

    def spread(self, table: pa.Table) -> R:
        """Return the rows of a small table of the driver, in as many parts as there shall be
        tasks.
        """

    def joined(self, rows: R, more: R) -> R:
        """Return the rows of both, which have the same columns; what :meth:`mapped` keeps of either
        is kept as long as that one.
        """

    def grouped(self, rows: R, names: Sequence[str], key_hash: KeyHash | None = None) -> R:
        """Return the rows with equal values of the columns ``names`` in one part; without names, as
        they are, in no more parts than tasks pay for.

        ``key_hash``: that of the table, if ``names`` are its key columns.  Each part may have a
        range of these hashes then, so that its task looks into a part of each key map, and not into
        all of it.
        """

    def mapped(self, rows: R, function: BatchFunction, schema: pa.Schema, key: Sequence[str]) -> R:
        """Return what ``function`` makes of each part, tagged rows in ``schema``; kept, so that it
        runs once, until it is dropped.

        ``key``: the columns by which inserts may be sampled and dealt.
        """

    def dropped(self, rows: R) -> None:
        """Give back what :meth:`mapped` keeps."""

    def counted(self, rows: R, by: Sequence[str], total: str) -> pa.Table:
        """Return how many rows there are of each combination of ``by``, and their sum of ``total``:
        columns rows and total.
        """

    def selected(
        self,
        rows: R,
        chosen: Mapping[str, Collection[Any]],
        names: Sequence[str],
        rows_max: int | None = None,
    ) -> pa.Table:
        """Return CONTROL columns ``names`` of the tagged rows whose values are among the chosen
        ones; of these at most ``rows_max``.
        """

    def sampled(
        self, rows: R, partitions: Sequence[str], key: Sequence[str], share: float
    ) -> pa.Table:
        """Return some of the inserts into ``partitions``, about ``share`` of them:
        tasks.SAMPLED.
        """

    def dealt(self, rows: R, deal: Deal) -> R:
        """Return the rows that belong to a bucket, with its number (column tasks.BUCKET); all of a
        bucket in one part.
        """

    def results(self, rows: R, function: ResultFunction) -> list[bytes]:
        """Return what ``function`` says of each part.  Raises Unavailable if tasks fail and may
        still be writing.
        """

    def each(self, function: Callable[[S, int], T], shares: Sequence[S]) -> list[T]:
        """Return what ``function`` says of each share, in their order.  Raises Unavailable as
        :meth:`results` does.
        """
