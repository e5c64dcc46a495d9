"""The rules of the model that choose rows by what they say."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from counting import count
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from strategies import NOTES, NUMBERS, Row, conditions, smallest_ordering_value

import mdt
from indexes.predicate import matches
from mdt.commit.transaction import run
from mdt.write.setting import Setting, setting


class ConditionalRules(RuleBasedStateMachine):
    """Deletes and updates by a condition, for machines that have a ``model``: identity -> row."""

    model: dict[Any, Row]
    schema: pa.Schema
    shape: Any

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete_where(self, data: st.DataObject) -> None:
        chosen, done = self._chosen(data, None)
        for identity in chosen:
            self._bury(identity)
        assert done.deleted == len(chosen) and not done.updated and done.attempts == 1

    @precondition(lambda self: self.model)
    @rule(data=st.data(), falls=st.booleans())
    def update_where(self, data: st.DataObject, falls: bool) -> None:
        values: Row = {
            "x": data.draw(st.sampled_from(NUMBERS)),
            "note": data.draw(st.sampled_from(NOTES)),
        }
        if falls:
            values["ts"] = smallest_ordering_value(self.shape)
        values = {name: value for name, value in values.items() if self._is_as_made(name)}
        if not values:
            return
        chosen, done = self._chosen(data, values)
        for identity in chosen:
            self.model[identity] = self.model[identity] | values
        assert done.updated == len(chosen) and not done.deleted and done.attempts == 1

    def _chosen(self, data: st.DataObject, values: Row | None) -> tuple[list[Any], mdt.WriteResult]:
        """Carry it out; return the identities of the rows that match."""
        writer: mdt.Table = self._writer(data)
        rows = self._arrow(list(self.model.values()))
        asked = data.draw(conditions(self.schema, rows))
        given: Setting | None = None if values is None else setting(writer.definition, values, {})
        definition = writer.definition
        operation = writer._choosing_on(writer._engine(None))(
            writer.metadata,
            writer.options,
            asked,
            definition.schema,
            definition.commit_action,
            given,
        )
        done = mdt.WriteResult.of(run(writer.metadata, operation))
        mask = matches(asked, rows).to_pylist()
        count("rows that the model changes by a condition", sum(mask))
        return [identity for identity, hit in zip(self.model, mask, strict=True) if hit], done

    def _bury(self, identity: Any) -> None:
        raise NotImplementedError

    def _writer(self, data: st.DataObject) -> mdt.Table:
        raise NotImplementedError

    def _arrow(self, batch: list[Row], schema: pa.Schema | None = None) -> pa.Table:
        raise NotImplementedError

    def _is_as_made(self, name: str) -> bool:
        raise NotImplementedError
