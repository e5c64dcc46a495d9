"""Rules of the model that change rows by a condition, replace or delete whole partitions, write
numbered batches, sometimes repeatedly, and mark rows as deletes.
"""

import pyarrow as pa
from counting import count
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from strategies import NOTES, NUMBERS, conditions, smallest_ordering_value

import mdt
from indexes.predicate import matches
from mdt.commit.transaction import run
from mdt.write.setting import parse_assignments


class WritingRules(RuleBasedStateMachine):
    """For machines that have a ``model``: identity -> row."""

    # By a condition

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete_where(self, data):
        chosen, result = self._chosen(data, None)
        for identity in chosen:
            self._bury(identity)
        assert result.deleted == len(chosen) and not result.updated and result.attempts == 1

    @precondition(lambda self: self.model)
    @rule(data=st.data(), falls=st.booleans())
    def update_where(self, data, falls):
        values = {
            "x": data.draw(st.sampled_from(NUMBERS)),
            "note": data.draw(st.sampled_from(NOTES)),
        }
        if falls:
            values["ts"] = smallest_ordering_value(self.shape)
        values = {name: value for name, value in values.items() if self._is_as_made(name)}
        if not values:
            return
        chosen, result = self._chosen(data, values)
        for identity in chosen:
            self.model[identity] = self.model[identity] | values
        assert result.updated == len(chosen) and not result.deleted and result.attempts == 1

    def _chosen(self, data, values):
        """Run the operation. Return the identities of the rows that match, and the result."""
        writer = self._writer(data)
        rows, definition = self._arrow(list(self.model.values())), writer.definition
        condition = data.draw(conditions(self.schema, rows))
        assignments = None if values is None else parse_assignments(definition, values, {})
        schema, action = definition.schema, definition.commit_action
        make = writer._choosing_on(writer._engine(None))
        operation = make(writer.metadata, writer.options, condition, schema, action, assignments)
        result = mdt.WriteResult.from_commit(run(writer.metadata, operation))
        mask = matches(condition, rows).to_pylist()
        count("rows that the model changes by a condition", sum(mask))
        return [identity for identity, hit in zip(self.model, mask, strict=True) if hit], result

    # Partitions

    @rule(data=st.data(), whole=st.booleans())
    def insert_overwrite(self, data, whole):
        """The new rows replace all rows of their partitions, and those of named partitions. Keys
        that are live elsewhere move.
        """
        sizes = ({"min_size": 4, "max_size": 12}, {"min_size": 0, "max_size": 2})
        batch = data.draw(st.one_of(*(self._rows(**size) for size in sizes)))
        counts, new = self._alone(batch)
        replaced = {self.shape.partition(row) for row in new.values()}
        is_all = whole or not self.shape.partition_by
        arguments = {}
        if not is_all and data.draw(st.booleans(), label="named"):
            more, columns = self._some_partitions(data)
            rows = self.model.values()
            replaced |= {self.shape.partition(r) for r in rows if self._is_of(r, more, columns)}
            ours = [{name: row[name] for name in self.shape.partition_by} for row in new.values()]
            arguments["partitions"] = [{name: more[name] for name in columns}, *ours]
        replaced_ids = [
            id for id, row in self.model.items() if is_all or self.shape.partition(row) in replaced
        ]
        before = len(self.model)
        for identity in replaced_ids:
            del self.model[identity]
        remaining = len(self.model)
        self.model |= new
        moved = remaining + counts["inserted"] - len(self.model)
        writer = self._writer(data)
        overwrite = writer.insert_overwrite_table if whole else writer.insert_overwrite
        result = overwrite(self._arrow(batch), **arguments)
        self._expect(result, {**counts, "deleted": before - remaining + moved, "updated": 0})
        count("rows that the model replaces with their partitions", len(replaced_ids))
        self._compare(data)

    @precondition(lambda self: self.shape.partition_by)
    @rule(data=st.data(), by_path=st.booleans())
    def delete_partition(self, data, by_path):
        row, columns = self._some_partitions(data)
        deleted_ids = [id for id, r in self.model.items() if self._is_of(r, row, columns)]
        writer, named = self._writer(data), {name: row[name] for name in columns}
        paths = set(writer.files()["partition"].to_pylist())
        if paths and by_path and len(columns) == 2:
            path = data.draw(st.sampled_from(sorted(paths)), label="path")
            names = [*self.shape.key, *self.shape.partition_by, "_hoodie_partition_path"]
            live = writer.scan(columns=names).to_arrow().to_pylist()
            deleted_ids = [
                self.shape.identity(r) for r in live if r["_hoodie_partition_path"] == path
            ]
            self._drop(data, deleted_ids, writer.delete_partition(path))
        else:
            self._drop(data, deleted_ids, writer.delete_partition([named, named]))

    def _some_partitions(self, data):
        """Return a row and partition columns. The values of the row in these columns name
        partitions.
        """
        [row] = data.draw(self._rows(min_size=1, max_size=1))
        choices = self.shape.partition_by, self.shape.partition_by[:1]
        return row, data.draw(st.sampled_from(choices), label="columns")

    def _is_of(self, row, named, columns):
        """Return whether ``row`` is in a partition that the values of ``named`` in ``columns``
        name.
        """
        if self.shape.has_time_paths:
            return self.shape.partition(row) == self.shape.partition(named)
        return all(row[name] == named[name] for name in columns)

    @rule(data=st.data())
    def truncate(self, data):
        if data.draw(st.integers(0, 3), label="seldom") == 3:
            self._drop(data, list(self.model), self._writer(data).truncate())

    def _drop(self, data, gone, done):
        for identity in gone:
            del self.model[identity]
        self._expect(done, {"inserted": 0, "updated": 0, "deleted": len(gone), "late": 0})
        count("rows that the model drops with their partitions", len(gone))
        self._compare_pruned(data)

    def _alone(self, batch):
        """Return the counts of a batch that is written to an empty table, and the written rows."""
        old, self.model = self.model, {}
        graves, self.graves = self.graves, {}
        counts = self._put(batch)
        new, self.model, self.graves = self.model, old, graves
        return {"inserted": counts["inserted"], "late": counts["late"]}, new

    # Batches of a stream: all other operations keep the number of the newest batch

    newest_batch = -1
    texts = frozenset()

    @rule(data=st.data())
    def upsert_once(self, data):
        """Upsert a batch of a stream. Other rows with its number, or an older number, change
        nothing.
        """
        batch = data.draw(self._rows(max_size=4))
        self.newest_batch += data.draw(st.integers(1, 3), label="numbers on")
        writer = self._writer(data).once("model", self.newest_batch)
        self._expect(writer.upsert(self._arrow(batch)), self._put(batch))
        older = data.draw(st.integers(0, self.newest_batch), label="again")
        repeated = self._writer(data).once("model", older)
        other_rows = self._arrow(data.draw(self._rows(max_size=4)))
        deletes = data.draw(st.booleans(), label="a delete")
        self._expect_nothing(
            repeated.delete_where(None) if deletes else repeated.upsert(other_rows)
        )
        assert repeated.snapshot().streams.batches["model"][0] == self.newest_batch
        count("batches of the model that are written twice")
        self._compare_pruned(data)

    @rule(data=st.data(), text=st.sampled_from("abcdef"))
    def upsert_once_by_text(self, data, text):
        """A batch with a text id is upserted if the table has no batch with it, whatever the
        numbers of its stream are.
        """
        batch = data.draw(self._rows(max_size=4))
        result = self._writer(data).once("model", text).upsert(self._arrow(batch))
        if text in self.texts:
            self._expect_nothing(result)
        else:
            self._expect(result, self._put(batch))
            self.texts = self.texts | {text}
        count("batches of the model with text ids")
        self._compare_pruned(data)

    def _expect_nothing(self, done):
        assert not done.instant and done.inserted + done.updated + done.deleted == 0

    # Rows that are marked as deletes

    @rule(data=st.data(), partial=st.booleans())
    def upsert_with_deletes(self, data, partial):
        batch = data.draw(self._rows(max_size=5)) + self._known(data, max_size=4)
        batch = data.draw(st.permutations(batch))
        size = {"min_size": len(batch), "max_size": len(batch)}
        marks = data.draw(st.lists(st.sampled_from((True, False, None)), **size), label="deleted")
        rows = self._arrow(batch).append_column("_hoodie_is_deleted", pa.array(marks, pa.bool_()))
        expected = self._put_marked(batch, marks)
        self._expect(self._writer(data).upsert(rows, partial=partial), expected)
        count("rows of the model that are marked as deletes", expected["deleted"])
        self._compare(data)

    def _put_marked(self, batch, marks):
        """Upsert and delete in the model. Return the counts that the table must give."""
        newest = {}
        for row, mark in zip(batch, marks, strict=True):
            identity = self.shape.identity(row)
            if identity not in newest or not self.shape.is_older(row, newest[identity][0]):
                newest[identity] = row, mark
        counts = self._put([row for row, mark in newest.values() if not mark])
        counts["late"] += len(batch) - len(newest)
        for identity, row in [(identity, row) for identity, (row, mark) in newest.items() if mark]:
            old = self.model.get(identity)
            if old is None:
                counts["missing"] += 1
                if self.shape.keeps_deletes and not self._is_outlived(identity, row):
                    self.graves[identity] = row
            elif self.shape.is_older(row, old):
                counts["late"] += 1
            else:
                counts["deleted"] += 1
                self._bury(identity, row)
        return counts
