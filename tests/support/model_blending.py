"""The rule of the model for partial upserts and column mergers."""

import math

import pytest
from counting import count
from hypothesis import strategies as st
from hypothesis.stateful import rule
from model_writes import WritingRules
from strategies import rank

from mdt.errors import Invalid


def place(value):
    """Return a sort key for values in Spark's order."""
    if isinstance(value, float):
        return math.isnan(value), 0.0 if math.isnan(value) else value
    return value


def unless_null(merge):
    """Return a merger of two values that takes the other value if one is null."""

    def merged(older, newer):
        if older is None or newer is None:
            return older if newer is None else newer
        return merge(older, newer)

    return merged


larger = unless_null(lambda older, newer: older if place(older) > place(newer) else newer)
smaller = unless_null(lambda older, newer: older if place(older) < place(newer) else newer)
newest = unless_null(lambda older, newer: newer)
total = unless_null(lambda older, newer: older + newer)


def oldest(older, newer):
    """A merger of a user: the older value is kept, null or not."""
    return older


MERGERS = {
    "x": {"max": larger, "min": smaller, "sum": total},
    "note": {"coalesce": newest, "max": larger, oldest: oldest},
    "day": {"min": smaller},
}
"""Column -> argument of the call -> function on Python values."""


class BlendingRules(WritingRules):
    """Partial upserts and mergers, for the machines that have whole upserts."""

    @rule(data=st.data(), partial=st.booleans())
    def upsert_with_what_was_there(self, data, partial):
        batch = data.draw(self._rows(max_size=8))
        if data.draw(st.booleans(), label="known"):
            known = self._known(data, max_size=6)
            batch += self._with_parts_of(data, known, self.shape.located_by)
        names = self.schema.names
        free = [name for name in names if name not in self.shape.identified_by]
        missing = set()
        if partial:
            missing = set(data.draw(st.lists(st.sampled_from(free), min_size=1, unique=True)))
        chosen = self._mergers(data, partial)
        writer, rows = self._writer(data), self._arrow(batch).drop_columns(sorted(missing))
        mergers = {name: MERGERS[name][how] for name, how in chosen.items() if name not in missing}
        after = self._blended(batch, missing, mergers)
        if after is None:
            with pytest.raises(Invalid, match="the ordering field is null"):
                writer.upsert(rows, partial=partial, mergers=chosen)
        else:
            self.model, counts = after
            self._expect(writer.upsert(rows, partial=partial, mergers=chosen), counts)
            count("rows that the model blends", counts["updated"])
        self._compare_pruned(data)

    def _mergers(self, data, partial):
        names = [
            name
            for name in MERGERS
            if name in self.schema.names
            and self._is_as_made(name)
            and name not in self.shape.located_by
        ]
        if not names:
            return {}
        some_names = st.lists(st.sampled_from(names), min_size=0 if partial else 1, unique=True)
        chosen = data.draw(some_names, label="mergers")
        return {name: data.draw(st.sampled_from(list(MERGERS[name]))) for name in chosen}

    def _blended(self, batch, missing, mergers):
        """Return the model after the upsert and its counts, or None if new rows lack their ordering
        value.
        """
        lacks_order = self.shape.ordering is not None and "ts" in missing
        ordered = self.shape.ordering is not None and not lacks_order
        counts = {"inserted": 0, "updated": 0, "deleted": 0, "late": 0, "missing": 0}
        folded = {}
        for row in sorted(batch, key=rank) if ordered else batch:
            identity = self.shape.identity(row)
            older = folded.get(identity)
            if older is not None and not mergers:
                counts["late"] += 1
            folded[identity] = row if older is None else self._merged(older, row, mergers)
        model = dict(self.model)
        for identity, row in folded.items():
            old = self.model.get(identity)
            if old is None:
                if lacks_order:
                    return None
                if self._is_outlived(identity, row):
                    counts["late"] += 1
                    continue
                counts["inserted"] += 1
                model[identity] = row | dict.fromkeys(missing)
                continue
            new = row | {name: old[name] for name in missing}
            is_late = ordered and rank(row) < rank(old)
            if is_late and not mergers:
                counts["late"] += 1
                continue
            counts["updated"] += 1
            merged = self._merged(new, old, mergers) if is_late else self._merged(old, new, mergers)
            model[identity] = self.shape.updated(old, merged)
        return model, counts

    def _merged(self, older, newer, mergers):
        return newer | {name: merge(older[name], newer[name]) for name, merge in mergers.items()}
