"""The rules of the model that read older states, and what changed between two of them."""

import pyarrow as pa
import pyarrow.compute as pc
from counting import count
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from reader import AS_OF, END, INCREMENTAL, READ_OPTIMIZED, START, bag, bag_of, hudi_table

from indexes.predicate import matches
from indexes.testing import predicates


class PastRules(RuleBasedStateMachine):
    """Reading the past, for machines that know it: ``past``, ``schemas``: rows and columns after
    each commit.
    """

    def _told(self):
        """Return the seqs of the states after which all that happened is known."""
        horizon = self.table.snapshot().retention.horizon
        return sorted(seq for seq in self.past if seq >= horizon)

    def _two_states(self, data):
        """Return the seqs of an older and a newer state, or of one twice."""
        two = st.lists(st.sampled_from(self._told()), min_size=2, max_size=2)
        return sorted(data.draw(two))

    def _assert_filtered(self, data, scan, rows, schema):
        """Assert that a scan with a random filter finds what is to be found among rows."""
        columns = rows.select(schema.names)
        scan.predicate = data.draw(predicates(schema, columns))
        assert bag(scan.to_arrow()) == bag(rows.filter(matches(scan.predicate, columns))), (
            scan.predicate
        )

    @precondition(lambda self: len(self.past) > 1)
    @rule(data=st.data())
    def read_a_past_state(self, data):
        """Indexes, look-ups and hudi-rs see a past state as it was then."""
        seq = data.draw(st.sampled_from(sorted(self.past)), label="seq")
        instant, is_told = self.table.history()["instant"][seq].as_py(), seq in self._told()
        schema = self.schemas[seq]
        table = self._arrow(self.past[seq], schema)
        as_of = data.draw(st.sampled_from((seq, instant) if is_told else (seq,)), label="as of")
        self._assert_filtered(data, self.table.scan(as_of=as_of), table, schema)
        if is_told and self._hudi_knows(seq):
            found = hudi_table(self.path, schema, {AS_OF: instant})
            assert bag(found) == bag(table), "hudi-rs, as of"
        names = list(self.shape.located_by)
        assert bag(self.table.get(table.select(names), as_of=seq)) == bag(table)

    @precondition(lambda self: not self.table.definition.keeps_deletes)
    @rule(data=st.data())
    def rekey(self, data):
        """Another key hash changes no row."""
        writer = self._writer(data)
        before = writer.definition.key_hash
        writer.rekey()
        assert writer.definition.key_hash != before
        count("rekeys in the model")

    @precondition(lambda self: len(self.past) > 1)
    @rule(data=st.data(), mode=st.sampled_from(("net", "all")))
    def apply_changes_to_a_copy(self, data, mode):
        """The changes between two states, applied to the older one, make the newer one; filtered,
        they are those that match.
        """
        since, until = self._two_states(data)
        schema, names = self.schemas[until], self.schemas[until].names
        identity, where = self.shape.identity, f"{mode} from {since} to {until}"
        changes = self.table.changes(since, until, mode=mode).to_arrow()
        copy = {identity(row): row for row in self._altered(since, until)}
        for change in changes.to_pylist():
            row = {name: change[name] for name in names}
            if change["_change"] in ("delete", "update_before"):
                was = bag_of([copy.pop(identity(row))], names)
                assert was == bag_of([row], names), "what it was before"
            else:
                assert identity(row) not in copy, "what died comes first"
                copy[identity(row)] = row
        assert bag_of(copy.values(), names) == bag_of(self.past[until], names), where
        before = {identity(row) for row in self.past[since]}
        check_kinds(self.shape, changes, mode, before)
        without_before = self.table.changes(since, until, mode=mode, before=False)
        check_without_before(self.shape, without_before, changes, mode)
        again = self.table.changes(since, until, mode=mode)
        self._assert_filtered(data, again, changes, schema)

    @precondition(lambda self: len(self.past) > 1)
    @rule(data=st.data())
    def read_incrementally_and_read_optimized(self, data):
        """Rows of a range of commits are those that came and stayed, for hudi-rs, too; base files
        are the same for both.
        """
        since, until = self._two_states(data)
        where = f"from {since} to {until}"
        instants, schema = self.table.history()["instant"].to_pylist(), self.schemas[until]
        found = self.table.scan(since=since, until=until)
        net = self.table.changes(since, until).to_arrow()
        came = net.filter(pc.is_in(net["_change"], pa.array(["insert", "update_after"])))
        came = came.select(schema.names)
        assert bag(found.to_arrow()) == bag(came) and found.count() == len(came), where
        if self._hudi_knows(since, until):
            first, last = self._hudi_time(since, instants), self._hudi_time(until, instants)
            asked = {**INCREMENTAL, START: first, END: last}
            if first and last:
                assert bag(hudi_table(self.path, schema, asked)) == bag(came), f"hudi-rs, {where}"
        base, schema = self.table.scan(query_type="read_optimized").to_arrow(), self.schema
        if self._hudi_knows():
            assert bag(base) == bag(hudi_table(self.path, schema, READ_OPTIMIZED)), "base files"
        self._assert_filtered(data, self.table.scan(query_type="read_optimized"), base, schema)

    def _hudi_time(self, seq, instants):
        """Return the time by which Hudi's incremental reads know a commit: in version 9 that of
        its completion, "" if the record is archived.
        """
        if self.shape.version == 6:
            return instants[seq]
        record = self.table.metadata.record(seq)
        return "" if record is None else record.header["completion"]


def check_kinds(shape, changes, mode, before):
    """An update has a row before and one after; between two states a key is told once.  ``before``:
    identities of the older state.
    """
    told = {}
    for change in changes.to_pylist():
        scope = (shape.identity(change), change["_seq"] if mode == "all" else 0)
        told.setdefault(scope, []).append(change["_change"])
    assert all(
        kinds in (["insert"], ["delete"], ["update_before", "update_after"])
        for kinds in told.values()
    ), told
    if mode == "net":
        assert all((key in before) == (kinds != ["insert"]) for (key, _), kinds in told.items())


def check_without_before(shape, stream, changes, mode):
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
