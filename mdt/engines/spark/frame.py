"""A table as a Spark DataFrame: native Parquet scans whose files our planner chooses, query by query.

Clean segments are scanned as they are; segments with dead rows are scanned and filtered by position.  The data blocks of
log files are copied out, byte for byte, into a scratch directory when a query first needs them: each is a whole
Parquet file.  The scratch directory must be visible to every executor; with a local master it is a temporary one.
"""

from __future__ import annotations

import tempfile
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from threading import Lock
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from indexes.predicate import And, Call, Leaf, Predicate, leaves
from mdt.engines.spark.columns import quoted, to_column, to_sort_column
from mdt.engines.spark.engine import SparkEngine
from mdt.engines.spark.extracts import Extract, extracted
from mdt.engines.spark.file_index import Listing, NativeFile, union_frame
from mdt.engines.spark.index_tasks import IndexTasks
from mdt.engines.spark.older_forms import copied, misread
from mdt.engines.spark.private import from_arrow_schema
from mdt.engines.spark.session import classic
from mdt.errors import Invalid, Unsupported
from mdt.filters.order import SortKey
from mdt.hudi.schema import with_meta
from mdt.metadata import paths
from mdt.metadata.file_group import BASE
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import Snapshot
from mdt.parquet.segment_rows import check_footer, parquet_bytes
from mdt.plan.planner import ScanPlan, plan
from mdt.plan.position_search import RemotePruner, conjuncts_of
from mdt.schema.declared import local
from mdt.schema.definition import TableDefinition
from mdt.stores.storage import Storage, open_storage

SCRATCH_OPTION = "spark.mdt.scratch"
"""Spark setting: a directory that driver and executors share, for clusters."""

View = Callable[[Snapshot], Snapshot]

_VIEWS_KEPT = 8
_UNPINNED = "call:"
_WORD_BITS = 64


def read(
    spark: SparkSession, metadata: Metadata, pinned: Snapshot | None = None, view: View | None = None
) -> DataFrame:
    """Return a table as a DataFrame; each query is planned against the newest snapshot then, or always against ``pinned``.

    ``view``: makes of the newest snapshot what is read.
    """
    definition = (pinned or metadata.newest()).definition
    return _frame(spark, metadata, pinned, definition, shown(definition), view=view)


def shown(definition: TableDefinition) -> pa.Schema:
    """Return the data columns as Spark shows them: as they are stored, but without a time zone where none was declared."""
    return local(definition.declared, definition.schema)


def scan(
    spark: SparkSession, metadata: Metadata, snapshot: Snapshot, predicate: Predicate | None, columns: Sequence[str],
    order: Sequence[SortKey] = (),
) -> DataFrame:  # fmt: skip
    """Return ``columns`` (meta columns may be among them) of the rows of ``snapshot`` that match ``predicate``, in ``order``."""
    schema = with_meta(shown(snapshot.definition))
    frame = _frame(spark, metadata, snapshot, snapshot.definition, schema, predicate)
    if predicate is not None:
        frame = frame.where(to_column(predicate, schema))
    if order:
        frame = frame.orderBy(*(to_sort_column(key, schema) for key in order))
    return frame.select(*(quoted(name) for name in columns))


def _frame(
    spark: SparkSession,
    metadata: Metadata,
    pinned: Snapshot | None,
    definition: TableDefinition,
    schema: pa.Schema,
    predicate: Predicate | None = None,
    view: View | None = None,
) -> DataFrame:
    """Return a frame of all rows, columns ``schema``, from which the caller takes those that match ``predicate``."""
    context = classic(spark).sparkContext
    tasks = IndexTasks(SparkEngine(spark))
    files = _Files(metadata, pinned, _scratch(spark), tasks, context.applicationId, context.defaultParallelism)
    files.hidden = _with_calls(predicate)
    files.seen = view
    files.definition = definition
    root = metadata.storage.uri("").rstrip("/")
    return union_frame(
        spark, _Lister(files, "clean"), _Lister(files, "dirty"), _Lister(files, "deleted"),
        from_arrow_schema(schema, prefer_timestamp_ntz=True), root,
    )  # fmt: skip


def _with_calls(predicate: Predicate | None) -> Predicate | None:
    """Return the conditions of ``predicate`` that call predicate functions, None if none does.

    Spark evaluates them in Python, after the scan, and so tells the planner nothing of them.
    """
    if predicate is None:
        return None
    found = tuple(part for part in conjuncts_of(predicate) if any(isinstance(leaf, Call) for leaf in leaves(part)))
    if not found:
        return None
    return And(found)


def _scratch(spark: SparkSession) -> str | None:
    """Return the shared scratch directory of a cluster, or None for a temporary one of this process."""
    shared = spark.conf.get(SCRATCH_OPTION, None)
    if shared is None and not str(spark.sparkContext.master).startswith("local"):
        raise Unsupported(
            "on a cluster the rows of log files need a directory that all executors can read",
            hint=f"set {SCRATCH_OPTION} to one, for example on the same store as the table",
        )
    return shared


@dataclass
class _View:
    """The files of one snapshot as Spark sees them; positions in ``clean`` and ``dirty`` are those of the listings."""

    snapshot: Snapshot
    storage: Storage
    scratch: Storage
    checked: set[int] = field(default_factory=set)
    """Segments whose footers were found to be as written; shared by the views of a frame."""

    @property
    def version(self) -> tuple[int, int]:
        """What tells the numbers of these files from those of other views: the commit, and the base that it stands on."""
        return self.snapshot.seq, self.snapshot.checkpoint.seq

    @cached_property
    def older(self) -> frozenset[int]:
        """Numbers of files of older versions of the schema that Spark would misread; their live rows are copied, so they are clean."""
        return frozenset(np.flatnonzero(misread(self.snapshot) & self.snapshot.has_rows).tolist())

    @cached_property
    def rows(self) -> dict[str, list[int]]:
        """Numbers of clean and of dirty files with at least one live row."""
        live = self.snapshot.has_rows
        dirty = (self.snapshot.dead_rows > 0) & ~misread(self.snapshot)
        return {"clean": np.flatnonzero(live & ~dirty).tolist(), "dirty": np.flatnonzero(live & dirty).tolist()}

    @cached_property
    def files(self) -> dict[str, list[NativeFile]]:
        """The listings of clean and dirty files."""
        names = ("partition", "name", "size", "block_length")
        columns = [self.snapshot.files.column(name).to_pylist() for name in names]  # at once: one by one is slow
        return {kind: [self._file(i, *(c[i] for c in columns)) for i in rows] for kind, rows in self.rows.items()}

    def _file(self, i: int, partition: str, name: str, size: int, block_length: int) -> NativeFile:
        if self.snapshot.kind[i] == BASE:
            return NativeFile(_uri(self.storage, paths.partition_file(partition, name)), size, 0, i)
        return NativeFile(_uri(self.scratch, self._block_name(i)), block_length, 0, i)

    def _block_name(self, i: int) -> str:
        return f"{self.snapshot.definition.table_id}/block-{int(self.snapshot.segment_ids[i])}.parquet"

    def others(self, extract: Extract) -> list[NativeFile]:
        """Return the file with copied rows, if there are any."""
        return [] if extract.path is None else [NativeFile(_uri(self.scratch, extract.path), extract.size, 0, 0)]

    @cached_property
    def _unchecked(self) -> npt.NDArray[np.bool_]:
        """Base files whose footers are to be checked: all but those on remote stores, which compare what they send themselves."""
        known = np.isin(self.snapshot.segment_ids, np.fromiter(self.checked, np.int64))
        return (self.snapshot.kind == BASE) & ~known & (not self.storage.is_remote)

    def preparation(self, rows: Sequence[int]) -> Callable[[], None] | None:
        """Return what must be done before Spark reads the segments ``rows``, None if nothing."""
        wanted = np.array(rows, np.int64)
        blocks = wanted[self.snapshot.kind[wanted] != BASE].tolist()
        fresh = wanted[self._unchecked[wanted]]
        return partial(self._prepare, blocks, fresh) if blocks or len(fresh) else None

    def _prepare(self, blocks: Sequence[int], fresh: npt.NDArray[np.int64]) -> None:
        """Check footers, which Spark believes, and copy blocks."""
        for segment in self.snapshot.files.segments(fresh):
            check_footer(self.storage, segment)
        self._unchecked[fresh] = False
        self.checked.update(self.snapshot.segment_ids[fresh].tolist())
        self.copy_blocks(blocks)

    def copy_blocks(self, rows: Sequence[int]) -> None:
        """Make each data block among the segments ``rows`` a file of its own, if that has not been done."""
        for i in rows:
            if self.scratch.size(self._block_name(i)) is None:
                self._copy_block(i)

    def _copy_block(self, i: int) -> None:
        self.scratch.put_if_absent(self._block_name(i), parquet_bytes(self.storage, self.snapshot.segment(i)))

    @cached_property
    def deleted(self) -> list[NativeFile]:
        """One Parquet file with the bit sets of all dirty files of this snapshot, or none."""
        rows = self.rows["dirty"]
        if not rows:
            return []
        words = [_words(np.asarray(v.to_array()), int(self.snapshot.rows[i])) for i in rows
                 if (v := self.snapshot.vector(i)) is not None]  # fmt: skip
        table = pa.table({"number": pa.array(rows, pa.int32()), "words": pa.array(words, pa.list_(pa.int64()))})
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, store_schema=False, write_page_checksum=True)
        data = sink.getvalue()
        name = f"{self.snapshot.definition.table_id}/deleted-{self.snapshot.seq}-{self.snapshot.checkpoint.seq}.parquet"
        self.scratch.put_if_absent(name, data)
        return [NativeFile(_uri(self.scratch, name), len(data), 0, 0)]


def _uri(storage: Storage, path: str) -> str:
    """Return the percent-encoded URI of an object; partition paths hold percent signs of their own."""
    scheme, _, rest = storage.uri(path).partition("://")
    return f"{scheme}://{quote(rest, safe='/=')}"


def _words(positions: np.ndarray[tuple[int], np.dtype[Any]], rows: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return a bit set of ``rows`` bits with ``positions`` set, in words of 64 bits, lowest bit first."""
    bits = np.zeros(-(-rows // _WORD_BITS) * _WORD_BITS, dtype=np.uint8)
    bits[positions] = 1
    return np.packbits(bits, bitorder="little").view(np.int64)


@dataclass
class _Query:
    """What one running query is pinned to, and the plans that were made for it."""

    snapshot: Snapshot
    plans: dict[Predicate, ScanPlan] = field(default_factory=dict)
    extracts: dict[Predicate, Extract | None] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)


class _Files:
    """What the three listers of one frame share: which snapshot a running query is pinned to, its files and plans.

    ``hidden``: what all queries of the frame filter by without Spark's telling.  ``seen``: makes of the newest snapshot what is read.
    ``definition``: of the table when the frame was made.
    """

    def __init__(
        self, metadata: Metadata, pinned: Snapshot | None, scratch: str | None, tasks: RemotePruner | None = None,
        name: str = "", processors: int = 1,
    ) -> None:  # fmt: skip
        self._metadata = metadata
        self._tasks = tasks
        self._name = name
        self._processors = processors
        self._pinned = pinned
        if scratch is None:
            directory = tempfile.TemporaryDirectory(prefix="mdt-spark-", ignore_cleanup_errors=True)
            weakref.finalize(self, directory.cleanup)
            scratch = directory.name
        self._scratch = open_storage(scratch, durable=False)
        self.hidden: Predicate | None = None
        self.seen: View | None = None
        self.definition: TableDefinition | None = None
        self._queries: dict[str, _Query] = {}
        self._views: OrderedDict[tuple[int, int], _View] = OrderedDict()
        self._checked: set[int] = set()
        self._lock = Lock()

    def query(self, key: str) -> _Query:
        """Return the state of a query: equal keys get the same until they are released."""
        with self._lock:
            found = self._queries.get(key)
            if found is None:
                found = _Query(self._snapshot())
                self._require_same(found.snapshot.definition)
                if not key.startswith(_UNPINNED):
                    self._queries[key] = found
            return found

    def _snapshot(self) -> Snapshot:
        if self._pinned is not None:
            return self._pinned
        newest = self._metadata.newest()
        return newest if self.seen is None else self.seen(newest)

    def _require_same(self, now: TableDefinition) -> None:
        """Raise Invalid if the columns were altered since the frame was made, which names and types them."""
        made = self.definition
        if made is not None and now.versions and (now.version.ids, now.declared) != (made.version.ids, made.declared):
            raise Invalid(
                "the table's columns were altered since this DataFrame was made",
                hint="make it anew: mdt.read(spark, path)",
            )

    def view(self, snapshot: Snapshot) -> _View:
        """Return the files of a snapshot."""
        with self._lock:
            key = snapshot.seq, snapshot.checkpoint.seq
            view = self._views.get(key)
            if view is None:
                view = self._views[key] = _View(snapshot, self._metadata.storage, self._scratch, self._checked)
            self._views.move_to_end(key)
            while len(self._views) > _VIEWS_KEPT:
                self._views.popitem(last=False)
            return view

    def plan(self, query: _Query, predicate: Predicate) -> ScanPlan:
        """Return the plan of a query for ``predicate``, made and counted but once, whoever asks."""
        with query.lock:
            found = query.plans.get(predicate)
            if found is None:
                found = plan(self._metadata, query.snapshot, predicate, self._tasks)
                if not query.plans and self._metadata.options(query.snapshot.definition).usage_counts:
                    self._metadata.usage.record(found.used_indexes(), _tests(predicate))
                query.plans[predicate] = found
            return found

    def extract(self, key: str, predicate: Predicate, columns: Sequence[str]) -> Extract | None:
        """Return the copy of the rows that match, made but once, None if the files are to be read instead.

        All of a query ask with the same ``columns``.
        """
        query = self.query(key)
        found = self.plan(query, predicate)
        with query.lock:
            if predicate not in query.extracts:
                options = self._metadata.options(query.snapshot.definition)
                name = f"{query.snapshot.definition.table_id}/rows-{self._name}-{quote(key, safe='')}-{len(query.extracts)}.parquet"
                clean = frozenset(self.view(query.snapshot).rows["clean"])
                query.extracts[predicate] = extracted(
                    self._metadata, options, self._scratch, found, clean, columns, name, self._processors
                )
            return query.extracts[predicate]

    def copy(self, view: _View, file: int, columns: Sequence[str] | None) -> NativeFile:
        """Return a copy of the live rows of a file of an older version of the schema."""
        path, size = copied(self._metadata, self._scratch, view.snapshot, file, columns)
        return NativeFile(_uri(self._scratch, path), size, 0, 0)

    def release(self, key: str) -> None:
        """Forget what the query ``key`` was pinned to, and delete what was copied for it."""
        with self._lock:
            query = self._queries.pop(key, None)
        copies = (
            [] if query is None else [e.path for e in query.extracts.values() if e is not None and e.path is not None]
        )
        self._scratch.delete_many(copies)


def _tests(predicate: Predicate) -> list[Leaf]:
    """Return the tests of a query's own; Spark adds "is not null" to each column that is compared."""
    tests = list(leaves(predicate))
    compared = {leaf.column for leaf in tests if leaf.op != "is not null"}
    return [leaf for leaf in tests if leaf.op != "is not null" or leaf.column not in compared]


class _Lister:
    """Answers for one of the relations "clean", "dirty" and "deleted"."""

    def __init__(self, files: _Files, kind: str) -> None:
        self._files = files
        self._kind = kind

    def list(self, query: str, predicate: Predicate, columns: Sequence[str] | None) -> Listing:
        """Return the files that ``predicate`` may match; see :class:`mdt.engines.spark.file_index.Lister`."""
        pinned = self._files.query(query)
        view = self._files.view(pinned.snapshot)
        if self._files.hidden is not None:
            predicate = And((self._files.hidden, predicate))
        if self._kind == "deleted":
            return Listing(view.version, view.deleted)
        rows, keep = view.rows[self._kind], None
        extract = None
        left: set[int] | None = None
        if predicate != And(()) and rows:
            if self._kind == "clean" and columns is not None:
                extract = self._files.extract(query, predicate, columns)
            left = {s.file for s in self._files.plan(pinned, predicate).segments}
            left -= frozenset() if extract is None else extract.segments
        older = view.older if self._kind == "clean" and not query.startswith(_UNPINNED) else frozenset()
        if older:
            older = older if left is None else older & left
            left = (set(rows) if left is None else left) - older
        if left is not None:
            keep = np.array([n for n, i in enumerate(rows) if i in left], dtype=np.int32)
        prepare = view.preparation(rows if keep is None else [rows[n] for n in keep.tolist()])
        others = [] if extract is None else view.others(extract)
        others += [self._files.copy(view, file, columns) for file in sorted(older)]
        return Listing(view.version, view.files[self._kind], keep, prepare, others)

    def release(self, query: str) -> None:
        """Forget what ``query`` was pinned to."""
        self._files.release(query)
