"""The rules of the model that read older states, and what changed between two of them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from counting import count
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from reader import AS_OF, END, INCREMENTAL, READ_OPTIMIZED, START, bag, bag_of, hudi_table
from strategies import Row, Shape

import mdt
from indexes.predicate import matches
from indexes.testing import predicates
from mdt.changes import ChangeStream


class PastRules(RuleBasedStateMachine):
    """Reading the past, for machines that know it: ``past``, ``schemas``: rows and columns after
    each commit.
    """

    path: Path
    past: dict[int, list[Row]]
    schema: pa.Schema
    schemas: dict[int, pa.Schema]
    shape: Any
    table: mdt.Table

    def _told(self) -> list[int]:
        """Return the seqs of the states after which all that happened is known."""
        horizon = self.table.snapshot().retention.horizon
        return sorted(seq for seq in self.past if seq >= horizon)

    @precondition(lambda self: len(self.past) > 1)
    @rule(data=st.data())
    def read_a_past_state(self, data: st.DataObject) -> None:
        """Indexes, look-ups and hudi-rs see a past state as it was then."""
        seq = data.draw(st.sampled_from(sorted(self.past)), label="seq")
        instant, is_told = self.table.history()["instant"][seq].as_py(), seq in self._told()
        schema = self.schemas[seq]
        table = self._arrow(self.past[seq], schema)
        scan = self.table.scan(
            as_of=data.draw(st.sampled_from((seq, instant) if is_told else (seq,)), label="as of")
        )
        scan.predicate = data.draw(predicates(schema, table))
        assert bag(scan.to_arrow()) == bag(table.filter(matches(scan.predicate, table))), (
            scan.explain()
        )
        if is_told and self._hudi_knows(seq):
            assert bag(hudi_table(self.path, schema, {AS_OF: instant})) == bag(table), (
                "hudi-rs, as of"
            )
        names = list(dict.fromkeys((*self.shape.key, *self.shape.partition_by)))
        assert bag(self.table.get(table.select(names), as_of=seq)) == bag(table)

    @precondition(lambda self: not self.table.definition.keeps_deletes)
    @rule(data=st.data())
    def rekey(self, data: st.DataObject) -> None:
        """Another key hash changes no row."""
        writer: mdt.Table = self._writer(data)
        before = writer.definition.key_hash
        writer.rekey()
        assert writer.definition.key_hash != before
        count("rekeys in the model")

    @precondition(lambda self: len(self.past) > 1)
    @rule(data=st.data(), mode=st.sampled_from(("net", "all")))
    def apply_changes_to_a_copy(self, data: st.DataObject, mode: str) -> None:
        """The changes between two states, applied to the older one, make the newer one; filtered,
        they are those that match.
        """
        since, until = sorted(
            data.draw(st.lists(st.sampled_from(self._told()), min_size=2, max_size=2))
        )
        schema, names = self.schemas[until], self.schemas[until].names
        changes = self.table.changes(since, until, mode=mode).to_arrow()
        copy = {self.shape.identity(row): row for row in self._altered(since, until)}
        for change in changes.to_pylist():
            row = {name: change[name] for name in names}
            if change["_change"] in ("delete", "update_before"):
                assert bag_of([copy.pop(self.shape.identity(row))], names) == bag_of(
                    [row], names
                ), "what it was before"
            else:
                assert self.shape.identity(row) not in copy, "what died comes first"
                copy[self.shape.identity(row)] = row
        assert bag_of(copy.values(), names) == bag_of(self.past[until], names), (
            f"{mode} from {since} to {until}"
        )
        check_kinds(
            self.shape, changes, mode, {self.shape.identity(row) for row in self.past[since]}
        )
        check_without_before(
            self.shape, self.table.changes(since, until, mode=mode, before=False), changes, mode
        )
        found = self.table.changes(since, until, mode=mode)
        found.predicate = data.draw(predicates(schema, changes.select(names)))
        assert bag(found.to_arrow()) == bag(
            changes.filter(matches(found.predicate, changes.select(names)))
        )

    @precondition(lambda self: len(self.past) > 1)
    @rule(data=st.data())
    def read_incrementally_and_read_optimized(self, data: st.DataObject) -> None:
        """Rows of a range of commits are those that came and stayed, for hudi-rs, too; base files
        are the same for both.
        """
        since, until = sorted(
            data.draw(st.lists(st.sampled_from(self._told()), min_size=2, max_size=2))
        )
        instants, schema = self.table.history()["instant"].to_pylist(), self.schemas[until]
        found = self.table.scan(since=since, until=until)
        net = self.table.changes(since, until).to_arrow()
        came = net.filter(pc.is_in(net["_change"], pa.array(["insert", "update_after"]))).select(
            schema.names
        )
        assert bag(found.to_arrow()) == bag(came), f"written after {since}, up to {until}"
        assert found.count() == len(came)
        asked = {**INCREMENTAL, START: instants[since], END: instants[until]}
        if self._hudi_knows(since, until):
            assert bag(hudi_table(self.path, schema, asked)) == bag(came), (
                f"hudi-rs, from {since} to {until}"
            )
        base, schema = self.table.scan(query_type="read_optimized").to_arrow(), self.schema
        if self._hudi_knows():
            assert bag(base) == bag(hudi_table(self.path, schema, READ_OPTIMIZED)), "base files"
        scan = self.table.scan(query_type="read_optimized")
        scan.predicate = data.draw(predicates(schema, base))
        assert bag(scan.to_arrow()) == bag(base.filter(matches(scan.predicate, base))), (
            scan.explain()
        )


def check_kinds(shape: Shape, changes: pa.Table, mode: str, before: Collection[Any]) -> None:
    """An update has a row before and one after; between two states a key is told once.  ``before``:
    identities of the older state.
    """
    told: dict[Any, list[str]] = {}
    for change in changes.to_pylist():
        scope = (shape.identity(change), change["_seq"] if mode == "all" else 0)
        told.setdefault(scope, []).append(change["_change"])
    assert all(
        kinds in (["insert"], ["delete"], ["update_before", "update_after"])
        for kinds in told.values()
    ), told
    if mode == "net":
        assert all((key in before) == (kinds != ["insert"]) for (key, _), kinds in told.items())


def check_without_before(shape: Shape, stream: ChangeStream, changes: pa.Table, mode: str) -> None:
    """Without rows before updates, everything else is the same; net, what was deleted is as it was
    at last.
    """
    found = stream.to_arrow()
    expected = changes.filter(pc.not_equal(changes["_change"], "update_before"))
    if mode == "net":
        named = ["_change", "_seq", *shape.key, *shape.partition_by]
        assert bag(found.select(named)) == bag(expected.select(named))
        found, expected = (
            t.filter(pc.not_equal(t["_change"], "delete")) for t in (found, expected)
        )
    assert bag(found) == bag(expected), f"{mode}, without before"
