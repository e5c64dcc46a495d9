"""Key parts: the key index entries of the keys that commits have inserted."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes.arrays import numbers
from mdt.metadata.files.file_group import range_columns, range_from_row
from mdt.metadata.log.checkpoint_columns import NUMBERED_KEY_PARTS, Columns
from mdt.metadata.log.commit_log import KEY_PARTS
from mdt.metadata.snapshot.file_groups import Groups
from mdt.stores.object_range import ObjectRange

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A part of a key index: the index that wrote it, its file groups, and its bytes or their
    location.

    A key part of a commit has the names of its ``groups``.  A key part of a checkpoint has
    ``numbers`` of the checkpoint instead, -1 for groups that no longer exist.
    """

    index: str
    groups: Sequence[str]
    payload: bytes | None
    stored: ObjectRange | None
    numbers: Int64s | None = None
    _found: list[tuple[Columns, Int64s]] = field(default_factory=list, repr=False, compare=False)

    @property
    def size(self) -> int:
        """Size of the key part in bytes."""
        if self.payload is not None:
            return len(self.payload)
        return getattr(self.stored, "length", 0)

    def without(
        self, names: AbstractSet[str] = frozenset(), numbers: Int64s | None = None
    ) -> KeyPart | None:
        """Return the key part without the groups ``names``, or ``numbers`` for a part of a
        checkpoint.

        None if no group remains.
        """
        if self.numbers is not None:
            remaining = np.where(
                np.isin(self.numbers, [] if numbers is None else numbers), -1, self.numbers
            )
            return replace(self, numbers=remaining) if bool((remaining >= 0).any()) else None
        if names.isdisjoint(self.groups):
            return self
        retained = tuple("" if name in names else name for name in self.groups)
        return replace(self, groups=retained, _found=[]) if any(retained) else None

    def numbers_in(self, groups: Groups) -> Int64s:
        """Return the number of each group, -1 if it no longer exists -> int64[groups].

        Cached per checkpoint, since numbers change only with the next compaction.
        """
        if self.numbers is not None:
            return self.numbers
        for checkpoint, cached in self._found:
            if checkpoint is groups.checkpoint:
                return cached
        group_numbers = groups.number(self.groups)
        self._found.append((groups.checkpoint, group_numbers))
        return group_numbers


def key_parts_of(table: pa.Table) -> tuple[KeyPart, ...]:
    """Return the rows of a table with the schema KEY_PARTS as key parts."""
    return tuple(
        KeyPart(row["index"], tuple(row["groups"]), row["payload"], range_from_row(row))
        for row in table.to_pylist()
    )


def key_parts_table(key_parts: Sequence[KeyPart]) -> pa.Table:
    """Return ``key_parts`` as a table with the schema KEY_PARTS."""
    return pa.Table.from_pylist(
        [{**_row(key_part), "groups": list(key_part.groups)} for key_part in key_parts],
        schema=KEY_PARTS,
    )


def _row(key_part: KeyPart) -> dict[str, Any]:
    place = range_columns(key_part.stored)
    return {"index": key_part.index, "payload": key_part.payload, **place}


def numbered_table(key_parts: Sequence[tuple[KeyPart, Int64s]], uncovered: Int64s) -> pa.Table:
    """Return key parts with group numbers, and the uncovered groups, schema NUMBERED_KEY_PARTS."""
    without_part = KeyPart("", (), None, None)
    rows = [*key_parts, (without_part, uncovered)]
    table = pa.Table.from_pylist(
        [{**_row(key_part), "groups": []} for key_part, _ in rows], schema=NUMBERED_KEY_PARTS
    )
    starts = np.concatenate([[0], np.cumsum([len(numbers) for _, numbers in rows])]).astype(
        np.int32
    )
    values = np.concatenate([numbers for _, numbers in rows]).astype(np.int32)
    groups = pa.ListArray.from_arrays(pa.array(starts), pa.array(values))
    return table.set_column(
        table.schema.get_field_index("groups"), NUMBERED_KEY_PARTS.field("groups"), groups
    )


def stored_key_parts(checkpoint: Columns) -> tuple[tuple[KeyPart, ...], list[int]]:
    """Return the key parts of a checkpoint, and the numbers of the groups without coverage.  One
    page.
    """
    stored: tuple[tuple[KeyPart, ...], list[int]] = checkpoint.memo(
        "key_parts", lambda: _read_stored(checkpoint)
    )
    return stored


def _read_stored(checkpoint: Columns) -> tuple[tuple[KeyPart, ...], list[int]]:
    table = checkpoint.table("key_parts").combine_chunks()
    key_parts, uncovered = [], list[int]()
    for i, row in enumerate(table.drop_columns(["groups"]).to_pylist()):
        groups = numbers(table["groups"].chunk(0)[i].values).astype(np.int64)
        if row["index"]:
            key_parts.append(KeyPart(row["index"], (), row["payload"], range_from_row(row), groups))
        else:
            uncovered = groups.tolist()
    return tuple(key_parts), uncovered
