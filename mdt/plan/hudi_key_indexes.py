"""Pruning of a table of other writers by Hudi's own indexes of record keys.

A predicate that fixes record keys is looked up in the record index. A predicate that fixes the
values of a column with a secondary index leads to record keys, and then to the record index. All
files of the file groups of the keys are read. Without a record index, the Bloom filters in the
footers of large base files are tested.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes import hudi_bloom
from indexes.arrays import flags
from indexes.predicate import Leaf, Predicate
from mdt.errors import Corrupt, Invalid, Unsupported
from mdt.hudi.avro_schema import RECORD_KEY
from mdt.hudi.base_file import FILTER, FILTER_TYPE
from mdt.hudi.read.key_indexes import RECORD_INDEX, KeyIndexes
from mdt.hudi.record_keys import record_keys
from mdt.metadata.files.file_group import BASE
from mdt.metadata.metadata import Metadata
from mdt.parquet.segment import Segment
from mdt.parquet.segment_rows import open_segment
from mdt.plan.plan_state import IndexNote, PlanState
from mdt.plan.position_search import conjuncts_of
from mdt.schema.definition import MERGE_ON_READ, TableDefinition

FILTERED_ROWS_MIN = 20_000
"""Rows from which a Bloom filter is smaller than the keys. Hudi's has 431 KB by default."""
_FILTERED_KEYS_MAX = 1_000
"""Keys that are tested with Bloom filters. Among more, some are in each file."""
_VALUES_MAX = 1_000
"""Values that are looked up in a secondary index. Each is a look-up of its own."""


def by_hudi_indexes(state: PlanState, literals: pa.Table | None, keys_max: int) -> None:
    """Prune the files that cannot have the record keys, or the indexed values, of the predicate.

    Args:
        literals: The only record keys that can match, as columns of the key fields, or None.
        keys_max: Do not look up more keys.
    """
    left_out = state.metadata.storage.left_out
    if left_out:
        total = left_out + len(state.snapshot)
        detail = "bounds in Hudi's metadata table; only the other files were opened"
        state.notes.append(IndexNote("hudi_column_stats", True, total, left_out, "used", detail))
    search = _Search(state)
    for test in conjuncts_of(state.predicate):
        values = _literals(test)
        if isinstance(test, Leaf) and 0 < len(values) <= keys_max:
            if test.column == RECORD_KEY:
                search.by_keys([value for value in values if isinstance(value, str)])
            else:
                search.by_values(test.column, values)
    if literals is None or not len(literals):
        return  # null is a part of keys of several fields, and has a text of its own
    texts = None
    if state.metadata.storage.computes_keys:
        texts = _key_texts(literals, state.snapshot.definition.key)
    if texts is not None:
        search.by_keys(texts)


class _Search:
    """Looks record keys up for a plan."""

    def __init__(self, state: PlanState) -> None:
        self._state = state
        self._indexes = state.metadata.storage.key_indexes(state.snapshot.seq)

    def by_keys(self, keys: Sequence[str]) -> None:
        """Prune by record keys: keys of the table and others, if the form of keys is not known."""
        if self._indexes is None or not self._by_record_index(self._indexes, keys, RECORD_INDEX):
            self._by_filters(keys)

    def _by_filters(self, keys: Sequence[str]) -> None:
        """Prune by the Bloom filters in the footers of large base files."""
        state, snapshot = self._state, self._state.snapshot
        is_large = (snapshot.kind == BASE) & (snapshot.rows >= FILTERED_ROWS_MIN)
        numbers = np.flatnonzero(state.maybe & is_large).tolist()
        if not numbers or len(keys) > _FILTERED_KEYS_MAX:
            return
        texts, verdict = pa.array(keys, pa.string()), np.ones(snapshot.numbered, np.bool_)
        segments = map(snapshot.segment, numbers)
        tests = (partial(_may_have, state.metadata, segment, texts) for segment in segments)
        verdict[numbers] = list(state.metadata.storage.each(tests))
        detail = "Bloom filters of record keys in footers"
        state.note("bloom_filter", verdict, len(numbers), detail)

    def _by_record_index(self, indexes: KeyIndexes, keys: Collection[str], name: str) -> bool:
        """Prune by record keys. Return False if the record index cannot be used.

        Args:
            name: The index that led to the keys.
        """
        state, snapshot = self._state, self._state.snapshot
        if not self._is_usable(indexes, RECORD_INDEX):
            return False
        live = snapshot.live_numbers
        files = snapshot.files.take(["partition", "file_id"], live)
        remaining = files["partition"].filter(pa.array(state.maybe[live]))
        try:
            found = indexes.locate(keys, remaining.unique().to_pylist())
        except (Corrupt, Unsupported) as error:
            self._give_up(indexes, RECORD_INDEX, str(error))
            return False
        groups, places = _groups(files), _groups(found)
        if not pc.all(pc.is_in(places, groups), min_count=0).as_py():
            problem = "it has keys in file groups that do not exist"
            self._give_up(indexes, RECORD_INDEX, problem)
            return False
        if _may_lose_keys(snapshot.definition) and len(found) < len({*keys}):
            state.unused(name, "not_complete", "it lacks a key, which Hudi may have lost")
            return False
        verdict = np.zeros(snapshot.numbered, np.bool_)
        verdict[live[flags(pc.is_in(groups, places))]] = True
        detail = f"rows of the filter: {len(found):,}, in file groups: {len(places.unique()):,}"
        state.note(name, verdict, len(snapshot), detail)
        return True

    def by_values(self, column: str, values: Sequence[object]) -> None:
        """Prune by the values of a column, if it has a secondary index."""
        state, indexes = self._state, self._indexes
        if indexes is None or column not in indexes.secondary or len(values) > _VALUES_MAX:
            return
        index = indexes.secondary[column]
        if not self._is_usable(indexes, index.name):
            return
        type = state.snapshot.definition.schema.field(column).type
        try:
            keys = indexes.record_keys(index, pa.array(values, type))
        except Corrupt as error:
            self._give_up(indexes, index.name, str(error))
        except Unsupported as error:
            state.unused(index.name, "not_usable", str(error))
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            state.unused(index.name, "not_usable", f"a value of the filter is not a {type}")
        else:
            self._by_record_index(indexes, keys, index.name)

    def _is_usable(self, indexes: KeyIndexes, name: str) -> bool:
        """Return True if an index has every row of the table, and each once."""
        state = self._state
        problem = indexes.problem(name)
        if problem:
            state.unused(name, "not_usable", problem)
            return False
        snapshot = state.snapshot
        rows = int(snapshot.live_rows.sum())
        try:
            count = indexes.count(name)
        except (Corrupt, Unsupported) as error:
            self._give_up(indexes, name, str(error))
            return False
        if count != rows:
            state.unused(name, "not_complete", f"it has {count:,} records for {rows:,} rows")
        return count == rows

    def _give_up(self, indexes: KeyIndexes, name: str, problem: str) -> None:
        indexes.give_up(name, problem)
        self._state.unused(name, "not_usable", problem)


def _may_lose_keys(definition: TableDefinition) -> bool:
    """Return True if Hudi's writers can have lost keys of a table from its record index, and left
    others there, so that the number of records is right.

    Hudi 1.2 does both in version 6 if a key is deleted and inserted again in log files, and the
    writers find rows by another index.
    """
    return definition.hudi_version < 8 and definition.table_type == MERGE_ON_READ


def _may_have(metadata: Metadata, segment: Segment, keys: pa.Array) -> bool:
    """Return False if the Bloom filter of a file proves that it has none of ``keys``."""
    try:
        parquet = open_segment(metadata.storage, segment, footers=metadata.objects.footers)
        texts = parquet.metadata.metadata or {}
        kind = texts.get(FILTER_TYPE.encode(), b"").decode("ascii", "replace")
        filter = texts.get(FILTER.encode())
        return filter is None or bool(hudi_bloom.may_contain(filter, kind, keys).any())
    except (Corrupt, ValueError):  # an unknown kind of filter
        return True


def _groups(places: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(places["partition"], places["file_id"], "/")


def _literals(test: Predicate) -> Sequence[object]:
    """Return the only values that match a test, or nothing if others may."""
    if not isinstance(test, Leaf):
        return []
    if test.op in ("=", "<=>"):
        return [test.value]
    return test.value if test.op == "in" and isinstance(test.value, tuple) else []


def _key_texts(literals: pa.Table, fields: Sequence[str]) -> list[str] | None:
    """Return the texts of record keys, or None if Hudi may have other texts of such values.

    Key generators for several fields write a single field as ``1`` or as ``id:1``. Both are
    returned.
    """
    for type in literals.schema.types:
        if not (pa.types.is_string(type) or pa.types.is_integer(type)):
            return None
    if any(pc.any(pc.equal(column.cast(pa.string()), "")).as_py() for column in literals.columns):
        return None
    try:
        texts: list[str] = record_keys(literals, fields).to_pylist()
    except Invalid:
        return None
    if len(fields) == 1:
        texts += [f"{fields[0]}:{text}" for text in texts]
    return texts
