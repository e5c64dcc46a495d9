"""The rule of the model that upserts rows of which some are deletes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from counting import count
from hypothesis import strategies as st
from hypothesis.stateful import rule
from model_once import OnceRules
from strategies import Row


class MarkedRules(OnceRules):
    """Upserts with a column ``_hoodie_is_deleted``, for machines that have a model."""

    @rule(data=st.data(), partial=st.booleans())
    def upsert_with_deletes(self, data: st.DataObject, partial: bool) -> None:
        batch = data.draw(self._rows(min_size=1, max_size=5))
        if self.model:
            batch += data.draw(
                st.lists(st.sampled_from(list(self.model.values())), max_size=4), label="known"
            )
        batch = data.draw(st.permutations(batch))
        size = {"min_size": len(batch), "max_size": len(batch)}
        marks = data.draw(st.lists(st.sampled_from((True, False, None)), **size), label="deleted")
        rows = self._arrow(batch).append_column("_hoodie_is_deleted", pa.array(marks, pa.bool_()))
        expected = self._put_marked(batch, marks)
        self._expect(self._writer(data).upsert(rows, partial=partial), expected)
        count("rows of the model that are marked as deletes", expected["deleted"])
        self._compare_pruned(data)
        self._compare_look_ups(data)

    def _in_known_partitions(self, batch: list[Row]) -> list[Row]:
        """Return rows with the partition where their key lives in place of none: under table scope
        they are refused without one.
        """
        if self.shape.scope == "partition" or not self.shape.moves:
            return batch
        return [row | self._known_partition(row) for row in batch]

    def _known_partition(self, row: Row) -> Row:
        old = self.model.get(self.shape.identity(row), row)
        return {name: old[name] for name in self.shape.partition_by if row[name] is None}

    def _put_marked(self, batch: list[Row], marks: list[bool | None]) -> dict[str, int]:
        """Upsert and delete in the model; return the counts that the table must give."""
        newest: dict[Any, tuple[Row, bool | None]] = {}
        for row, mark in zip(batch, marks, strict=True):
            identity = self.shape.identity(row)
            if identity not in newest or not self._is_older(row, newest[identity][0]):
                newest[identity] = row, mark
        counts = self._put([row for row, mark in newest.values() if not mark])
        counts["late"] += len(batch) - len(newest)
        for identity, row in [(identity, row) for identity, (row, mark) in newest.items() if mark]:
            old = self.model.get(identity)
            if old is None:
                counts["missing"] += 1
                if self.shape.keeps_deletes and not self._is_outlived(identity, row):
                    self.graves[identity] = row
            elif self._is_older(row, old):
                counts["late"] += 1
            else:
                counts["deleted"] += 1
                self._bury(identity, row)
        return counts

    def _is_older(self, row: Row, other: Row) -> bool:
        return self.shape.ordering is not None and self._rank(row) < self._rank(other)
