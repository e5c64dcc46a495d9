"""The rules of the model that replace or drop whole partitions."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from counting import count
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from model_conditional import ConditionalRules
from strategies import Row, Shape

import mdt


class OverwritingRules(ConditionalRules):
    """Overwrites and drops, for machines that have a ``model``: identity -> row."""

    model: dict[Any, Row]
    graves: dict[Any, Row]
    shape: Shape

    @rule(data=st.data(), whole=st.booleans())
    def insert_overwrite(self, data: st.DataObject, whole: bool) -> None:
        """Rows of the partitions that rows are written to go, wherever they stand, and those of
        partitions that are named; keys that live elsewhere move.
        """
        batch = data.draw(
            st.one_of(self._rows(min_size=4, max_size=12), self._rows(min_size=0, max_size=2))
        )
        counts, new = self._alone(batch)
        replaced = {self.shape.partition(row) for row in new.values()}
        is_all = whole or not self.shape.partition_by
        arguments: dict[str, Any] = {}
        if not is_all and data.draw(st.booleans(), label="named"):
            more, columns = self._some_partitions(data)
            replaced |= {
                self.shape.partition(row)
                for row in [*self.model.values()]
                if self._is_of(row, more, columns)
            }
            ours = [{name: row[name] for name in self.shape.partition_by} for row in new.values()]
            arguments["partitions"] = [{name: more[name] for name in columns}, *ours]
        gone = [
            one
            for one, row in self.model.items()
            if is_all or self.shape.partition(row) in replaced
        ]
        before = len(self.model)
        for identity in gone:
            del self.model[identity]
        left = len(self.model)
        self.model |= new
        moved = left + counts["inserted"] - len(self.model)
        writer = self._writer(data)
        overwrite = writer.insert_overwrite_table if whole else writer.insert_overwrite
        done = overwrite(self._arrow(batch), **arguments)
        self._expect(done, {**counts, "deleted": before - left + moved, "updated": 0})
        count("rows that the model replaces with their partitions", len(gone))
        self._compare_pruned(data)
        self._compare_look_ups(data)

    @precondition(lambda self: self.shape.partition_by)
    @rule(data=st.data(), by_path=st.booleans())
    def delete_partition(self, data: st.DataObject, by_path: bool) -> None:
        row, columns = self._some_partitions(data)
        gone = [one for one, r in self.model.items() if self._is_of(r, row, columns)]
        writer, named = self._writer(data), {name: row[name] for name in columns}
        paths = {
            path
            for path in writer.files()["partition"].to_pylist()
            if by_path and len(columns) == 2
        }
        if paths:
            path = data.draw(st.sampled_from(sorted(paths)), label="path")
            live = writer.scan(
                columns=[*self.shape.key, *self.shape.partition_by, "_hoodie_partition_path"]
            ).to_arrow()
            kept = live.to_pylist()
            gone = [self.shape.identity(r) for r in kept if r["_hoodie_partition_path"] == path]
            self._drop(data, gone, writer.delete_partition(path))
        else:
            self._drop(data, gone, writer.delete_partition([named, named]))

    def _some_partitions(self, data: st.DataObject) -> tuple[Row, tuple[str, ...]]:
        """Return a row, and partition columns: its values there name partitions."""
        row: Row = data.draw(self._rows(min_size=1, max_size=1))[0]
        columns = data.draw(
            st.sampled_from((self.shape.partition_by, self.shape.partition_by[:1])), label="columns"
        )
        return row, columns

    def _is_of(self, row: Row, named: Row, columns: tuple[str, ...]) -> bool:
        """Return whether ``row`` is in a partition that the values of ``named`` in ``columns``
        name.
        """
        if self.shape.has_time_paths:
            return bool(self.shape.partition(row) == self.shape.partition(named))
        return all(row[name] == named[name] for name in columns)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        if data.draw(st.integers(0, 3), label="seldom") == 3:
            self._drop(data, list(self.model), self._writer(data).truncate())

    def _drop(self, data: st.DataObject, gone: list[Any], done: mdt.WriteResult) -> None:
        for identity in gone:
            del self.model[identity]
        self._expect(done, {"inserted": 0, "updated": 0, "deleted": len(gone), "late": 0})
        count("rows that the model drops with their partitions", len(gone))
        self._compare_pruned(data)

    def _alone(self, batch: list[Row]) -> tuple[dict[str, int], dict[Any, Row]]:
        """Return how many rows of a batch are written to an empty table, and how many repeat a key;
        and those that are written.
        """
        old, self.model = self.model, {}
        graves, self.graves = self.graves, {}
        counts = self._put(batch)
        new, self.model, self.graves = self.model, old, graves
        return {"inserted": counts["inserted"], "late": counts["late"]}, new

    def _rows(self, **sizes: int) -> st.SearchStrategy[list[Row]]:
        raise NotImplementedError

    def _put(self, batch: list[Row]) -> dict[str, int]:
        raise NotImplementedError

    def _writer(self, data: st.DataObject) -> mdt.Table:
        raise NotImplementedError

    def _arrow(self, batch: list[Row], schema: pa.Schema | None = None) -> pa.Table:
        raise NotImplementedError

    def _expect(self, result: mdt.WriteResult, counts: dict[str, int]) -> None:
        raise NotImplementedError

    def _compare_pruned(self, data: st.DataObject) -> None:
        raise NotImplementedError

    def _compare_look_ups(self, data: st.DataObject) -> None:
        raise NotImplementedError
