"""Check a table: recompute everything that can be recomputed and compare it with what stands on
storage.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes.base import Int64Array, KeyHashes
from indexes.buffers import flags
from mdt.config import Options
from mdt.display import html_facts, html_table
from mdt.errors import Corrupt, Invalid
from mdt.hudi.keys import record_keys, sort_keys
from mdt.hudi.partitions import partition_paths
from mdt.hudi.schema import RECORD_KEY, with_meta
from mdt.metadata.files import paths
from mdt.metadata.files.file_group import BASE
from mdt.metadata.files.key_map import KeyMap, build, ordering_words
from mdt.metadata.files.segment_columns import read_columns
from mdt.metadata.history.tolerate_missing import begun_again
from mdt.metadata.key_indexes import keys_for
from mdt.metadata.keys.buckets import homes
from mdt.metadata.keys.buckets import names as bucket_names
from mdt.metadata.keys.locate import propose
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.parquet import page_map
from mdt.parquet.segment import Segment
from mdt.parquet.segment_rows import live_mask
from mdt.progress import Progress, counted
from mdt.services.check_blocks import check_blocks
from mdt.services.check_fresh import fresh_of, has_right_fresh
from mdt.services.check_log import check_log
from mdt.services.check_past import check_past
from mdt.services.check_placement import misplaced_keys
from mdt.services.check_shards import is_right, remade
from mdt.services.problem import Kind, Problem
from mdt.write.summarize import summarize_columns

PARTITION_PATH = "_hoodie_partition_path"

_ATTEMPTS_MAX = 3
_NAMED = 10


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What was checked and what was found.  ``rows``: live rows; ``bytes``: of the live files;
    ``records``: of the log.

    ``warnings``: what harms no reader of ours or of Hudi's.
    """

    problems: tuple[Problem, ...]
    files: int
    rows: int
    bytes: int
    records: int
    warnings: tuple[Problem, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def __repr__(self) -> str:
        found = "no problems" if self.ok else f"{len(self.problems):,} problems"
        return f"<mdt check of {self.files:,} files, {self.rows:,} live rows: {found}>"

    def _repr_html_(self) -> str:
        counts = {
            "files": self.files,
            "live rows": self.rows,
            "bytes": self.bytes,
            "commit records": self.records,
        }
        facts = {
            **{name: f"{n:,}" for name, n in counts.items()},
            "problems": f"{len(self.problems):,}" if self.problems else "none",
        }
        rows = ((p.path, "" if p.offset < 0 else p.offset, p.text) for p in self.problems)
        found = (
            html_table("problems", ("object", "byte", "what is wrong"), rows)
            if self.problems
            else ""
        )
        return html_facts("mdt check", facts) + found

    def __str__(self) -> str:
        head = (
            f"{self.files} files, {self.rows:,} live rows, {self.bytes:,} bytes, {self.records}"
            " commit records: "
        )
        return (
            head
            + ("no problems" if self.ok else f"{len(self.problems)} problems")
            + "".join(f"\n  {problem}" for problem in self.problems)
            + "".join(f"\n  warning: {warning}" for warning in self.warnings)
        )


@dataclass(frozen=True, slots=True)
class _Checked:
    """What is wrong with a segment; of its live rows the hashes of the record keys, and the sort
    keys if it has any.
    """

    problems: list[Problem]
    hashes: KeyHashes
    asked: pa.Array | None


def check(
    metadata: Metadata, snapshot: Snapshot, *, progress: Progress | None = None
) -> CheckReport:
    """Check every live file, the commit log, the metadata and Hudi's timeline.  O(table); nothing
    is changed.

    Where others clean meanwhile, what is looked for may have gone, which is no damage: then it
    begins again with the newest state, and what was not found wrong before is no problem the last
    time.  A far store may give a false answer: there only what is found wrong twice is a problem.
    """
    snapshot, report = _reported(metadata, snapshot, progress)
    before: frozenset[Problem] | None = None
    is_far = metadata.storage.is_remote
    for _ in range(_ATTEMPTS_MAX - 1):
        is_new = is_far and before is None
        if report.ok or not (is_new or _is_cleaned(metadata, snapshot)):
            break
        before = frozenset(report.problems)
        snapshot, report = _reported(metadata, _newest(metadata, snapshot), progress)
    if before is None or not (is_far or _is_cleaned(metadata, snapshot)):
        return report
    return replace(
        report, problems=tuple(problem for problem in report.problems if problem in before)
    )


def _is_cleaned(metadata: Metadata, snapshot: Snapshot) -> bool:
    """Return whether the table has been cleaned since ``snapshot``."""
    return _newest(metadata, snapshot).retention != snapshot.retention


def _reported(
    metadata: Metadata, snapshot: Snapshot, progress: Progress | None
) -> tuple[Snapshot, CheckReport]:
    """Return what is wrong with a snapshot, or with the newest one if metadata of that have gone
    meanwhile; and which it is.
    """
    given = [snapshot]

    def looked() -> tuple[Snapshot, CheckReport]:
        found = given.pop() if given else metadata.newest()
        return found, _report(metadata, found, progress)

    return begun_again(looked)


def _newest(metadata: Metadata, snapshot: Snapshot) -> Snapshot:
    try:
        return metadata.newest()
    except Corrupt:  # it is among the problems
        return snapshot


def _report(metadata: Metadata, snapshot: Snapshot, progress: Progress | None) -> CheckReport:
    problems: list[Problem] = []
    try:
        snapshot.check()
    except AssertionError as error:
        problems.append(
            Problem(metadata.storage.url, -1, f"the snapshot breaks an invariant: {error}")
        )
    problems += check_log(metadata, snapshot)
    done: list[_Checked] = []
    with ThreadPoolExecutor(pa.cpu_count()) as pool:
        checker = _SegmentChecker(metadata, snapshot, remade(metadata, snapshot, pool))
        for checked in counted(
            pool.map(checker.run, snapshot.live_numbers.tolist()), len(snapshot), progress
        ):
            done.append(checked)
            problems += checked.problems
    problems += _check_keys(metadata, snapshot, done)
    with suppress(Corrupt):  # a record or checkpoint that cannot be read is among the problems
        problems += check_past(metadata, snapshot)
    size = int(snapshot.files.numpy("size")[snapshot.live].sum())
    rows = int((snapshot.rows - snapshot.dead_rows).sum())
    warnings: tuple[Problem, ...] = ()
    with suppress(Corrupt):  # a key map that cannot be read is among the problems
        if not snapshot.definition.keys_repeat:
            warnings = tuple(misplaced_keys(metadata, snapshot))
    return CheckReport(tuple(problems), len(snapshot), rows, size, snapshot.seq + 1, warnings)


class _SegmentChecker:
    def __init__(
        self, metadata: Metadata, snapshot: Snapshot, right: frozenset[tuple[str, int]]
    ) -> None:
        self._metadata = metadata
        self._snapshot = snapshot
        self._right = right  # summaries, by index and shard
        self._fresh = fresh_of(metadata, snapshot)

    def run(self, i: int) -> _Checked:
        """Return what is wrong with file ``i``, and its live keys."""
        file = self._snapshot.segment(i)
        path = file.path
        nothing = np.empty(0, np.uint64)
        storage, definition = self._metadata.storage, self._snapshot.definition
        schema = with_meta(definition.schema)
        table = None
        problems: list[Problem] = []
        try:
            data = storage.read_whole(path, file.size)
            problems = self._check_bytes(file, path, data)
            if file.rows:
                table = read_columns(storage, definition, file, schema)
            problems += [
                Problem(path, -1, text, Kind.DERIVED) for text in self._texts(i, file, table)
            ]
            problems += [
                Problem(path, -1, text, Kind.DERIVED) for text in self._check_page_map(file, data)
            ]
            if table is not None and sum(file.row_groups) == len(table):
                problems += [
                    Problem(path, -1, text, Kind.SUMMARY)
                    for text in self._check_summaries(i, file, table)
                ]
        except (Corrupt, Invalid) as error:
            damaged = error if isinstance(error, Corrupt) else Corrupt(str(error), path=path)
            kind = (
                Kind.ATTACHMENT
                if damaged.path.startswith(f"{paths.attachments_dir()}/")
                else Kind.ROWS
            )
            problems.append(Problem(damaged.path or path, damaged.offset, str(error), kind))
            table = None
        if table is None:
            return _Checked(problems, KeyHashes(nothing, nothing), None)
        mask = live_mask(len(table), self._snapshot.vector(i))
        table = table if mask is None else table.filter(pa.array(mask))
        keys = table[RECORD_KEY].combine_chunks()
        definition = self._snapshot.definition
        asked = keys_for(definition.key_index, keys, sort_keys(table, definition.key))
        return _Checked(problems, definition.key_hash.hash(keys), asked)

    def _check_bytes(self, file: Segment, path: str, data: bytes) -> list[Problem]:
        """Compare the file as a whole; what is damaged in it is found out afterwards."""
        crc = zlib.crc32(data)
        return (
            []
            if crc == file.crc
            else [Problem(path, -1, f"crc is {crc:08x}, was written as {file.crc:08x}", Kind.ROWS)]
        )

    def _texts(self, i: int, file: Segment, table: pa.Table | None) -> Iterator[str]:
        if file.kind != BASE:
            yield from check_blocks(self._metadata, self._snapshot, i, table)
        if table is None:
            return
        definition = self._snapshot.definition
        keys = table[RECORD_KEY].combine_chunks()
        if not record_keys(table, definition.key).equals(keys):
            yield "record keys differ from the key columns"
        codes, names = partition_paths(
            table, definition.partition_by, definition.hive_style, definition.time_path
        )
        if definition.partition_by and {names[c] for c in np.unique(codes)} != {file.partition}:
            yield "rows of another partition"
        if set(table[PARTITION_PATH].unique().to_pylist()) - {file.partition}:
            yield "meta column _hoodie_partition_path differs from the directory"
        if not has_right_fresh(file, table, self._fresh):
            yield "other rows are new than its commit record says"
        yield from self._check_key_map(file, table, keys)
        yield from self._check_statistics(i, file, table)

    def _check_key_map(self, file: Segment, table: pa.Table, keys: pa.Array) -> Iterator[str]:
        definition = self._snapshot.definition
        stored = file.key_map
        if stored is None:
            yield "has no key map"
            return
        ordering = (
            None if definition.ordering is None else ordering_words(table[definition.ordering])
        )
        if not _same(
            build(definition.key_hash.hash(keys), ordering),
            self._metadata.objects.key_map(stored).whole(),
        ):
            yield f"the key map at {stored.path}:{stored.offset} differs from the rows"

    def _check_page_map(self, file: Segment, data: bytes) -> Iterator[str]:
        """A page map is optional; one that is there must be what the file's bytes give."""
        stored = file.page_map
        if stored is None:
            return
        kept = self._metadata.objects.read(stored, verify=True).to_pybytes()
        try:
            # perhaps of an older format
            told = page_map.decode(kept, path=stored.path, offset=stored.offset)
            nested = any("." in path for path in told.columns)
            found = page_map.build(
                pa.py_buffer(data).slice(file.block_offset, file.block_length), nested=nested
            )
            agrees = page_map.encode(found) == page_map.encode(told)
        except page_map.UNKNOWN_LAYOUT:
            agrees = False
        if not agrees:
            yield f"the page map at {stored.path}:{stored.offset} differs from the file"

    def _check_statistics(self, i: int, file: Segment, table: pa.Table) -> Iterator[str]:
        snapshot = self._snapshot
        row_groups = file.row_groups
        if sum(row_groups) != len(table):
            yield f"row groups of {sum(row_groups)} rows in the metadata, {len(table)} in the file"
            return
        fresh = self._fresh_statistics(file, table)
        stored = snapshot.segment_stats(i).drop_columns(
            ["segment", "bytes"]  # the size in memory depends on how the rows came
        )
        ended = pa.array(sorted(snapshot.definition.statistics_ended()), pa.string())
        stored = stored.filter(pc.invert(pc.is_in(stored["column"], ended)))
        if fresh is not None:
            order = [("column", "ascending"), ("row_group", "ascending")]
            expected = fresh.select(stored.column_names).cast(stored.schema)
            # Which columns have statistics is up to each writer; those that are there must be
            # right.
            expected = expected.filter(
                pc.is_in(expected["column"], stored["column"].combine_chunks())
            )
            if not expected.sort_by(order).equals(stored.sort_by(order)):
                yield "column statistics differ from the rows"

    def _check_summaries(self, i: int, file: Segment, table: pa.Table) -> Iterator[str]:
        snapshot = self._snapshot
        shard = int(snapshot.shards.of_file[i])
        for spec in snapshot.definition.indexes:
            found = snapshot.index_summaries(spec, np.array([shard]))[0]
            if found is None or (spec, shard) in self._right:
                continue
            if not is_right(self._metadata, spec, found, file, table):
                yield f"the summary of {spec} differs from the rows"

    def _fresh_statistics(self, file: Segment, table: pa.Table) -> pa.Table | None:
        """Return what a writer says of the rows of ``file``, which are ``table`` now: in the
        columns that it had then.
        """
        definition = self._snapshot.definition
        then = definition.at(file.seq)
        if then is not definition:
            table = read_columns(self._metadata.storage, then, file, then.schema)
        return summarize_columns(then, Options(), table, file.row_groups)


def _same(a: KeyMap, b: KeyMap) -> bool:
    if (a.ordering is None) != (b.ordering is None):
        return False
    pairs: list[tuple[Any, Any]] = [(a.hi, b.hi), (a.lo, b.lo), (a.position, b.position)]
    if a.ordering is not None and b.ordering is not None:
        pairs.append((a.ordering, b.ordering))
    return all(np.array_equal(x, y) for x, y in pairs)


def _check_keys(metadata: Metadata, snapshot: Snapshot, done: list[_Checked]) -> Iterator[Problem]:
    """Every key is live once in its scope, or, where keys repeat, in its file group; and the key
    index finds it.
    """
    if not done or not sum(len(c.hashes) for c in done):
        return
    hashes = KeyHashes(
        np.concatenate([c.hashes.hi for c in done]), np.concatenate([c.hashes.lo for c in done])
    )
    groups = snapshot.file_groups
    group = np.repeat(groups.of_files(snapshot.live_numbers), [len(c.hashes) for c in done])
    paths_of = groups.partitions(np.arange(groups.count)).tolist()
    names = {name: i for i, name in enumerate(dict.fromkeys(paths_of))}
    codes = np.array([names[p] for p in paths_of], dtype=np.int64)
    scope = np.zeros(len(group), np.int64) if snapshot.definition.is_global else codes[group]
    if snapshot.definition.keys_repeat:
        scope = group
    order = np.lexsort((scope, hashes.lo, hashes.hi))
    hi, lo, part = hashes.hi[order], hashes.lo[order], scope[order]
    twice = np.flatnonzero((hi[1:] == hi[:-1]) & (lo[1:] == lo[:-1]) & (part[1:] == part[:-1]))
    if len(twice):
        yield from _repeated(
            metadata, snapshot, [len(c.hashes) for c in done], order[twice], order[twice + 1]
        )
    problem = metadata.key_index_problem(snapshot)
    if problem is not None:
        yield Problem(
            metadata.storage.url,
            -1,
            f"whether the key index finds the keys cannot be checked: {problem.message}",
            Kind.KEY_INDEX,
        )
        return
    keys = pa.concat_arrays([c.asked for c in done if c.asked is not None])
    try:
        key, found = propose(metadata, snapshot, keys, hashes).pairs(len(hashes))
    except (Corrupt, Invalid) as error:
        yield Problem(
            metadata.storage.url, -1, f"the key index cannot be read: {error}", Kind.KEY_INDEX
        )
        return
    hit = np.zeros(len(keys), np.bool_)
    hit[key[group[key] == found]] = True
    if not bool(hit.all()):
        missed = f"the key index misses {int((~hit).sum())} live keys"
        yield Problem(metadata.storage.url, -1, missed, Kind.KEY_INDEX)
    home = homes(metadata, snapshot, keys, np.array(paths_of, object)[group])
    strays = 0 if home is None else int((bucket_names(home) != _prefixes(snapshot)[group]).sum())
    if strays:
        yield Problem(
            metadata.storage.url, -1, f"{strays} keys stand in a file group of another bucket"
        )


def _repeated(
    metadata: Metadata, snapshot: Snapshot, rows: list[int], some: Int64Array, others: Int64Array
) -> Iterator[Problem]:
    """Yield what is wrong with pairs of live rows, ``some`` and ``others``, that have one hash: one
    key twice, or two keys.

    Rows are counted through the live files, which have ``rows`` of them.  Reads the keys of the
    files that they are in.
    """
    ends = np.cumsum(rows)
    asked = np.unique(np.append(some, others))
    of_file = np.searchsorted(ends, asked, "right")
    parts = []
    for i in np.unique(of_file).tolist():
        number = int(snapshot.live_numbers[i])
        file, schema = snapshot.segment(number), with_meta(snapshot.definition.schema)
        columns = pa.schema([schema.field(RECORD_KEY)])
        keys = read_columns(metadata.storage, snapshot.definition, file, columns)[
            RECORD_KEY
        ].combine_chunks()
        mask = live_mask(len(keys), snapshot.vector(number))
        keys = keys if mask is None else keys.filter(pa.array(mask))
        parts.append(keys.take(pa.array(asked[of_file == i] - (ends[i] - rows[i]))))
    texts = pa.concat_arrays(parts)
    here, there = (texts.take(pa.array(np.searchsorted(asked, side))) for side in (some, others))
    same = flags(pc.equal(here, there))
    named = [key.as_py() for key in here.filter(pa.array(same))[:_NAMED]]
    if named:
        text = f"{int(same.sum())} keys are live more than once in their scope, such as {named!r}"
        yield Problem(metadata.storage.url, -1, text)
    for at in np.flatnonzero(~same)[:_NAMED].tolist():
        text = (
            f"the keys {here[at].as_py()!r} and {there[at].as_py()!r} have one hash; rekey() tells"
            " them apart"
        )
        yield Problem(metadata.storage.url, -1, text)


def _prefixes(snapshot: Snapshot) -> npt.NDArray[np.object_]:
    """Return with which eight characters the name of each file group begins -> object[groups]."""
    groups = snapshot.file_groups
    return np.array([name[:8] for name in groups.names(range(groups.count))], object)
