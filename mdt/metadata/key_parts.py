"""Key index units: what the key index knows of the keys that some commits inserted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes.buffers import numbers
from mdt.metadata.columns import NUMBERED_UNITS, Columns
from mdt.metadata.commit_log import UNITS
from mdt.metadata.file_groups import Groups
from mdt.stores.blob import Blob

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Unit:
    """A key index unit: the index that wrote it, the file groups it numbers, and its bytes or where they stand.

    A unit of a commit names its ``groups``; one of a base has their ``numbers`` there instead, -1 for those that are gone.
    """

    index: str
    groups: Sequence[str]
    payload: bytes | None
    blob: Blob | None
    numbers: Int64s | None = None
    _found: list[tuple[Columns, Int64s]] = field(default_factory=list, repr=False, compare=False)

    @property
    def size(self) -> int:
        """Bytes of the unit."""
        return len(self.payload) if self.payload is not None else (self.blob.length if self.blob else 0)

    def numbers_in(self, groups: Groups) -> Int64s:
        """Return the number of each of the unit's groups, -1 where it is gone -> int64[groups].

        Numbers stay until the metadata are compacted, so what was found once is kept for the base.
        """
        if self.numbers is not None:
            return self.numbers
        for base, known in self._found:
            if base is groups.base:
                return known
        found = groups.number(self.groups)
        self._found.append((groups.base, found))
        return found


def units_of(table: pa.Table) -> tuple[Unit, ...]:
    """Return the rows of a table with the schema UNITS as units."""
    return tuple(Unit(row["index"], tuple(row["groups"]), row["payload"], _blob(row)) for row in table.to_pylist())


def _blob(row: dict[str, Any]) -> Blob | None:
    return None if row["path"] is None else Blob(row["path"], row["offset"], row["length"], row["crc"])


def units_table(units: Sequence[Unit]) -> pa.Table:
    """Return ``units`` as a table with the schema UNITS."""
    return pa.Table.from_pylist([{**_row(unit), "groups": list(unit.groups)} for unit in units], schema=UNITS)


def _row(unit: Unit) -> dict[str, Any]:
    blob = {name: getattr(unit.blob, name) if unit.blob else None for name in ("path", "offset", "length", "crc")}
    return {"index": unit.index, "payload": unit.payload, **blob}


def numbered_table(units: Sequence[tuple[Unit, Int64s]], uncovered: Int64s) -> pa.Table:
    """Return units with the numbers of their groups, and the groups that no unit covers, schema NUMBERED_UNITS."""
    rest = Unit("", (), None, None)
    rows = [*units, (rest, uncovered)]
    table = pa.Table.from_pylist([{**_row(unit), "groups": []} for unit, _ in rows], schema=NUMBERED_UNITS)
    starts = np.concatenate([[0], np.cumsum([len(numbers) for _, numbers in rows])]).astype(np.int32)
    values = np.concatenate([numbers for _, numbers in rows]).astype(np.int32)
    groups = pa.ListArray.from_arrays(pa.array(starts), pa.array(values))
    return table.set_column(table.schema.get_field_index("groups"), NUMBERED_UNITS.field("groups"), groups)


def stored_units(base: Columns) -> tuple[tuple[Unit, ...], list[int]]:
    """Return the units of a base, and the numbers of the groups that they do not cover; both come from one page."""
    found: tuple[tuple[Unit, ...], list[int]] = base.derived("units", lambda: _stored(base))
    return found


def _stored(base: Columns) -> tuple[tuple[Unit, ...], list[int]]:
    if "units" not in base:
        return (), []
    table = base.table("units").combine_chunks()
    units, uncovered = [], list[int]()
    for i, row in enumerate(table.drop_columns(["groups"]).to_pylist()):
        found = numbers(table["groups"].chunk(0)[i].values).astype(np.int64)
        if row["index"]:
            units.append(Unit(row["index"], (), row["payload"], _blob(row), found))
        else:
            uncovered = found.tolist()
    return tuple(units), uncovered


def named(unit: Unit, groups: Groups) -> Unit:
    """Return a unit of a base as one that names its groups."""
    if unit.numbers is None:
        return unit
    names = tuple("" if n < 0 else groups.name(n) for n in unit.numbers.tolist())
    return replace(unit, groups=names, numbers=None)
