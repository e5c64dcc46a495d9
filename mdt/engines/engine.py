"""The engine protocol: run pure functions over Arrow batches in threads, Spark tasks or elsewhere.

The functions (:mod:`mdt.engines.tasks`) do not depend on an engine. Code that uses engines
(:mod:`mdt.engines.write`, :mod:`mdt.engines.indexing`) does not depend on a particular engine. To
add an engine, implement :class:`Engine` in a module or folder of its own.

An engine holds rows in parts, in a form ``R`` of its choice. It may run a task more than once and
discard the result of an attempt. Tasks therefore put the number of their attempt into file names,
and the files of discarded attempts are deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
"""Maps the batches of one part to batches. The int is the attempt number, unique within a write."""
ResultFunction = Callable[[Iterator[pa.RecordBatch], int], "bytes | None"]
"""Maps the batches of one part to a result for the driver, or None. The int is the attempt
number.
"""


@dataclass(frozen=True, slots=True)
class BucketAssignment:
    """An assignment of rows to buckets, and the number of tasks that share the buckets.

    ``places``: table (place: string, number: int64, bounds: list<binary>, takers: list<int32>). The
    place of an insert is its partition path, that of any other row is ``""``. ``number`` is the
    row's file group. Where an entry has several takers, ``takers[i]`` gets the rows with ``bounds[i
    - 1] <= sort key < bounds[i]``, with sort keys (:func:`mdt.hudi.record_keys.sort_keys`) of the
    columns ``key``. ``carried``: bucket -> (bytes, rows) that its task copies from existing files.
    """

    places: pa.Table
    key: tuple[str, ...]
    tasks: int
    carried: Mapping[int, tuple[int, int]] = field(default_factory=dict)


class EngineInput(Protocol[R]):
    """Rows of a caller that are held by an engine (:func:`mdt.engines.choice.engine_input`)."""

    @property
    def engine(self) -> Engine[R]:
        """The engine that holds the rows."""

    @property
    def rows(self) -> R:
        """The rows in the engine's own form."""

    @property
    def schema(self) -> pa.Schema:
        """The columns. Raises Invalid for types that Arrow does not have."""

    def few(self, options: Options, *, looks: bool = False) -> pa.Table | None:
        """Return the rows as a table if the calling thread processes them faster than tasks, else
        None.

        ``looks``: also fetch the first rows if an estimate exceeds the limit.
        """

    def select_columns(self, names: Sequence[str]) -> EngineInput[R]:
        """Return the rows with only the columns in ``names``."""

    def evolved_schema(self, table_schema: pa.Schema) -> pa.Schema:
        """Return :attr:`schema`. Also raises Invalid for columns that are not in
        ``table_schema`` and that a new table could not have.
        """

    def add_missing_columns(self, definition: TableDefinition) -> Any:
        """Return the caller's rows with null columns added for table columns that they lack."""


class Engine(Protocol[R]):
    """Rows in parts, functions over parts, and the aggregates that a driver needs. No method
    changes ``rows``.

    Errors of :mod:`mdt.errors` that a function raises reach the caller unchanged.
    """

    @property
    def name(self) -> str:
        """The name of the engine in results."""

    @property
    def is_in_process(self) -> bool:
        """True if tasks run in this process and can use the open table. Other tasks open it
        themselves.
        """

    @property
    def processors(self) -> int:
        """The number of tasks that can run at the same time."""

    def distribute(self, table: pa.Table) -> R:
        """Return the rows of a small table of the driver, split into a part per task."""

    def union(self, first: R, second: R) -> R:
        """Return the rows of both inputs, which have the same columns. Rows that :meth:`map_parts`
        retains for an input are retained until that input is dropped.
        """

    def group_by(self, rows: R, names: Sequence[str], key_hash: KeyHash | None = None) -> R:
        """Return the rows with equal values of the columns ``names`` in the same part. Without
        names, only reduce the number of parts if there are more than tasks pay for.

        ``key_hash``: the key hash of the table if ``names`` are its key columns. An engine may then
        give each part a range of hashes, so that its task reads only this range of each key map.
        """

    def map_parts(
        self, rows: R, function: BatchFunction, schema: pa.Schema, key: Sequence[str]
    ) -> R:
        """Return the tagged rows that ``function`` makes of each part, in ``schema``. They are
        retained until :meth:`release` is called, so ``function`` runs once.

        ``key``: the columns for sampling inserts and assigning them to buckets.
        """

    def release(self, rows: R) -> None:
        """Release the rows that :meth:`map_parts` retained."""

    def count_tagged(self, rows: R) -> pa.Table:
        """Count the tagged rows of each kind, partition and file group -> tasks.COUNTS."""

    def select(
        self, rows: R, kind: int, names: Sequence[str], rows_max: int | None = None
    ) -> pa.Table:
        """Return the CONTROL columns ``names`` of the tagged rows of a kind, at most ``rows_max``
        rows.
        """

    def sample_inserts(
        self, rows: R, partitions: Sequence[str], key: Sequence[str], share: float
    ) -> pa.Table:
        """Return a sample of the inserts into ``partitions``, about the fraction ``share`` ->
        tasks.SAMPLED.
        """

    def shuffle_to_buckets(self, rows: R, assignment: BucketAssignment) -> R:
        """Return the rows that belong to a bucket, with its number in the column tasks.BUCKET. The
        rows of a bucket are in the same part.
        """

    def collect_results(self, rows: R, function: ResultFunction) -> list[bytes]:
        """Return the results of ``function`` over all parts, without None. Raises Unavailable if
        tasks fail and may still be writing.
        """

    def map_shares(self, function: Callable[[S, int], T], shares: Sequence[S]) -> list[T]:
        """Return the result of ``function`` for each share, in order. Raises Unavailable as
        :meth:`collect_results` does.
        """
