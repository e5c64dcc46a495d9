"""The rule of the model that merges: pairs are found in Python, clauses are functions of Python
beside their SQL.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from counting import count
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from model_blending import BlendingRules
from strategies import Row, smallest_ordering_value

import mdt
from mdt.errors import Invalid

Pair = tuple[Row | None, Row | None]
"""A row of the source and one of the table, as far as there are such."""


def _number(value: float | None) -> Any:
    return None if value is None else (math.isnan(value), 0.0 if math.isnan(value) else value)


def _above(a: Any, b: Any) -> bool:
    return a is not None and b is not None and a > b


def _same(a: Any, b: Any) -> bool:
    return a is not None and a == b


CONDITIONS: dict[str, dict[str | None, Callable[[Any, Any], bool]]] = {
    "matched": {
        "source.x > target.x": lambda s, t: _above(_number(s["x"]), _number(t["x"])),
        "source.x = target.x or target.note is null": (
            lambda s, t: _same(_number(s["x"]), _number(t["x"])) or t["note"] is None
        ),
        "source.ts >= target.ts and source.x is not null": (
            lambda s, t: (
                s["x"] is not None and (_above(s["ts"], t["ts"]) or _same(s["ts"], t["ts"]))
            )
        ),
        "not (source.note = target.note)": (
            lambda s, t: None not in (s["note"], t["note"]) and s["note"] != t["note"]
        ),
        "length(source.note) < 2": lambda s, t: s["note"] is not None and len(s["note"]) < 2,
        None: lambda s, t: True,
    },
    "not_matched": {
        "source.x is not null": lambda s, t: s["x"] is not None,
        "source.note > 'a'": lambda s, t: _above(s["note"], "a"),
        None: lambda s, t: True,
    },
    "not_matched_by_source": {
        "target.x > 0.0": lambda s, t: _above(_number(t["x"]), _number(0.0)),
        "target.note is null and target.x is not null": (
            lambda s, t: t["note"] is None and t["x"] is not None
        ),
        "target.note = target.note and target.note >= 'b'": (
            lambda s, t: t["note"] is not None and t["note"] >= "b"
        ),
        None: lambda s, t: True,
    },
}
"""By kind of clause: SQL -> what it says of a pair."""
UPDATES: list[tuple[dict[str, Any], Callable[[Any, Any], Row]]] = [
    ({"x": "source.x", "note": mdt.col("target.note")}, lambda s, t: {"x": s["x"]}),
    (
        {"note": "coalesce(target.note, source.note, 'none')"},
        lambda s, t: {"note": next((n for n in (t["note"], s["note"]) if n is not None), "none")},
    ),
    ({"ts": "source.ts", "x": 1.5}, lambda s, t: {"ts": s["ts"], "x": 1.5}),
]
ONS = ("identity", "key", "note")


@dataclass(frozen=True)
class Said:
    """A clause as it is said, and as Python has it: ``make`` gives the row that a pair becomes,
    None for none.
    """

    kind: str
    condition: str | None
    set: Any
    make: Callable[[Any, Any], Row | None]

    def holds(self, pair: Pair) -> bool:
        return CONDITIONS[self.kind][self.condition](*pair)


class MergeRules(BlendingRules):
    """Merges, for the machines that have deletes and updates by a condition."""

    @precondition(lambda self: all(map(self._is_as_made, ("x", "note"))))
    @rule(data=st.data(), on=st.sampled_from(ONS))
    def merge(self, data: st.DataObject, on: str) -> None:
        batch = data.draw(self._rows(max_size=6), label="source")
        dedupe = on != "note" and data.draw(st.booleans(), label="dedupe")
        if not dedupe and data.draw(st.integers(0, 4), label="repeats"):
            batch = list({self._matched_by(on, row): row for row in batch}.values())
        known = (
            data.draw(st.lists(st.sampled_from(list(self.model.values())), max_size=3))
            if self.model
            else []
        )
        whole = on != "note" and (
            self.shape.scope == "table" or on == "identity" or not self.shape.levels
        )
        clauses = self._clauses(data, whole)
        if known and (dedupe or (on == "identity" and not self._all_pairs(on, batch))):
            batch = batch + [
                row | {"x": 2.5}
                for row in {self.shape.identity(one): one for one in known}.values()
            ]
        merged = self._newest(on, batch) if dedupe else batch
        count("rows of the model's merges that a newer one replaces", len(batch) - len(merged))
        after = self._after(merged, self._all_pairs(on, merged), clauses)
        merge = self._said(self._writer(data), batch, on, clauses, dedupe)
        if after is None:
            count("merges in the model that are refused")
            with pytest.raises(Invalid, match="match several rows|repeat a key|exist already"):
                merge.execute()
        else:
            done = merge.execute()
            model, counts = after
            assert {name: getattr(done, name) for name in counts} == counts and done.attempts == 1
            assert done.source_rows == len(merged) and bool(done.instant) == (
                sum(counts.values()) > counts["late"]
            )
            self.model = model
            count("rows that the model merges", sum(counts.values()))
        self._compare_pruned(data)
        self._compare_look_ups(data)

    def _clauses(self, data: st.DataObject, whole: bool) -> list[Said]:
        found: list[Said] = []
        for _ in range(data.draw(st.integers(1, 4), label="clauses")):
            kind = data.draw(st.sampled_from(list(CONDITIONS)))
            if any(said.kind == kind and said.condition is None for said in found):
                continue
            condition = data.draw(st.sampled_from(list(CONDITIONS[kind])))
            found.append(Said(kind, condition, *self._action(data, kind, whole)))
        return found

    def _action(
        self, data: st.DataObject, kind: str, whole: bool
    ) -> tuple[Any, Callable[[Any, Any], Row | None]]:
        if kind == "not_matched":
            columns = [name for name in self.schema.names if name != "note"]
            some = {name: f"source.{name}" for name in columns}, lambda s, t: s | {"note": None}
            return data.draw(st.sampled_from((("*", lambda s, t: s), some)))
        choices: list[tuple[Any, Callable[[Any, Any], Any]]] = [(None, lambda s, t: None)]
        if kind == "matched":
            choices += [(given, lambda s, t, made=made: t | made(s, t)) for given, made in UPDATES]
            if whole:
                choices.append(("*", lambda s, t: self.shape.updated(t, s)))
        else:
            values = {"ts": smallest_ordering_value(self.shape), "note": None}
            said = {
                name: f"'{value}'" if isinstance(value, str) else value
                for name, value in values.items()
            }
            choices += [(said, lambda s, t: t | values), ({"x": "target.x"}, lambda s, t: t)]
        return data.draw(st.sampled_from(choices))

    def _newest(self, on: str, batch: list[Row]) -> list[Row]:
        """Return of the rows that are matched by the same the one with the largest ordering value,
        of equal ones the last.
        """
        found: dict[Any, Row] = {}
        for row in batch:
            by = self._matched_by(on, row)
            if (
                self.shape.ordering is None
                or by not in found
                or self._rank(row) >= self._rank(found[by])
            ):
                found[by] = row
        return list(found.values())

    def _all_pairs(self, on: str, batch: list[Row]) -> list[tuple[Row, Row]]:
        return [(s, t) for s in batch for t in self.model.values() if self._pairs(on, s, t)]

    def _matched_by(self, on: str, row: Row) -> Any:
        by = {
            "identity": self.shape.identity,
            "key": lambda row: tuple(row[name] for name in self.shape.key),
        }
        return by[on](row) if on in by else row["note"]

    def _pairs(self, on: str, source: Row, target: Row) -> bool:
        mine, theirs = self._matched_by(on, source), self._matched_by(on, target)
        return mine is not None and mine == theirs

    def _after(
        self, batch: list[Row], pairs: list[tuple[Row, Row]], clauses: list[Said]
    ) -> tuple[dict[Any, Row], dict[str, int]] | None:
        """Return the model after a merge, and the counts; None for one that is refused."""
        identity, counts = (
            self.shape.identity,
            {"inserted": 0, "updated": 0, "deleted": 0, "late": 0},
        )
        deleted = list[Row]()
        targets = [id(t) for _, t in pairs]
        if len(set(targets)) < len(targets) and any(said.kind == "matched" for said in clauses):
            return None
        model = dict(self.model)
        alone = [t for t in self.model.values() if id(t) not in set(targets)]
        for kind, some in (
            ("matched", pairs),
            ("not_matched_by_source", [(None, t) for t in alone]),
        ):
            for s, t in some:
                said = next((c for c in clauses if c.kind == kind and c.holds((s, t))), None)
                if said is not None:
                    assert t is not None
                    made = said.make(s, t)
                    counts["deleted" if made is None else "updated"] += 1
                    del model[identity(t)]
                    deleted += [t] if made is None else []
                    model |= {} if made is None else {identity(made): made}
        matched, fresh = {id(s) for s, _ in pairs}, list[Row]()
        for s in batch:
            said = next(
                (c for c in clauses if c.kind == "not_matched" and c.holds((s, None))), None
            )
            if id(s) not in matched and said is not None:
                row = said.make(s, None)
                assert row is not None
                fresh.append(row)
        identities = {identity(row) for row in fresh}
        if len(identities) < len(fresh) or identities & self.model.keys():
            return None
        late = [row for row in fresh if self._is_outlived(identity(row), row)]
        counts["inserted"], counts["late"] = len(fresh) - len(late), len(late)
        for row in deleted:
            self._bury(identity(row))
        return model | {identity(row): row for row in fresh if row not in late}, counts

    def _said(
        self, writer: mdt.Table, batch: list[Row], on: str, clauses: list[Said], dedupe: bool
    ) -> Any:
        ons: dict[str, Any] = {
            "identity": None,
            "key": list(self.shape.key),
            "note": "target.note = source.note",
        }
        merge = writer.merge(self._arrow(batch), ons[on], dedupe=dedupe)
        for said in clauses:
            when = getattr(merge, f"when_{said.kind}")(said.condition)
            if said.kind == "not_matched":
                merge = when.insert(said.set)
            else:
                merge = when.delete() if said.set is None else when.update(said.set)
        return merge

    # What the model has

    def _rows(self, **sizes: int) -> st.SearchStrategy[list[Row]]:
        raise NotImplementedError

    def _compare_pruned(self, data: st.DataObject) -> None:
        raise NotImplementedError

    def _compare_look_ups(self, data: st.DataObject) -> None:
        raise NotImplementedError
