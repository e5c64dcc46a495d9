"""Rows of a batch grouped by file group or partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from indexes.arrays import stable_order
from indexes.base import Int64Array, KeyHashes
from mdt.commit.conflicts import TABLE
from mdt.hudi.record_keys import sort_permutation
from mdt.metadata.keys.locate import Located
from mdt.write.assign import NEW, Assignment, Place
from mdt.write.normalize import Batch
from mdt.write.slices import RowDispositions, Slice, slice_of

_MANY_SLICES = 8
_GATHERED_BYTES_MAX = 64 << 20
"""Maximum bytes of a batch whose rows are gathered for many slices at a time. They are then in
memory twice.
"""
_NO_ROWS: Int64Array = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class GroupedRows:
    """Rows of ``batch`` by their target. See :class:`mdt.write.slices.RowDispositions`.

    Attributes:
        located: Locations of older rows with the same keys.
        updates: File group -> rows that replace rows there.
        deletes: File group -> rows whose keys are deleted there.
        returns: File group -> rows with re-inserted keys.
        inserts: Place -> rows, in storage order.
    """

    batch: Batch
    located: Located
    updates: Mapping[int, Int64Array] = field(default_factory=dict)
    deletes: Mapping[int, Int64Array] = field(default_factory=dict)
    returns: Mapping[int, Int64Array] = field(default_factory=dict)
    inserts: Mapping[Place, Int64Array] = field(default_factory=dict)

    def dispositions(self, assignment: Assignment) -> RowDispositions:
        """Return the rows of an assignment by their effect."""
        inserts = self.inserts.get(assignment.place, _NO_ROWS)[
            assignment.inserts.start : assignment.inserts.stop
        ]
        updates, returns, deletes = (
            rows_of_group.get(assignment.group, _NO_ROWS)
            for rows_of_group in (self.updates, self.returns, self.deletes)
        )
        return RowDispositions(updates, inserts, returns, deletes)

    def slices_of(self, assignments: Sequence[Assignment]) -> Callable[[Assignment], Slice]:
        """Return a function that gathers the rows of an assignment in ``assignments``.

        The rows of many small assignments are gathered in a single batch, which takes as long as
        for one of them.
        """
        batch = self.batch if len(assignments) < 2 else self.batch.in_one_chunk()
        if len(assignments) < _MANY_SLICES or batch.table.nbytes > _GATHERED_BYTES_MAX:
            return lambda assignment: slice_of(
                batch, self.located, assignment, self.dispositions(assignment)
            )
        order = np.concatenate([self.dispositions(assignment).new for assignment in assignments])
        gathered, place = batch.rows(order), np.empty(len(batch), np.int64)
        place[order] = np.arange(len(order))
        return lambda assignment: slice_of(
            batch, self.located, assignment, self.dispositions(assignment), (gathered, place)
        )


def by_value(rows: Int64Array, values: Int64Array) -> dict[int, Int64Array]:
    """Return value -> the ``rows`` with this value, in order.

    Args:
        values: int64[len(rows)], the values.
    """
    if not len(rows):
        return {}
    if values.min() == values.max():
        return {int(values[0]): rows}
    order = stable_order(values)
    group_values = values[order]
    first = np.flatnonzero(np.diff(group_values)) + 1
    return dict(
        zip(
            [int(group_values[0]), *group_values[first].tolist()],
            np.split(rows[order], first),
            strict=True,
        )
    )


def by_partition(batch: Batch, rows: Int64Array) -> dict[int, Int64Array]:
    """Return partition number in ``batch`` -> the ``rows`` in this partition, in order."""
    if len(batch.partitions) == 1 and len(rows):
        return {0: rows}
    return by_value(rows, batch.partition[rows])


def in_key_order(keys: pa.Array, rows: Int64Array) -> Int64Array:
    """Return ``rows`` sorted by key, so that files have narrow key ranges.

    Args:
        keys: Keys as in ``Batch.sort_keys``.
    """
    if len(rows) < 2:
        return rows
    if len(rows) != len(keys):
        keys = keys.take(pa.array(rows))
    order = sort_permutation(keys)
    if order is None:
        return rows
    return rows[order]


def inserts_of(
    batch: Batch, rows: Int64Array, homes: Int64Array | None = None
) -> dict[Place, Int64Array]:
    """Return place -> the ``rows`` that belong there, in storage order.

    Args:
        homes: int64[len(batch)], required file group or bucket of each key. None if keys can go
            anywhere in their partitions.
    """
    parts = by_partition(batch, rows)
    return {
        (batch.partitions[code], home): in_key_order(batch.sort_keys, rows_of_home)
        for code, part in parts.items()
        for home, rows_of_home in (
            ((NEW, part),) if homes is None else by_value(part, homes[part]).items()
        )
    }


def absent_keys(batch: Batch, rows: Int64Array, is_global: bool) -> dict[str, KeyHashes]:
    """Return partition path (TABLE under table scope) -> hashes of ``rows``, in the form of a
    footprint.
    """
    if not len(rows):
        return {}
    parts = {TABLE: rows}
    if not is_global:
        parts = {batch.partitions[code]: part for code, part in by_partition(batch, rows).items()}
    return {
        path: batch.hashes if len(part) == len(batch) else batch.hashes.take(part)
        for path, part in parts.items()
    }
