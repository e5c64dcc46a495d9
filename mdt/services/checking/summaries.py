"""Check and rebuild the summaries of skipping indexes, which are derived from live rows.

A summary is recomputed and compared byte by byte. If files have left its shard since it was built,
the bytes differ. Then the summary is queried for values of each remaining file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from indexes.base import SkippingIndex, Summary, whole
from indexes.predicate import Leaf, matches
from mdt.errors import Corrupt, Invalid, Unsupported
from mdt.metadata.files import paths
from mdt.metadata.files.file_group import SummaryRef
from mdt.metadata.skipping_indexes import Parts, index_of, top_levels
from mdt.metadata.statistics.index_summaries import Parsed
from mdt.parquet.segment import Segment
from mdt.plan.shard_rows import cut
from mdt.services.checking.attachments import read_verified
from mdt.services.checking.problems import Kind, Problem
from mdt.services.checking.state import Repair, TableState
from mdt.services.indexing.index_builder import UncoveredShard, build, summaries_of
from mdt.write.summarize import summarize_indexes

VALUES_TESTED_MAX = 30
"""Distinct values of a file, evenly spaced, for which a summary is queried. A query takes about 50
µs.
"""
_EXACT = ("bitmap/", "text/")
"""Indexes whose answers depend only on the rows of the query."""
_COLUMN = "values"
_Wrong = tuple[tuple[str, int], SummaryRef, Problem]
"""((specification, shard number), summary, problem)."""


def check(state: TableState) -> Iterator[Problem]:
    """Compare the summaries of every live shard with its rows."""
    for _, _, problem in _wrong_summaries(state):
        yield problem


def _wrong_summaries(state: TableState) -> Iterator[_Wrong]:
    """Yield summaries that are damaged or differ from the rows."""
    with ThreadPoolExecutor(pa.cpu_count()) as pool:
        shards = state.snapshot.live_shards.tolist()
        for problems in pool.map(partial(_wrong_in_shard, state), shards):
            yield from problems


def _wrong_in_shard(state: TableState, shard: int) -> list[_Wrong]:
    snapshot, number = state.snapshot, int(state.snapshot.shards.number[shard])
    wrong, summaries, stored = list[_Wrong](), dict[str, SummaryRef](), dict[str, bytes]()
    for spec in state.definition.indexes:
        (summary,) = snapshot.index_summaries(spec, np.array([shard]))
        if summary is not None and isinstance(index_of(spec)[1], SkippingIndex):
            summaries[spec] = summary
            try:
                stored[spec] = _bytes_of(state, summary)
            except Corrupt as error:
                problem = Problem.from_error(error, kind=Kind.ATTACHMENT)
                wrong.append(((spec, number), summary, problem))
    if not stored:
        return wrong
    files = snapshot.shards.members(shard)
    files = files[snapshot.rows[files] > 0]
    expected = dict[str, bytes]()
    with suppress(Corrupt, Invalid):  # then files are compared one by one
        uncovered = UncoveredShard(shard, tuple(files.tolist()), tuple(stored))
        expected = summaries_of(state.metadata, snapshot, uncovered)
    doubtful = {spec: Parsed(data) for spec, data in stored.items() if expected.get(spec) != data}
    columns = top_levels(state.definition.schema, doubtful).names
    for segment in snapshot.files.segments(files) if doubtful else ():
        with suppress(Corrupt, Invalid):  # reported by the check of the file
            table = state.read(segment, *columns)
            for spec, joint in doubtful.items():
                if not _agrees_with_file(spec, joint, segment, table):
                    text = f"the summary of {spec} differs from the rows"
                    problem = Problem(segment.path, text, Kind.SUMMARY)
                    wrong.append(((spec, number), summaries[spec], problem))
    return wrong


def _bytes_of(state: TableState, summary: SummaryRef) -> bytes:
    return summary if isinstance(summary, bytes) else read_verified(state.storage, summary)


def _agrees_with_file(spec: str, shard_summary: Summary, segment: Segment, table: pa.Table) -> bool:
    """Return True if a summary agrees with the rows of one file in its shard.

    An index that fails on the rows proves nothing, so True is returned.
    """
    index, first = index_of(spec)[1], segment.first_row
    assert isinstance(index, SkippingIndex), "others are not checked"
    indexed = summarize_indexes([spec], table, segment.row_groups)
    values, parts = indexed.columns.get(spec), indexed.parts.get(spec)
    try:
        if values is not None:
            return agrees(index, shard_summary, first, Parsed(index.summarize(values)), values)
        if parts is not None:
            stored = Parts(shard_summary).within(first, first + segment.rows, len(parts))
            pairs = zip(stored, parts, strict=True)
            return all(bytes(whole(part)) == expected for part, (_, expected) in pairs)
    except ValueError:
        return False
    except Exception:  # noqa: BLE001 - foreign code may fail in any way, which proves nothing
        return True
    return True


def agrees(
    index: SkippingIndex,
    shard_summary: Summary,
    first: int,
    file_summary: Summary,
    values: pa.Array,
) -> bool:
    """Return True if the summary of a shard finds the same rows of a file as ``file_summary``.

    Args:
        shard_summary: Summary of the shard.
        first: Position of the file's first row in the shard.
        alone: Summary of the file only.
        values: Values of the file's rows.

    An index from another package may find more rows, but must find all matching rows.
    """
    for leaf in _leaves(index, values):
        try:
            rows, expected = index.rows([shard_summary, file_summary], leaf, values.type)
        except ValueError:
            return False
        if rows is None:
            continue
        if rows:
            rows = next(cut(rows, np.array([first]), np.array([len(values)])))
        if expected is not None and index.name.startswith(_EXACT):
            if rows != expected:
                return False
        else:
            is_match = matches(leaf, pa.table({_COLUMN: values})).to_numpy()
            if BitMap(np.flatnonzero(is_match).astype(np.uint32)) - rows:
                return False
    return True


def _leaves(index: SkippingIndex, values: pa.Array) -> Iterator[Leaf]:
    """Yield predicates that ``index`` can answer: on words or else on values, and on null."""
    distinct = pc.unique(values).drop_null()
    step = max(1, -(-len(distinct) // VALUES_TESTED_MAX))
    sample = distinct.take(pa.array(np.arange(0, len(distinct), step))).to_pylist()
    for operator in ("match", "="):
        count = 0
        for value in sample:
            leaf = Leaf(_COLUMN, operator, value)
            is_possible = operator == "=" or isinstance(value, str)
            if is_possible and index.can_test(leaf, values.type):
                count += 1
                yield leaf
        if count:
            break
    leaf = Leaf(_COLUMN, "is null", None)
    if index.can_test(leaf, values.type):
        yield leaf


def rebuild(repair: Repair, problems: Sequence[Problem]) -> None:
    """Rebuild and commit summaries that are damaged or differ from the rows."""
    state = repair.state()
    wrong, specs = dict[tuple[str, int], SummaryRef](), set[str]()
    for key, summary, _ in _wrong_summaries(state):
        wrong[key] = summary
        specs.add(key[0])
    if wrong:
        with suppress(Unsupported):  # if an index fails, the shard stays uncovered
            result = build(repair.metadata, state.options, sorted(specs), distrusted=wrong)
            text = f"{result.summaries} summaries of {', '.join(sorted(specs))} rebuilt"
            repair.note(paths.ATTACHMENTS_DIR, text, Kind.SUMMARY)
