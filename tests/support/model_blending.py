"""The rule of the model that upserts parts of rows, and merges columns."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from counting import count
from hypothesis import strategies as st
from hypothesis.stateful import rule
from model_overwriting import OverwritingRules
from strategies import Row

import mdt
from mdt.errors import Invalid

Merge = Callable[[Any, Any], Any]


def _place(value: Any) -> Any:
    """Return a value by which values stand in Spark's order."""
    if isinstance(value, float):
        return math.isnan(value), 0.0 if math.isnan(value) else value
    return value


def _larger(older: Any, newer: Any) -> Any:
    if older is None or newer is None:
        return older if newer is None else newer
    return older if _place(older) > _place(newer) else newer


def _smaller(older: Any, newer: Any) -> Any:
    if older is None or newer is None:
        return older if newer is None else newer
    return older if _place(older) < _place(newer) else newer


def _known(older: Any, newer: Any) -> Any:
    return older if newer is None else newer


def _sum(older: Any, newer: Any) -> Any:
    return newer if older is None else older if newer is None else older + newer


def _oldest(older: Any, newer: Any) -> Any:
    """A merger of somebody's own: what was there first stays, null or not."""
    return older


MERGERS: dict[str, dict[str, tuple[Any, Merge]]] = {
    "x": {"max": ("max", _larger), "min": ("min", _smaller), "sum": ("sum", _sum)},
    "note": {"coalesce": ("coalesce", _known), "max": ("max", _larger), "own": (_oldest, _oldest)},
    "day": {"min": ("min", _smaller)},
}
"""Column -> name -> what a call takes, and what it does to values of Python."""


class BlendingRules(OverwritingRules):
    """Partial upserts and mergers, for the machines that have whole upserts."""

    @rule(data=st.data(), partial=st.booleans())
    def upsert_with_what_was_there(self, data: st.DataObject, partial: bool) -> None:
        batch = data.draw(self._rows(max_size=8))
        if self.model and data.draw(st.booleans(), label="known"):
            known = data.draw(st.lists(st.sampled_from(list(self.model.values())), max_size=6))
            fresh = data.draw(self._rows(min_size=len(known), max_size=len(known)))
            names = {*self.shape.key, *self.shape.partition_by}
            batch += [
                new | {name: old[name] for name in names}
                for old, new in zip(known, fresh, strict=True)
            ]
        needed = {
            *self.shape.key,
            *(self.shape.partition_by if self.shape.scope == "partition" else ()),
        }
        free = [name for name in self.schema.names if name not in needed]
        missing = (
            set(data.draw(st.lists(st.sampled_from(free), min_size=1, unique=True)))
            if partial
            else set[str]()
        )
        mergers = self._mergers(data, partial)
        writer, rows = self._writer(data), self._arrow(batch).drop_columns(sorted(missing))
        after = self._blended(
            batch,
            missing,
            {name: merge for name, (_, merge) in mergers.items() if name not in missing},
        )
        say = {name: given for name, (given, _) in mergers.items()}
        if after is None:
            with pytest.raises(Invalid, match="the ordering field is null"):
                writer.upsert(rows, partial=partial, mergers=say)
        else:
            self.model, counts = after
            self._expect(writer.upsert(rows, partial=partial, mergers=say), counts)
            count("rows that the model blends", counts["updated"])
        self._compare_pruned(data)

    def _mergers(self, data: st.DataObject, partial: bool) -> dict[str, tuple[Any, Merge]]:
        fixed = (*self.shape.key, *self.shape.partition_by)
        names = [
            name
            for name in MERGERS
            if name in self.schema.names and self._is_as_made(name) and name not in fixed
        ]
        if not names:
            return {}
        chosen = data.draw(
            st.lists(st.sampled_from(names), min_size=0 if partial else 1, unique=True),
            label="mergers",
        )
        return {
            name: MERGERS[name][data.draw(st.sampled_from(list(MERGERS[name])))] for name in chosen
        }

    def _blended(
        self, batch: list[Row], missing: set[str], mergers: dict[str, Merge]
    ) -> tuple[dict[Any, Row], dict[str, int]] | None:
        """Return the model after the upsert, and its counts; None if new rows lack their ordering
        value.
        """
        ordered = self.shape.ordering is not None and "ts" not in missing
        counts = {"inserted": 0, "updated": 0, "deleted": 0, "late": 0, "missing": 0}
        folded: dict[Any, Row] = {}
        for row in sorted(batch, key=self._rank) if ordered else batch:
            identity = self.shape.identity(row)
            older = folded.get(identity)
            if older is not None and not mergers:
                counts["late"] += 1
            folded[identity] = row if older is None else self._merged(older, row, mergers)
        model = dict(self.model)
        for identity, row in folded.items():
            old = self.model.get(identity)
            new = {name: None if name in missing else value for name, value in row.items()}
            if old is None:
                if self.shape.ordering is not None and "ts" in missing:
                    return None
                if self._is_outlived(identity, row):
                    counts["late"] += 1
                    continue
                counts["inserted"] += 1
                model[identity] = new
                continue
            new = {name: old[name] if name in missing else value for name, value in row.items()}
            is_late = ordered and self._rank(row) < self._rank(old)
            if is_late and not mergers:
                counts["late"] += 1
                continue
            counts["updated"] += 1
            merged = self._merged(new, old, mergers) if is_late else self._merged(old, new, mergers)
            model[identity] = self.shape.updated(old, merged)
        return model, counts

    def _merged(self, older: Row, newer: Row, mergers: dict[str, Merge]) -> Row:
        return newer | {name: merge(older[name], newer[name]) for name, merge in mergers.items()}

    def _rank(self, row: Row) -> Any:
        """Return the ordering value as Hudi's readers compare it: -0.0 is below 0.0."""
        return (
            (row["ts"], math.copysign(1.0, row["ts"]))
            if isinstance(row["ts"], float)
            else row["ts"]
        )

    def _is_outlived(self, identity: Any, row: Row) -> bool:
        raise NotImplementedError

    def _expect(self, result: mdt.WriteResult, counts: dict[str, int]) -> None:
        raise NotImplementedError

    def _compare_pruned(self, data: st.DataObject) -> None:
        raise NotImplementedError
