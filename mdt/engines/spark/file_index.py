"""Spark reads Parquet files that a Python planner chooses, query by query, at native speed, without
their dead rows.

`relation` gives a DataFrame over files that a `Lister` names.  The list is asked for again by every
query, with the query's own predicates, so a new commit is seen by the next query and pruning
happens before Spark opens a file.  Of each file the lister may say which positions are dead, and
which are the only ones that may match: Spark's own reader of Parquet, wrapped, returns no dead row
and reads no row group and no page without a wanted one.  A file may be a part of another.

All relations in one query, its subqueries included, hand the same `query` key to their listers: a
rule that is added to the session's optimizer pins them together.  A lister that answers equal keys
from one version therefore gives the query one consistent snapshot; that is the lister's part of the
bargain.  The JVM half is the folder ``java``; its ``plan/MdtFileIndex.java`` is read first, then
``scan/MdtParquet.java``.

The same rule asks each lister already while the query is optimized, and takes relations without a
file to read out of the plan.  In a session without the rule (another than the one that made the
frame, by a global view) relations share a version for as long as one execution runs.

Writing to such a frame or view is refused by Spark, because the relation claims to have two roots.

The reply to one call from the JVM, integers little-endian: one byte 0, then the body; or one byte
1, then the name of a temporary file with the body, which the JVM deletes.

* Body: int32 version number, int32 flags (1: a snapshot follows, 2: wanted rows follow, 4: figures
  follow, 8: changes follow), int32 k (-1: keep all files), int32[k] positions to keep; wanted rows:
  int32[k] length of each bitmap, -1 for all rows, the bitmaps; figures; snapshot or changes.
* Figures: int32 n, int64[n] numbers, int32[n] units (0: counts, 1: bytes), int32[n] ends of the
  names; the names as UTF-8.
* Snapshot: int32 n; int64[n] bytes of Parquet data, int64[n] where they begin, -1 for a whole file,
  int64[n] bytes of the whole file; int32[n] bytes of the footer to compare, 0 for none, int32[n]
  its CRC-32, int32[n] version of the columns, -1 for the newest, int32[n] whether some positions
  are dead, int32[n] ends of the URIs; the URIs as UTF-8.
* Changes: int32 number of a version that the JVM has; int32 g, int32[g] positions in it, rising, of
  files that are gone; int32 d, int32[d] positions, rising, of files that stay and have other dead
  rows, int32[d] whether some positions are dead; a snapshot of the files that come behind those
  that stay.
* Dead rows, asked for by another call of those m files that a query reads, once a version: int32[m]
  length of each bitmap of dead positions, -1 for none, the bitmaps; int32[m] number of the object
  that has such a bitmap, too, -1 for none; int64[m] where it begins there, int32[m] its length,
  int32[m] its CRC-32, int32[m] how many positions it has; int32 k, int64[k] bytes of the objects,
  int32[k] ends of their URIs; the URIs as UTF-8.
* What the optimizer asks: JSON, as :mod:`mdt.engines.spark.answers` says; of several relations at
  once, a list with null where one has no answer.
* Bitmaps are Roaring bitmaps of 32 bits in the portable form.
"""

from __future__ import annotations

import itertools
import json
import tempfile  # noqa: TID251  how py4j is given large bytes
import threading
import warnings
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from indexes.predicate import And, Predicate
from mdt.engines.index_tasks import PlannerWarning
from mdt.engines.spark import answers, private
from mdt.engines.spark.catalyst import predicate_of
from mdt.engines.spark.failures import in_task
from mdt.engines.spark.java_half import factory_of
from mdt.engines.spark.listing import Changes, DeadRows, Files, Listing, NativeFiles
from mdt.engines.spark.session import classic
from mdt.errors import Conflict, Unsupported
from mdt.limits import LISTED_FILES_MAX
from mdt.plan.planner import Figure
from mdt.session import Guarded, Recent, for_life, session

# larger replies are quicker through a file: py4j encodes bytes as base64 text
_INLINE_BYTES_MAX = 1 << 16
_ACCELERATORS = ("comet", "gluten", "rapids", "velox")
_IN_PROCESS = (
    "read in process, and hand over the rows:"
    " spark.createDataFrame(mdt.open(path).scan().to_arrow())"
)
_UNITS = ("", "bytes")  # of figures, by the number that the JVM knows them by
_FILES_KEPT_MIN = 2
_FILES_KEPT = (
    4  # of versions that were listed last: what else the JVM wants to know of one, it asks at once
)
_VERSION_NUMBERS_MAX = 4096  # more versions than can be committed while one query is planned


class Lister(ABC):
    """Chooses the files of one relation.  Called from several threads at a time.

    A frame that ``does`` some of OPTIMIZES has a lister that is
    :class:`mdt.engines.spark.answers.Optimizing`, too.
    """

    @abstractmethod
    def list(self, query: str, predicate: Predicate, rows: int | None = None) -> Listing:
        """Return the files, and the rows in them, that may hold a row for which ``predicate`` is
        true; files with ``rows`` such rows are enough.

        ``query`` names the running query: equal keys must be answered from one version of the
        table, a new key from the newest.  Keys that start with ``call:`` ask for no query's rows
        (Spark wants the size) and come but once. An answer without a file takes the relation out of
        the query; it need not be asked for again. If this raises, it is called again with an empty
        And, so that a broken index costs time and never rows.
        """

    def release(self, query: str) -> None:  # noqa: B027 - not all keep something
        """Forget the key ``query``: no plan holds it any more.  Keys of other relations come here,
        too.
        """

    def explain(self, query: str, to: Collection[str]) -> None:  # noqa: B027 - not all tell
        """Tell of the plans of ``query`` from here on; ``to``: "log", "metrics", as the session
        says that runs it.
        """


def relation(
    spark: SparkSession,
    lister: Lister,
    schema: StructType,
    root_uri: str,
    forms: str = "",
    *,
    does: Collection[str] = (),
    footer_bytes: int = 0,
    vector_bytes: int = 0,
) -> private.PlannedAnew:
    """Return a DataFrame over the Parquet files that ``lister`` names.

    ``schema``: the columns in the files, all taken as nullable.  ``root_uri`` names the table in
    plans.  ``forms``: what the JVM is told of older versions of the columns
    (``java/scan/Forms.java``), if files have some.  ``does``: "told", plans are told of to whom the
    session names; "placed", a file has an executor that it is read by, as long as that lives;
    "far", its store is; and what of OPTIMIZES is done.  ``footer_bytes``: of footers that an
    executor keeps in memory, 0 for none; it then compares them when it reads them.
    ``vector_bytes``: likewise of deletion vectors that stand elsewhere.

    The frame lives as long as a plan refers to it; ``lister`` must not hold a reference to it.
    Raises Unsupported on Spark Connect, where the cluster does not let a session add a JAR, and
    where another reader of Parquet would take the place of ours.
    """
    _require_own_reader(classic(spark))
    factory = factory_of(spark.sparkContext)
    planner = _Planner(lister, frozenset(schema.fieldNames()), root_uri)
    with refusals():
        java = factory.relation(
            planner,
            planner.number,
            private.java_session(spark),
            schema.json(),
            forms,
            root_uri,
            ",".join(does),
            footer_bytes,
            vector_bytes,
        )
    return private.PlannedAnew(java, spark, factory.anew)


def again(spark: SparkSession, frame: private.PlannedAnew) -> DataFrame:
    """Return another frame of the relation that :func:`relation` made ``frame`` of, in the same
    session: one lister serves both.

    It has columns of its own, as every frame that is made: the two can be joined.  What the JVM has
    of the lister's files it need not be sent again.
    """
    factory = factory_of(spark.sparkContext)
    java = factory.again(private.java_session(spark), frame.analysed)
    return private.PlannedAnew(java, spark, factory.anew)


@contextmanager
def refusals() -> Iterator[None]:
    """Raise Unsupported where the JVM's half refuses a session."""
    try:
        yield
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() != "java.lang.UnsupportedOperationException":
            raise
        raise Unsupported(error.java_exception.getMessage(), hint=_IN_PROCESS) from error


def _require_own_reader(spark: SparkSession) -> None:
    """Raise Unsupported where an accelerator replaces Spark's reader of Parquet: it would return
    dead rows.
    """
    for setting in ("spark.plugins", "spark.sql.extensions"):
        value = str(spark.conf.get(setting, "") or "")
        if any(name in value.lower() for name in _ACCELERATORS):
            raise Unsupported(
                f"{setting} names an accelerator that reads Parquet files by itself, with rows that"
                f" were deleted: {value}",
                hint=f"start the session without it; or {_IN_PROCESS}",
            )


class _Planner:
    """The Python half of one relation: the java.util.function.Function that ``MdtFileIndex`` calls.

    The JVM holds it (py4j drops it when the JVM collects the index), and it holds nothing of the
    JVM's: no cycle across the two heaps can keep a dead frame alive.
    """

    class Java:
        implements = ("java.util.function.Function",)

    def __init__(self, lister: Lister, columns: frozenset[str], root_uri: str) -> None:
        self.lister = lister
        self._columns = columns
        self._root_uri = root_uri
        self._numbers: Recent[Hashable, int] = Recent(_VERSION_NUMBERS_MAX)
        self._files: OrderedDict[int, Files] = OrderedDict()
        self._next_number = itertools.count().__next__
        self._lock = threading.Lock()
        self.number = next(session().numbers)
        with _planners() as planners:
            planners[self.number] = self

    def apply(self, request: str) -> bytes:
        """Answer one request of the JVM (JSON; see ``FileSource.ask`` there) with the bytes of a
        reply.
        """
        with in_task():
            return self._answer(json.loads(request))

    def _answer(self, asked: dict[str, Any]) -> bytes:
        if "dead" in asked:
            files = self._files_of(asked["version"], asked["query"])
            return _sent(_dead(files.dead(asked["dead"])))
        if "each" in asked:
            return _sent(json.dumps([_told(one) for one in asked["each"]]).encode())
        if answers.is_question(asked):
            return _sent(json.dumps(self.told(asked)).encode())
        _release(asked["gone"])
        if asked.get("explain"):
            self.lister.explain(asked["query"], asked["explain"])
        listing = self._list(asked["query"], asked["filters"], asked.get("rows"))
        number = self._number(listing.version)
        is_known = number in asked["known"]
        changes = None if is_known else self._changes(listing.files, asked["known"])
        self._keep(number, listing.files)
        return _reply(number, listing, is_known=is_known, changes=changes)

    def told(self, asked: Mapping[str, Any]) -> Any:
        """Return the answer to a question of the optimizer."""
        return answers.answer(self.lister, asked, self._columns)

    def _list(self, query: str, filters: list[Any], rows: int | None) -> Listing:
        try:
            return self.lister.list(query, predicate_of(filters, self._columns), rows)
        except Exception as error:  # noqa: BLE001 - a broken index costs time, never rows
            warnings.warn(
                f"no files could be pruned from {self._root_uri}: {type(error).__name__}: {error}",
                PlannerWarning,
                stacklevel=1,
            )
        return self.lister.list(query, And(()))

    def _changes(self, files: Files, known: Collection[int]) -> tuple[int, Changes] | None:
        """Return a version that the JVM has, and how ``files`` follow from its files; None if that
        is not known of any.
        """
        with self._lock:
            kept = [
                (number, self._files[number])
                for number in sorted(known, reverse=True)
                if number in self._files
            ]
        for number, before in kept:
            changes = files.since(before)
            if changes is not None:
                return number, changes
        return None

    def _keep(self, number: int, files: Files) -> None:
        with self._lock:
            self._files[number] = files
            self._files.move_to_end(number)
            most = max(_FILES_KEPT_MIN, min(_FILES_KEPT, LISTED_FILES_MAX // max(1, len(files))))
            while len(self._files) > most:
                self._files.popitem(last=False)

    def _files_of(self, number: int, query: str) -> Files:
        """Return the files of a version that was listed for a query.  Raises Conflict if the query
        is pinned to another one now.
        """
        with self._lock:
            files = self._files.get(number)
        if files is not None:
            return files
        listing = self.lister.list(query, And(()))
        if self._number(listing.version) != number:
            raise Conflict(
                "the table changed too often while a query was planned", hint="run the query again"
            )
        return listing.files

    def _number(self, version: Hashable) -> int:
        return self._numbers.made(version, self._next_number)


@for_life
def _planners() -> Guarded[WeakValueDictionary[int, _Planner]]:
    """Return the planners that somebody has, by their numbers."""
    return Guarded(WeakValueDictionary())


def _told(asked: Mapping[str, Any]) -> Any:
    """Return the answer of that planner which a question names, None without: the query, which can
    do without, will say so if there is more to it.
    """
    with suppress(Exception):
        with _planners() as planners:
            planner = planners[asked["planner"]]
        return planner.told(asked)
    return None


def _release(queries: list[str]) -> None:
    """Tell every lister that these queries are gone."""
    if not queries:
        return
    with _planners() as planners:
        listers = {id(planner.lister): planner.lister for planner in planners.values()}
    for lister in listers.values():
        for query in queries:
            lister.release(query)


def _reply(
    number: int, listing: Listing, *, is_known: bool, changes: tuple[int, Changes] | None
) -> bytes:
    """Return the bytes of a reply; the format is in the module's docstring.

    ``is_known``: whether the JVM has the files; ``changes``: how they follow from those of a
    version that it has, None if it must be sent all.
    """
    keep, wanted = listing.keep, listing.wanted
    count = -1 if keep is None else len(keep)
    with_snapshot = not is_known and changes is None
    flags = (
        with_snapshot
        | (wanted is not None) << 1
        | bool(listing.figures) << 2
        | (not is_known and not with_snapshot) << 3
    )
    parts = [np.array([number, flags, count], "<i4").tobytes()]
    if keep is not None:
        parts.append(np.asarray(keep, "<i4").tobytes())
    if wanted is not None:
        parts.append(_lengths_and(wanted))
    if listing.figures:
        parts.append(_figures(listing.figures))
    if with_snapshot:
        parts.append(_snapshot(listing.files.native()))
    elif changes is not None:
        parts.append(_changed(*changes))
    return _sent(b"".join(parts))


def _lengths_and(bitmaps: Sequence[bytes | None]) -> bytes:
    """Return the lengths of bitmaps, -1 for none, and the bitmaps."""
    lengths = np.array([-1 if one is None else len(one) for one in bitmaps], "<i4")
    return b"".join((lengths.tobytes(), *(one for one in bitmaps if one is not None)))


def _dead(rows: DeadRows) -> bytes:
    """Return the bytes of the dead rows of m files; the format is in the module's docstring."""
    uris = [uri.encode() for uri, _ in rows.objects]
    return b"".join(
        (
            _lengths_and(rows.bitmaps),
            np.asarray(rows.object, "<i4").tobytes(),
            np.asarray(rows.offset, "<i8").tobytes(),
            *(
                np.asarray(numbers, "<u4").tobytes()
                for numbers in (rows.length, rows.crc, rows.rows)
            ),
            np.array([len(uris)], "<i4").tobytes(),
            np.array([size for _, size in rows.objects], "<i8").tobytes(),
            _ends(uris),
            *uris,
        )
    )


def _sent(body: bytes) -> bytes:
    """Return the bytes of a reply with this body."""
    if len(body) <= _INLINE_BYTES_MAX:
        return b"\0" + body
    with tempfile.NamedTemporaryFile(prefix="mdt-listing-", delete=False) as file:
        file.write(body)
    return b"\1" + file.name.encode()


def _figures(figures: Sequence[Figure]) -> bytes:
    """Return the bytes of n figures."""
    names = [figure.name.encode() for figure in figures]
    return b"".join(
        (
            np.array([len(figures)], "<i4").tobytes(),
            np.array([figure.number for figure in figures], "<i8").tobytes(),
            np.array([_UNITS.index(figure.unit) for figure in figures], "<i4").tobytes(),
            _ends(names),
            *names,
        )
    )


def _snapshot(files: NativeFiles) -> bytes:
    """Return the bytes of n files.  O(n)."""
    uris = [uri.encode() for uri in files.uris]
    return b"".join(
        (
            np.array([len(files)], "<i4").tobytes(),
            *(
                np.asarray(numbers, "<i8").tobytes()
                for numbers in (files.sizes, files.offsets, files.file_sizes)
            ),
            np.asarray(files.footer_sizes, "<i4").tobytes(),
            np.asarray(files.footer_crcs, "<u4").tobytes(),
            np.asarray(files.versions, "<i4").tobytes(),
            np.asarray(files.has_dead, "<i4").tobytes(),
            _ends(uris),
            *uris,
        )
    )


def _changed(number: int, changes: Changes) -> bytes:
    """Return the bytes of what has changed since the version with this number."""
    gone, dead = (np.asarray(at, "<i4") for at in (changes.gone, changes.dead))
    has_dead = np.asarray(changes.has_dead, "<i4")
    heads = [np.array(values, "<i4") for values in ([number, len(gone)], [len(dead)])]
    return b"".join(
        part.tobytes() for part in (heads[0], gone, heads[1], dead, has_dead)
    ) + _snapshot(changes.more)


def _ends(texts: Sequence[bytes]) -> bytes:
    """Return where each of ``texts`` ends if they follow each other: int32."""
    return np.cumsum([len(text) for text in texts], dtype=np.int64).astype("<i4").tobytes()
