"""What must hold of every set of changes that the model reads."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from reader import bag
from strategies import Shape

from mdt.changes import ChangeStream


def check_kinds(shape: Shape, changes: pa.Table, mode: str, before: Collection[Any]) -> None:
    """An update has a row before and one after; between two states a key is told once.  ``before``: identities of the older state."""
    told: dict[Any, list[str]] = {}
    for change in changes.to_pylist():
        scope = (shape.identity(change), change["_seq"] if mode == "all" else 0)
        told.setdefault(scope, []).append(change["_change"])
    assert all(kinds in (["insert"], ["delete"], ["update_before", "update_after"]) for kinds in told.values()), told
    if mode == "net":
        assert all((key in before) == (kinds != ["insert"]) for (key, _), kinds in told.items())


def check_without_before(shape: Shape, stream: ChangeStream, changes: pa.Table, mode: str) -> None:
    """Without rows before updates, everything else is the same; net, what was deleted is as it was at last."""
    found = stream.to_arrow()
    expected = changes.filter(pc.not_equal(changes["_change"], "update_before"))
    if mode == "net":
        named = ["_change", "_seq", *shape.key, *shape.partition_by]
        assert bag(found.select(named)) == bag(expected.select(named))
        found, expected = (t.filter(pc.not_equal(t["_change"], "delete")) for t in (found, expected))
    assert bag(found) == bag(expected), f"{mode}, without before"
