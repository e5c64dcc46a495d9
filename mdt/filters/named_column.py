"""References to columns in places where text would be SQL."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Col:
    """A column, as a value of a merge. Made by :func:`mdt.col`.

    >>> mdt.col("source.fare")
    Col(name='source.fare')
    """

    name: str


def col(name: str) -> Col:
    """Return a reference to the column ``name``, as a value that a merge sets.

    >>> rows = {"id": ["b"], "new_fare": [3.5]}
    >>> clause = t.merge(rows).when_matched()
    >>> clause.update({"fare": mdt.col("source.new_fare")}).execute(dry_run=True).updated
    1
    """
    return Col(name)
