"""Native Spark scans of Parquet files that a Python planner chooses per query, without deleted
rows.

:func:`relation` returns a DataFrame over the files of a :class:`Lister`. Every query requests the
list again with its own predicates, so that the next query sees a new commit and Spark opens only
files that remain after pruning. Per file, the lister may return the deleted positions and the
candidate positions. A wrapper around Spark's Parquet reader then returns no deleted row, and skips
row groups and pages without a candidate. A file may be a byte range of another file.

All relations of a query, including its subqueries, pass the same `query` key to their listers: a
rule in the session's optimizer pins them together. The query has a consistent snapshot if each
lister answers equal keys from a single version. The JVM half is the folder ``java``. Start reading
with ``plan/MdtFileIndex.java``, then ``scan/MdtParquet.java``.

The rule also calls each lister during optimization, and removes relations without files from the
plan. A session may lack the rule if a global view brought the frame from another session. Relations
then share a version only during an execution.

Spark refuses to write to such a frame or view, because the relation declares two roots.

The reply to one call from the JVM, with little-endian integers: byte 0 and the body, or byte 1 and
the name of a temporary file with the body, which the JVM deletes.

* Body: int32 version number, int32 flags (1: a snapshot follows, 2: candidate rows follow, 4:
  figures follow, 8: changes follow), int32 k (-1: keep all files), int32[k] positions to keep;
  candidate rows: int32[k] length of each bitmap, -1 for all rows, the bitmaps; figures; snapshot or
  changes.
* Figures: int32 n, int64[n] numbers, int32[n] units (0: counts, 1: bytes), int32[n] ends of the
  names; the names as UTF-8.
* Snapshot: int32 n; int64[n] bytes of Parquet data, int64[n] start of the data, -1 for a whole
  file, int64[n] bytes of the whole file; int32[n] bytes of the footer to verify, 0 for none,
  int32[n] its CRC-32, int32[n] version of the columns, -1 for the newest, int32[n] 1 if there are
  deleted positions, int32[n] ends of the URIs; the URIs as UTF-8.
* Changes: int32 number of a version that the JVM has; int32 g, int32[g] sorted positions in it of
  removed files; int32 d, int32[d] sorted positions of remaining files with other deleted rows,
  int32[d] 1 if there are deleted positions; a snapshot of the files to append.
* Deleted rows, requested once per version for the m files that a query reads: int32[m] length of
  each bitmap of deleted positions, -1 for none, the bitmaps; int32[m] number of the object with a
  further bitmap, -1 for none; int64[m] its offset there, int32[m] its length, int32[m] its CRC-32,
  int32[m] its number of positions; int32 k, int64[k] bytes of the objects, int32[k] ends of their
  URIs; the URIs as UTF-8.
* Answers to the optimizer: JSON as documented in :mod:`mdt.engines.spark.answers`; for several
  relations at once a list, with null for a relation without an answer.
* Bitmaps are Roaring bitmaps of 32 bits in the portable format.
"""

from __future__ import annotations

import itertools
import json
import tempfile  # noqa: TID251 - passes large bytes to py4j
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from indexes.predicate import And, Predicate
from mdt import logs
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

# Larger replies are faster through a file, because py4j encodes bytes as base64.
_INLINE_BYTES_MAX = 1 << 16
_ACCELERATORS = ("comet", "gluten", "rapids", "velox")
_IN_PROCESS = "read in process: spark.createDataFrame(mdt.open(path).scan().to_arrow())"
_UNITS = ("", "bytes")  # of figures, in the JVM's numbering
_FILE_LISTS_MAX = 4  # recent versions; the JVM's follow-up requests come soon after a listing
_VERSION_NUMBERS_MAX = 4096  # more versions than are committed while a query is planned


class Lister(ABC):
    """Chooses the files of a relation. Called from several threads at a time.

    If its frame has any of OPTIMIZES in its ``features``, it also implements
    :class:`mdt.engines.spark.answers.Optimizing`.
    """

    @abstractmethod
    def list(self, query: str, predicate: Predicate, rows: int | None = None) -> Listing:
        """Return the files, and their rows, that may match ``predicate``. Files with ``rows``
        matching rows in total are enough.

        ``query`` identifies the running query: equal keys must use the same version of the table, a
        new key the newest. Keys that start with ``call:`` are used once, when Spark requests a size
        and not rows. If the answer has no file, the relation is removed from the query. If this
        raises, it is called again with an empty And, so that a broken index costs time but never
        rows.
        """

    def release(self, query: str) -> None:  # noqa: B027 - optional
        """Forget the key ``query``, which no plan uses any more. It may belong to another
        relation.
        """

    def explain(self, query: str, to: Collection[str]) -> None:  # noqa: B027 - optional
        """Explain the plans of ``query`` from now on. ``to``: "log" and "metrics", as set in the
        query's session.
        """


def relation(
    spark: SparkSession,
    lister: Lister,
    schema: StructType,
    root_uri: str,
    forms: str = "",
    *,
    features: Collection[str] = (),
    footer_bytes: int = 0,
    vector_bytes: int = 0,
) -> private.ReplannedFrame:
    """Return a DataFrame over the Parquet files of ``lister``.

    ``schema``: the columns in the files, all nullable.
    ``root_uri``: the table's name in plans.
    ``forms``: older versions of the columns for the JVM (``java/scan/Forms.java``), if any.
    ``features``: "told" explains plans as the session requests; "placed" prefers an executor per
        file while it is alive; "far" marks a remote store; and enabled entries of OPTIMIZES.
    ``footer_bytes``: footer cache of an executor, 0 for none. Cached footers are verified when
        read.
    ``vector_bytes``: likewise for deletion vectors in other objects.

    The frame is kept alive by plans that refer to it. ``lister`` must not reference it. Raises
    Unsupported on Spark Connect, if the cluster does not allow a session to add a JAR, and if
    another Parquet reader would replace it.
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
            ",".join(features),
            footer_bytes,
            vector_bytes,
        )
    return private.ReplannedFrame(java, spark, factory.anew)


def another_frame(spark: SparkSession, frame: private.ReplannedFrame) -> DataFrame:
    """Return another frame of the relation of ``frame`` in the same session. Both share a lister.

    It has its own column ids, so that the two frames can be joined. The JVM reuses the lister's
    files.
    """
    factory = factory_of(spark.sparkContext)
    java = factory.again(private.java_session(spark), frame.analysed)
    return private.ReplannedFrame(java, spark, factory.anew)


@contextmanager
def refusals() -> Iterator[None]:
    """Convert refusals of the JVM half to Unsupported."""
    try:
        yield
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() != "java.lang.UnsupportedOperationException":
            raise
        raise Unsupported(error.java_exception.getMessage(), hint=_IN_PROCESS) from error


def _require_own_reader(spark: SparkSession) -> None:
    """Raise Unsupported if an accelerator replaces Spark's Parquet reader, because it would return
    deleted rows.
    """
    for setting in ("spark.plugins", "spark.sql.extensions"):
        value = str(spark.conf.get(setting, "") or "")
        if any(name in value.lower() for name in _ACCELERATORS):
            raise Unsupported(
                f"{setting} enables an accelerator that would return deleted rows: {value}",
                hint=f"start the session without it, or {_IN_PROCESS}",
            )


def list_size(files: int, lists_max: int) -> int:
    """Return the size of a list of files in a cache with the limit LISTED_FILES_MAX, so that it
    holds at least the last two lists and at most ``lists_max``.
    """
    return min(max(files, LISTED_FILES_MAX // lists_max), LISTED_FILES_MAX // 2)


class _Planner:
    """The Python half of a relation: the java.util.function.Function that ``MdtFileIndex`` calls.

    The JVM references it (py4j drops it when the JVM collects the index), and it references nothing
    of the JVM, so that no cycle across the two heaps keeps an unused frame alive.
    """

    class Java:
        implements = ("java.util.function.Function",)

    def __init__(self, lister: Lister, columns: frozenset[str], root_uri: str) -> None:
        self.lister = lister
        self._columns = columns
        self._root_uri = root_uri
        self._numbers: Recent[Hashable, int] = Recent(_VERSION_NUMBERS_MAX)
        self._files: Recent[int, Files] = Recent(LISTED_FILES_MAX)
        self._next_number = itertools.count().__next__
        self.number = next(session().numbers)
        planners = _planners()
        with planners.lock:
            planners.value[self.number] = self

    def apply(self, request: str) -> bytes:
        """Answer a request of the JVM (JSON, see ``FileSource.ask``) with the bytes of a reply."""
        with in_task():
            return self._answer(json.loads(request))

    def _answer(self, request: dict[str, Any]) -> bytes:
        if "dead" in request:
            files = self._files_of(request["version"], request["query"])
            return _encode_reply(_encode_dead_rows(files.dead(request["dead"])))
        if "each" in request:
            return _encode_reply(
                json.dumps([_answer_question(question) for question in request["each"]]).encode()
            )
        if answers.is_question(request):
            return _encode_reply(json.dumps(self.answer_question(request)).encode())
        _release(request["gone"])
        if request.get("explain"):
            self.lister.explain(request["query"], request["explain"])
        listing = self._list(request["query"], request["filters"], request.get("rows"))
        number, files = self._number(listing.version), listing.files
        is_known = number in request["known"]
        changes = None if is_known else self._changes(files, request["known"])
        self._files.made(number, lambda: files, list_size(len(files), _FILE_LISTS_MAX))
        return _reply(number, listing, is_known=is_known, changes=changes)

    def answer_question(self, request: Mapping[str, Any]) -> Any:
        """Return the answer to a question of the optimizer."""
        return answers.answer(self.lister, request, self._columns)

    def _list(self, query: str, filters: list[Any], rows: int | None) -> Listing:
        try:
            return self.lister.list(query, predicate_of(filters, self._columns), rows)
        except Exception as error:  # noqa: BLE001 - a broken index costs time, never rows
            warnings.warn(
                f"files of {self._root_uri} are not pruned: {type(error).__name__}: {error}",
                PlannerWarning,
                stacklevel=1,
            )
        return self.lister.list(query, And(()))

    def _changes(self, files: Files, numbers: Collection[int]) -> tuple[int, Changes] | None:
        """Return (version, changes) for a version that the JVM has, or None if no difference is
        known.
        """
        for number in sorted(numbers, reverse=True):
            before = self._files.get(number)
            changes = None if before is None else files.since(before)
            if changes is not None:
                return number, changes
        return None

    def _files_of(self, number: int, query: str) -> Files:
        """Return the files of a version that was listed for a query. Raises Conflict if the query
        is now pinned to another version.
        """
        files = self._files.get(number)
        if files is not None:
            return files
        listing = self.lister.list(query, And(()))
        if self._number(listing.version) != number:
            raise Conflict(
                "the table changed too often while the query was planned",
                hint="run the query again",
            )
        return listing.files

    def _number(self, version: Hashable) -> int:
        return self._numbers.made(version, self._next_number)


@for_life
def _planners() -> Guarded[WeakValueDictionary[int, _Planner]]:
    """Return the planners that are in use, by number."""
    return Guarded(WeakValueDictionary())


def _answer_question(question: Mapping[str, Any]) -> Any:
    """Forward an optimizer question to its planner. Log any error and return None, because the
    answer only improves the plan.
    """
    try:
        planners = _planners()
        with planners.lock:
            planner = planners.value[question["planner"]]
        return planner.answer_question(question)
    except Exception as error:  # noqa: BLE001 - the plan is right without the answer
        logs.PLAN.debug(
            "a question of Spark's optimizer has no answer: %s: %s", type(error).__name__, error
        )
        return None


def _release(queries: list[str]) -> None:
    """Release these queries in every lister."""
    if not queries:
        return
    planners = _planners()
    with planners.lock:
        listers = {id(planner.lister): planner.lister for planner in planners.value.values()}
    for lister in listers.values():
        for query in queries:
            lister.release(query)


def _reply(
    number: int, listing: Listing, *, is_known: bool, changes: tuple[int, Changes] | None
) -> bytes:
    """Encode a reply in the format of the module's docstring.

    ``is_known``: True if the JVM has the files. ``changes``: their difference from a version that
    the JVM has, or None to send all files.
    """
    keep, bitmaps = listing.keep, listing.bitmaps
    count = -1 if keep is None else len(keep)
    with_snapshot = not is_known and changes is None
    flags = (
        with_snapshot
        | (bitmaps is not None) << 1
        | bool(listing.figures) << 2
        | (not is_known and not with_snapshot) << 3
    )
    parts = [_encode("<i4", [number, flags, count])]
    if keep is not None:
        parts.append(_encode("<i4", keep))
    if bitmaps is not None:
        parts.append(_encode_bitmaps(bitmaps))
    if listing.figures:
        parts.append(_encode_figures(listing.figures))
    if with_snapshot:
        parts.append(_encode_snapshot(listing.files.native()))
    elif changes is not None:
        parts.append(_encode_changes(*changes))
    return _encode_reply(b"".join(parts))


def _encode(dtype: str, *parts: npt.ArrayLike) -> bytes:
    """Encode the numbers of all parts."""
    return b"".join(np.asarray(part, dtype).tobytes() for part in parts)


def _encode_texts(texts: Iterable[str]) -> bytes:
    """Encode texts as UTF-8 after their ends."""
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    return b"".join((_encode("<i4", ends), *encoded))


def _encode_bitmaps(bitmaps: Sequence[bytes | None]) -> bytes:
    """Encode bitmaps after their lengths, -1 for none."""
    lengths = [-1 if bitmap is None else len(bitmap) for bitmap in bitmaps]
    return b"".join((_encode("<i4", lengths), *(bitmap for bitmap in bitmaps if bitmap)))


def _encode_dead_rows(rows: DeadRows) -> bytes:
    """Encode the deleted rows of m files in the format of the module's docstring."""
    return b"".join(
        (
            _encode_bitmaps(rows.bitmaps),
            _encode("<i4", rows.object),
            _encode("<i8", rows.offset),
            _encode("<u4", rows.length, rows.crc, rows.rows),
            _encode("<i4", [len(rows.objects)]),
            _encode("<i8", [size for _, size in rows.objects]),
            _encode_texts(uri for uri, _ in rows.objects),
        )
    )


def _encode_reply(body: bytes) -> bytes:
    """Encode a reply with this body."""
    if len(body) <= _INLINE_BYTES_MAX:
        return b"\0" + body
    with tempfile.NamedTemporaryFile(prefix="mdt-listing-", delete=False) as file:
        file.write(body)
    return b"\1" + file.name.encode()


def _encode_figures(figures: Sequence[Figure]) -> bytes:
    """Encode n figures."""
    return b"".join(
        (
            _encode("<i4", [len(figures)]),
            _encode("<i8", [figure.number for figure in figures]),
            _encode("<i4", [_UNITS.index(figure.unit) for figure in figures]),
            _encode_texts(figure.name for figure in figures),
        )
    )


def _encode_snapshot(files: NativeFiles) -> bytes:
    """Encode n files. O(n)."""
    return b"".join(
        (
            _encode("<i4", [len(files)]),
            _encode("<i8", files.sizes, files.offsets, files.file_sizes),
            _encode("<i4", files.footer_sizes),
            _encode("<u4", files.footer_crcs),
            _encode("<i4", files.versions, files.has_dead),
            _encode_texts(files.uris),
        )
    )


def _encode_changes(number: int, changes: Changes) -> bytes:
    """Encode the changes since the version with this number."""
    gone, dead = changes.gone, changes.dead
    counted = [number, len(gone)], gone, [len(dead)], dead, changes.has_dead
    return _encode("<i4", *counted) + _encode_snapshot(changes.added)
