"""The rules of the model that read older states, and the changes between two of them."""

import pyarrow as pa
import pyarrow.compute as pc
from counting import count
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from reader import AS_OF, END, INCREMENTAL, READ_OPTIMIZED, START, bag, bag_of, hudi_table

from indexes.predicate import matches
from indexes.testing import predicates


class PastRules(RuleBasedStateMachine):
    """Reads of the past, for machines with ``past`` and ``schemas``: rows and columns after each
    commit.
    """

    def _told(self):
        """Return the seqs of the commits since which all changes are known."""
        horizon = self.table.snapshot().retention.horizon
        return sorted(seq for seq in self.past if seq >= horizon)

    def _two_states(self, data):
        """Return the seqs of an older and a newer state, or of the same state twice."""
        two = st.lists(st.sampled_from(self._told()), min_size=2, max_size=2)
        return sorted(data.draw(two))

    def _assert_filtered(self, data, scan, rows, schema):
        """Assert that a scan with a random filter returns the matching rows of ``rows``."""
        columns = rows.select(schema.names)
        scan.predicate = data.draw(predicates(schema, columns))
        assert bag(scan.to_arrow()) == bag(rows.filter(matches(scan.predicate, columns))), (
            scan.predicate
        )

    @precondition(lambda self: len(self.past) > 1)
    @rule(data=st.data())
    def read_a_past_state(self, data):
        """Indexes, lookups and hudi-rs see a past state as it was."""
        seq = data.draw(st.sampled_from(sorted(self.past)), label="seq")
        instant, is_told = self.table.history()["instant"][seq].as_py(), seq in self._told()
        schema = self.schemas[seq]
        table = self._arrow(self.past[seq], schema)
        as_of = data.draw(st.sampled_from((seq, instant) if is_told else (seq,)), label="as of")
        self._assert_filtered(data, self.table.scan(as_of=as_of), table, schema)
        if is_told and self._hudi_knows(seq):
            read = hudi_table(self.path, schema, {AS_OF: instant})
            assert bag(read) == bag(table), "hudi-rs, as of"
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
        """The changes between two states, applied to the older one, result in the newer one.
        Filtered changes are those that match.
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
                assert was == bag_of([row], names), "another row than before the change"
            else:
                assert identity(row) not in copy, "the deleted row must come first"
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
        """An incremental read returns the rows of a range of commits that were written and are
        still live, also in hudi-rs. Base files are the same for both.
        """
        since, until = self._two_states(data)
        where = f"from {since} to {until}"
        instants, schema = self.table.history()["instant"].to_pylist(), self.schemas[until]
        scan = self.table.scan(since=since, until=until)
        net = self.table.changes(since, until).to_arrow()
        written = net.filter(pc.is_in(net["_change"], pa.array(["insert", "update_after"])))
        written = written.select(schema.names)
        assert bag(scan.to_arrow()) == bag(written) and scan.count() == len(written), where
        if self._hudi_knows(since, until):
            first, last = self._hudi_time(since, instants), self._hudi_time(until, instants)
            options = {**INCREMENTAL, START: first, END: last}
            if first and last:
                assert bag(hudi_table(self.path, schema, options)) == bag(written), (
                    f"hudi-rs, {where}"
                )
        base, schema = self.table.scan(query_type="read_optimized").to_arrow(), self.schema
        if self._hudi_knows():
            assert bag(base) == bag(hudi_table(self.path, schema, READ_OPTIMIZED)), "base files"
        self._assert_filtered(data, self.table.scan(query_type="read_optimized"), base, schema)

    def _hudi_time(self, seq, instants):
        """Return the time by which Hudi's incremental reads identify a commit. In version 9, it is
        the time of completion, or empty if the record is archived.
        """
        if self.shape.version == 6:
            return instants[seq]
        record = self.table.metadata.record(seq)
        return "" if record is None else record.header["completion"]


def check_kinds(shape, changes, mode, before):
    """Require a row before and a row after each update, and in net mode one change for each key.
    ``before``: identities of the older state.
    """
    kinds_by_key = {}
    for change in changes.to_pylist():
        scope = (shape.identity(change), change["_seq"] if mode == "all" else 0)
        kinds_by_key.setdefault(scope, []).append(change["_change"])
    assert all(
        kinds in (["insert"], ["delete"], ["update_before", "update_after"])
        for kinds in kinds_by_key.values()
    ), kinds_by_key
    if mode == "net":
        assert all(
            (key in before) == (kinds != ["insert"]) for (key, _), kinds in kinds_by_key.items()
        )


def check_without_before(shape, stream, changes, mode):
    """Without the rows before updates, everything else is the same. In net mode, deleted rows are
    as they were last.
    """
    actual = stream.to_arrow()
    expected = changes.filter(pc.not_equal(changes["_change"], "update_before"))
    if mode == "net":
        names = ["_change", "_seq", *shape.key, *shape.partition_by]
        assert bag(actual.select(names)) == bag(expected.select(names))
        actual, expected = (
            t.filter(pc.not_equal(t["_change"], "delete")) for t in (actual, expected)
        )
    assert bag(actual) == bag(expected), f"{mode}, without before"
