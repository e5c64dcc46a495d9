"""Parts of the key index: what the key index knows of the keys that some commits inserted."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes.arrays import numbers
from mdt.metadata.files.file_group import place_fields, place_in
from mdt.metadata.log.checkpoint_columns import NUMBERED_KEY_PARTS, Columns
from mdt.metadata.log.commit_log import KEY_PARTS
from mdt.metadata.snapshot.file_groups import Groups
from mdt.stores.object_range import ObjectRange

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A part of a key index: the index that wrote it, the file groups it numbers, and its bytes or
    where they stand.

    A key part of a commit names its ``groups``; one of a checkpoint has their ``numbers`` there
    instead, -1 for those that are gone.
    """

    index: str
    groups: Sequence[str]
    payload: bytes | None
    stored: ObjectRange | None
    numbers: Int64s | None = None
    _found: list[tuple[Columns, Int64s]] = field(default_factory=list, repr=False, compare=False)

    @property
    def size(self) -> int:
        """Bytes of the key part."""
        if self.payload is not None:
            return len(self.payload)
        return getattr(self.stored, "length", 0)

    def without(
        self, names: AbstractSet[str] = frozenset(), numbers: Int64s | None = None
    ) -> KeyPart | None:
        """Return what this says of other file groups than these: ``names``, or ``numbers`` in the
        checkpoint if it has numbers.

        None if that is nothing.
        """
        if self.numbers is not None:
            left = np.where(
                np.isin(self.numbers, [] if numbers is None else numbers), -1, self.numbers
            )
            return replace(self, numbers=left) if bool((left >= 0).any()) else None
        if names.isdisjoint(self.groups):
            return self
        kept = tuple("" if name in names else name for name in self.groups)
        return replace(self, groups=kept, _found=[]) if any(kept) else None

    def numbers_in(self, groups: Groups) -> Int64s:
        """Return the number of each of the key part's groups, -1 where it is gone -> int64[groups].

        Numbers stay until the metadata are compacted, so what was found once is kept for the
        checkpoint.
        """
        if self.numbers is not None:
            return self.numbers
        for checkpoint, known in self._found:
            if checkpoint is groups.checkpoint:
                return known
        found = groups.number(self.groups)
        self._found.append((groups.checkpoint, found))
        return found


def key_parts_of(table: pa.Table) -> tuple[KeyPart, ...]:
    """Return the rows of a table with the schema KEY_PARTS as key parts."""
    return tuple(
        KeyPart(row["index"], tuple(row["groups"]), row["payload"], place_in(row))
        for row in table.to_pylist()
    )


def key_parts_table(key_parts: Sequence[KeyPart]) -> pa.Table:
    """Return ``key_parts`` as a table with the schema KEY_PARTS."""
    return pa.Table.from_pylist(
        [{**_row(key_part), "groups": list(key_part.groups)} for key_part in key_parts],
        schema=KEY_PARTS,
    )


def _row(key_part: KeyPart) -> dict[str, Any]:
    place = place_fields(key_part.stored)
    return {"index": key_part.index, "payload": key_part.payload, **place}


def numbered_table(key_parts: Sequence[tuple[KeyPart, Int64s]], uncovered: Int64s) -> pa.Table:
    """Return key parts with the numbers of their groups, and the groups that no key part covers,
    schema NUMBERED_KEY_PARTS.
    """
    rest = KeyPart("", (), None, None)
    rows = [*key_parts, (rest, uncovered)]
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
    """Return the key parts of a checkpoint, and the numbers of the groups that they do not cover;
    both come from one page.
    """
    found: tuple[tuple[KeyPart, ...], list[int]] = checkpoint.memo(
        "key_parts", lambda: _of_checkpoint(checkpoint)
    )
    return found


def _of_checkpoint(checkpoint: Columns) -> tuple[tuple[KeyPart, ...], list[int]]:
    if "key_parts" not in checkpoint:
        return (), []
    table = checkpoint.table("key_parts").combine_chunks()
    key_parts, uncovered = [], list[int]()
    for i, row in enumerate(table.drop_columns(["groups"]).to_pylist()):
        found = numbers(table["groups"].chunk(0)[i].values).astype(np.int64)
        if row["index"]:
            key_parts.append(KeyPart(row["index"], (), row["payload"], place_in(row), found))
        else:
            uncovered = found.tolist()
    return tuple(key_parts), uncovered


def named(key_part: KeyPart, groups: Groups) -> KeyPart:
    """Return a key part of a checkpoint as one that names its groups."""
    if key_part.numbers is None:
        return key_part
    names = tuple("" if n < 0 else groups.name(n) for n in key_part.numbers.tolist())
    return replace(key_part, groups=names, numbers=None)
