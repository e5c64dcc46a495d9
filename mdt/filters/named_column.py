"""A column by its name, where text would be SQL."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Col:
    """The column ``name``: in a merge ``source.fare`` or ``target.fare``."""

    name: str


def col(name: str) -> Col:
    """Return the column called ``name``, as a value that a merge sets: ``{"fare":
    mdt.col("source.fare")}``.
    """
    return Col(name)
