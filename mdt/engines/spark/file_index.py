"""Spark reads Parquet files that a Python planner chooses, query by query, at native speed.

`relation` gives a DataFrame over files that a `Lister` names.  The list is asked for again by every query, with the
query's own predicates, so a new commit is seen by the next query and pruning happens before Spark opens a file.
`union_frame` reads a merge-on-read snapshot: clean files, and dirty files less their deleted positions.

All relations in one query, its subqueries included, hand the same `query` key to their listers: a rule that is added
to the session's optimizer pins them together.  A lister that answers equal keys from one version therefore gives the
query one consistent snapshot; that is the lister's part of the bargain.  The JVM half is the folder
``java``; its ``MdtFileIndex.java`` is read first.

The same rule asks each lister already while the query is optimized, and takes relations without a file to read out of
the plan.  A snapshot is one relation until then: only a query that must read dirty files gets a union of these, joined
with their deleted positions, and of the clean ones.  So a table without deleted rows is scanned as plain Parquet files
are, and Spark's own rules, some of which fail on unions, never see one.  A session without the rule (another than the
one that made the frame, by a global view) is refused where rows are deleted.

Writing to such a frame or view is refused by Spark, because the relation claims to have two roots.

The reply to one call from the JVM, integers little-endian: one byte 0, then the body; or one byte 1, then the name of
a temporary file with the body, which the JVM deletes.

* Body: int32 version number, int32 flags (1: a snapshot follows, 2: the files can be read, and the same question need not
  be asked again, 4: other files follow), int32 k (-1: keep all files), int32[k] positions to keep, snapshot, other files in
  the same form.
* Snapshot: int32 n, int64[n] sizes in bytes, int64[n] modification times in ms, int32[n] file numbers, int32[n] ends of the
  URIs, the URIs as UTF-8.
"""

from __future__ import annotations

import json
import tempfile
import threading
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, IntegerType, LongType, StructField, StructType

from indexes.predicate import And, Predicate
from mdt.engines.spark import private
from mdt.engines.spark.catalyst import predicate_of
from mdt.engines.spark.session import classic
from mdt.errors import Invalid

NUMBER_COLUMN = "__mdt_file"
"""The partition column that holds a file's number, where a relation has one."""

_NUMBER_SCHEMA = StructType([StructField(NUMBER_COLUMN, IntegerType())])

DELETED_SCHEMA = StructType([StructField("number", IntegerType()), StructField("words", ArrayType(LongType()))])
"""Rows of the third relation of `union_frame`: per dirty file, the bit set of its deleted positions, 64 in a word."""

_LIVE = """
    getbit(coalesce(get(__mdt_words, cast(shiftright(__mdt_row, 6) as int)), 0L), cast(__mdt_row % 64 as int)) = 0
"""  # text: one call to the JVM, where columns would take twenty
_INLINE_BYTES_MAX = 1 << 16  # larger replies are quicker through a file: py4j encodes bytes as base64 text
_VERSION_NUMBERS_MAX = 4096  # more versions than can be committed while one query is planned


@dataclass(frozen=True, slots=True)
class NativeFile:
    """A Parquet file: ``path`` is a URI (percent-encoded), ``number`` an int32 that the planner gives it."""

    path: str
    size: int
    modified_ms: int
    number: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The answer to one call: ``files`` of one ``version``, and which of them the query must read.

    Equal versions promise equal ``files``, which may then be read again or not at all.  ``keep``: int32[k], distinct
    positions in ``files``, or None for all.  ``prepare``, if there is something to do before the files can be read, is
    called when they are about to be.  ``others``: files to read besides, for this query only, which stand for rows of files
    that are not kept.
    """

    version: Hashable
    files: Sequence[NativeFile]
    keep: npt.NDArray[np.int32] | None = None
    prepare: Callable[[], None] | None = None
    others: Sequence[NativeFile] = ()


class Lister(Protocol):
    """Chooses the files of one relation.  Called from several threads at a time."""

    def list(self, query: str, predicate: Predicate, columns: Sequence[str] | None) -> Listing:
        """Return the files that may hold a row for which ``predicate`` is true.

        ``columns``: all that the query uses of this relation, None if that is not known.
        ``query`` names the running query: equal keys must be answered from one version of the table, a new key from
        the newest.  Keys that start with ``call:`` ask for no query's rows (Spark wants the size) and come but once.
        An answer without a file takes the relation out of the query; it need not be asked for again.
        If this raises, it is called again with an empty And, so that a broken index costs time and never rows.
        """


@runtime_checkable
class Releasing(Protocol):
    """A `Lister` that keeps something for each query may have this, too."""

    def release(self, query: str) -> None:
        """Forget the key ``query``: no plan holds it any more.  Keys of other relations come here, too."""


class PlannerWarning(UserWarning):
    """The planner failed, and a query reads every file."""


def relation(
    spark: SparkSession,
    lister: Lister,
    schema: StructType,
    root_uri: str,
    *,
    number_column: bool = False,
    size_hint: int | None = None,
    droppable: bool = True,
) -> DataFrame:
    """Return a DataFrame over the Parquet files that ``lister`` names.

    ``schema``: the columns in the files, all taken as nullable, plus `NUMBER_COLUMN` (int) at the end if
    ``number_column``.  ``root_uri`` names the table in plans.  ``size_hint``: bytes of the whole, spares a call of the
    lister where Spark wants the size before it plans.  ``droppable``: whether the lister is asked while the query is
    optimized, in case there is nothing to read; False defers it until Spark lists the files.  Lives as long as a plan refers to it; ``lister`` must not hold
    a reference to the frame.  Raises Unsupported on Spark Connect.
    """
    classic(spark)
    factory = _factory(spark.sparkContext)
    partitions = _NUMBER_SCHEMA if number_column else StructType([])
    planner = _Planner(lister, frozenset(schema.fieldNames()), root_uri)
    hint = -1 if size_hint is None else size_hint
    session = private.java_session(spark)
    java = factory.relation(planner, session, schema.json(), partitions.json(), root_uri, hint, droppable)
    return private.PlannedAnew(java, spark, factory.anew)


def union_frame(
    spark: SparkSession, clean: Lister, dirty: Lister, deleted: Lister, schema: StructType, root_uri: str
) -> DataFrame:
    """Return the rows of ``clean`` files and those of ``dirty`` files that are not deleted; columns as in ``schema``.

    ``deleted`` lists small Parquet files with `DELETED_SCHEMA`; there must be at most one row for each file number.
    A file number without a row has no deleted positions.  Raises Invalid for column names that start with ``__mdt_``.
    """
    reserved = [name for name in schema.fieldNames() if name.lower().startswith("__mdt_")]
    if reserved:
        raise Invalid(f"column names may not start with __mdt_: {', '.join(reserved)}")
    classic(spark)
    schemas = (schema, schema, DELETED_SCHEMA)
    planners = [
        _Planner(lister, frozenset(columns.fieldNames()), root_uri)
        for lister, columns in zip((clean, dirty, deleted), schemas, strict=True)
    ]
    factory = _factory(spark.sparkContext)
    java = factory.merged(
        *planners, private.java_session(spark), schema.json(), _NUMBER_SCHEMA.json(), DELETED_SCHEMA.json(),
        f"{NUMBER_COLUMN} = __mdt_number", _LIVE, root_uri,
    )  # fmt: skip
    return private.PlannedAnew(java, spark, factory.anew)


class _Planner:
    """The Python half of one relation: the java.util.function.Function that ``MdtFileIndex`` calls.

    The JVM holds it (py4j drops it when the JVM collects the index), and it holds nothing of the JVM's: no cycle
    across the two heaps can keep a dead frame alive.
    """

    class Java:
        implements = ("java.util.function.Function",)

    def __init__(self, lister: Lister, columns: frozenset[str], root_uri: str) -> None:
        self.lister = lister
        self._columns = columns
        self._root_uri = root_uri
        self._numbers: OrderedDict[Hashable, int] = OrderedDict()
        self._next = 0
        self._lock = threading.Lock()
        with _planners_lock:
            _planners.add(self)

    def apply(self, request: str) -> bytes:
        """Answer one request of the JVM (JSON; see ``FileSource.ask`` there) with the bytes of a reply."""
        asked = json.loads(request)
        _release(asked["gone"])
        listing = self._list(asked["query"], asked["filters"], asked["columns"], asked["reading"])
        number = self._number(listing.version)
        return _reply(number, listing, number not in asked["known"], asked["reading"])

    def _list(self, query: str, filters: list[Any], columns: Sequence[str] | None, reading: bool) -> Listing:
        try:
            return self._answer(query, predicate_of(filters, self._columns), columns, reading)
        except Exception as error:  # noqa: BLE001 - a broken index costs time, never rows
            warnings.warn(
                f"no files could be pruned from {self._root_uri}: {type(error).__name__}: {error}",
                PlannerWarning,
                stacklevel=1,
            )
        return self._answer(query, And(()), None, reading)

    def _answer(self, query: str, predicate: Predicate, columns: Sequence[str] | None, reading: bool) -> Listing:
        listing = self.lister.list(query, predicate, columns)
        if reading and listing.prepare is not None:
            listing.prepare()
        return listing

    def _number(self, version: Hashable) -> int:
        with self._lock:
            if version not in self._numbers:
                self._numbers[version] = self._next
                self._next += 1
            self._numbers.move_to_end(version)
            if len(self._numbers) > _VERSION_NUMBERS_MAX:
                self._numbers.popitem(last=False)
            return self._numbers[version]


_planners: weakref.WeakSet[_Planner] = weakref.WeakSet()
_planners_lock = threading.Lock()
_factories: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
_factories_lock = threading.Lock()


def _release(queries: list[str]) -> None:
    """Tell every lister that cares that these queries are gone."""
    if not queries:
        return
    with _planners_lock:
        listers = {id(planner.lister): planner.lister for planner in _planners}
    for lister in listers.values():
        if isinstance(lister, Releasing):
            for query in queries:
                lister.release(query)


def _reply(number: int, listing: Listing, with_snapshot: bool, reading: bool) -> bytes:
    """Return the bytes of a reply; the format is in the module's docstring."""
    keep = listing.keep
    count = -1 if keep is None else len(keep)
    flags = int(with_snapshot) | int(reading or listing.prepare is None) << 1 | bool(listing.others) << 2
    parts = [np.array([number, flags, count], "<i4").tobytes()]
    if keep is not None:
        parts.append(np.asarray(keep, "<i4").tobytes())
    if with_snapshot:
        parts.append(_snapshot(listing.files))
    if listing.others:
        parts.append(_snapshot(listing.others))
    body = b"".join(parts)
    if len(body) <= _INLINE_BYTES_MAX:
        return b"\0" + body
    with tempfile.NamedTemporaryFile(prefix="mdt-listing-", delete=False) as file:
        file.write(body)
    return b"\1" + file.name.encode()


def _snapshot(files: Sequence[NativeFile]) -> bytes:
    """Return the bytes of a list of n files.  O(n)."""
    uris = [file.path.encode() for file in files]
    return b"".join(
        (
            np.array([len(files)], "<i4").tobytes(),
            np.array([file.size for file in files], "<i8").tobytes(),
            np.array([file.modified_ms for file in files], "<i8").tobytes(),
            np.array([file.number for file in files], "<i4").tobytes(),
            np.cumsum([len(uri) for uri in uris], dtype=np.int64).astype("<i4").tobytes(),
            *uris,
        )
    )


def java_sources() -> dict[str, str]:
    """Return the Java half of this package: names of files to their texts."""
    folder = resources.files(__package__).joinpath("java")
    return {file.name: file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".java")}


def _factory(context: SparkContext) -> Any:
    """Return the JVM's ``Factory``, compiling the Java half at the first call for each JVM (about 1 s)."""
    gateway = private.gateway(context)
    with _factories_lock:
        if gateway not in _factories:
            loader = private.compiled(context, java_sources())
            _factories[gateway] = loader.loadClass("mdt.spark.Factory").newInstance()
        return _factories[gateway]
