"""The rule of the model for merges: pairs are found in Python, and each clause has a Python
function beside its SQL.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from counting import count
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from model_blending import BlendingRules, place
from strategies import Row, smallest_ordering_value

import mdt
from mdt.errors import Invalid


def _above(a, b):
    return a is not None and b is not None and a > b


def _same(a, b):
    return a is not None and a == b


CONDITIONS = {
    "matched": {
        "source.x > target.x": lambda s, t: _above(place(s["x"]), place(t["x"])),
        "source.x = target.x or target.note is null": (
            lambda s, t: _same(place(s["x"]), place(t["x"])) or t["note"] is None
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
        "target.x > 0.0": lambda s, t: _above(place(t["x"]), place(0.0)),
        "target.note is null and target.x is not null": (
            lambda s, t: t["note"] is None and t["x"] is not None
        ),
        "target.note = target.note and target.note >= 'b'": (
            lambda s, t: t["note"] is not None and t["note"] >= "b"
        ),
        None: lambda s, t: True,
    },
}
"""Kind of clause -> SQL condition -> the same condition on a pair of rows in Python."""
UPDATES = [
    ({"x": "source.x", "note": mdt.col("target.note")}, lambda s, t: {"x": s["x"]}),
    (
        {"note": "coalesce(target.note, source.note, 'none')"},
        lambda s, t: {"note": next((n for n in (t["note"], s["note"]) if n is not None), "none")},
    ),
    ({"ts": "source.ts", "x": 1.5}, lambda s, t: {"ts": s["ts"], "x": 1.5}),
]
ONS = ("identity", "key", "note")


@dataclass(frozen=True)
class Clause:
    """A clause in SQL and in Python. ``make`` returns the new row of a pair, or None for
    a delete.
    """

    kind: str
    condition: str | None
    set: Any
    make: Callable[[Any, Any], Row | None]

    def holds(self, pair):
        return CONDITIONS[self.kind][self.condition](*pair)


class MergeRules(BlendingRules):
    """Merges, for the machines that have deletes and updates by a condition."""

    @precondition(lambda self: all(map(self._is_as_made, ("x", "note"))))
    @rule(data=st.data(), on=st.sampled_from(ONS))
    def merge(self, data, on):
        batch = data.draw(self._rows(max_size=6), label="source")
        dedupe = on != "note" and data.draw(st.booleans(), label="dedupe")
        if not dedupe and data.draw(st.integers(0, 4), label="repeats"):
            batch = list({self._matched_by(on, row): row for row in batch}.values())
        known = {self.shape.identity(row): row for row in self._known(data, max_size=3)}
        is_local = self.shape.scope == "partition" and on != "identity" and self.shape.levels
        clauses = self._clauses(data, on != "note" and not is_local)
        if dedupe or (on == "identity" and not self._all_pairs(on, batch)):
            batch = batch + [row | {"x": 2.5} for row in known.values()]
        merged = self._newest(on, batch) if dedupe else batch
        count("rows of the model's merges that a newer one replaces", len(batch) - len(merged))
        after = self._after(merged, self._all_pairs(on, merged), clauses)
        merge = self._said(self._writer(data), batch, on, clauses, dedupe)
        if after is None:
            count("merges in the model that are refused")
            with pytest.raises(Invalid, match="match several rows|repeat a key|exist already"):
                merge.execute()
        else:
            result = merge.execute()
            self.model, counts = after
            assert {
                name: getattr(result, name) for name in counts
            } == counts and result.attempts == 1
            is_changed = sum(counts.values()) > counts["late"]
            assert (result.source_rows, bool(result.instant)) == (len(merged), is_changed)
            count("rows that the model merges", sum(counts.values()))
        self._compare(data)

    def _clauses(self, data, whole):
        clauses = []
        for _ in range(data.draw(st.integers(1, 4), label="clauses")):
            kind = data.draw(st.sampled_from(list(CONDITIONS)))
            if any(clause.kind == kind and clause.condition is None for clause in clauses):
                continue
            condition = data.draw(st.sampled_from(list(CONDITIONS[kind])))
            clauses.append(Clause(kind, condition, *self._action(data, kind, whole)))
        return clauses

    def _action(self, data, kind, whole):
        if kind == "not_matched":
            columns = [name for name in self.schema.names if name != "note"]
            some = {name: f"source.{name}" for name in columns}, lambda s, t: s | {"note": None}
            return data.draw(st.sampled_from((("*", lambda s, t: s), some)))
        choices = [(None, lambda s, t: None)]
        if kind == "matched":
            choices += [(given, lambda s, t, made=made: t | made(s, t)) for given, made in UPDATES]
            if whole:
                choices.append(("*", lambda s, t: self.shape.updated(t, s)))
        else:
            least = smallest_ordering_value(self.shape)
            said = {"ts": f"'{least}'" if isinstance(least, str) else least, "note": None}
            choices += [
                (said, lambda s, t: t | {"ts": least, "note": None}),
                ({"x": "target.x"}, lambda s, t: t),
            ]
        return data.draw(st.sampled_from(choices))

    def _newest(self, on, batch):
        """Among the rows that are matched by the same values, return the one with the largest
        ordering value, of equal ones the last.
        """
        newest = {}
        for row in batch:
            by = self._matched_by(on, row)
            if by not in newest or not self.shape.is_older(row, newest[by]):
                newest[by] = row
        return list(newest.values())

    def _all_pairs(self, on, batch):
        return [(s, t) for s in batch for t in self.model.values() if self._pairs(on, s, t)]

    def _matched_by(self, on, row):
        if on == "identity":
            return self.shape.identity(row)
        return tuple(row[name] for name in self.shape.key) if on == "key" else row["note"]

    def _pairs(self, on, source, target):
        source_values, target_values = self._matched_by(on, source), self._matched_by(on, target)
        return source_values is not None and source_values == target_values

    def _after(self, batch, pairs, clauses):
        """Return the model after a merge and its counts, or None if the merge is refused."""
        identity, deleted, fresh = self.shape.identity, [], []
        counts = {"inserted": 0, "updated": 0, "deleted": 0, "late": 0}
        matched, targets = {id(s) for s, _ in pairs}, {id(t) for _, t in pairs}

        def clause_of(kind, *pair):
            return next(
                (clause for clause in clauses if clause.kind == kind and clause.holds(pair)), None
            )

        if len(targets) < len(pairs) and any(clause.kind == "matched" for clause in clauses):
            return None
        model = dict(self.model)
        cases = [("matched", s, t) for s, t in pairs]
        for t in self.model.values():
            if id(t) not in targets:
                cases.append(("not_matched_by_source", None, t))
        for kind, s, t in cases:
            clause = clause_of(kind, s, t)
            if clause is None:
                continue
            made = clause.make(s, t)
            counts["deleted" if made is None else "updated"] += 1
            del model[identity(t)]
            if made is None:
                deleted.append(t)
            else:
                model[identity(made)] = made
        for s in batch:
            clause = clause_of("not_matched", s, None)
            if id(s) not in matched and clause is not None:
                fresh.append(clause.make(s, None))
        identities = {identity(row) for row in fresh}
        if len(identities) < len(fresh) or identities & self.model.keys():
            return None
        late = [row for row in fresh if self._is_outlived(identity(row), row)]
        counts["inserted"], counts["late"] = len(fresh) - len(late), len(late)
        for row in deleted:
            self._bury(identity(row))
        return model | {identity(row): row for row in fresh if row not in late}, counts

    def _said(self, writer, batch, on, clauses, dedupe):
        ons = {"identity": None, "key": list(self.shape.key), "note": "target.note = source.note"}
        merge = writer.merge(self._arrow(batch), ons[on], dedupe=dedupe)
        for clause in clauses:
            when = getattr(merge, f"when_{clause.kind}")(clause.condition)
            if clause.kind == "not_matched":
                merge = when.insert(clause.set)
            else:
                merge = when.delete() if clause.set is None else when.update(clause.set)
        return merge
