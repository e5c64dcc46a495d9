"""lance: its own format, a B-tree over the key."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import lance
import pyarrow as pa

from benchmarks.peers import Peer, bytes_below, sql_list
from benchmarks.queries import Query
from benchmarks.trips import Key

INDEXES = (
    ("status", "BITMAP"),
    ("city", "BITMAP"),
    ("age", "BITMAP"),
    ("fare", "BTREE"),
    ("rider", "BTREE"),
    ("note", "NGRAM"),
)


class Lance(Peer):
    """A lance dataset with a scalar index on the key."""

    indexes = True

    def load(self, rows: pa.Table) -> None:
        size = {} if self.files is None else {"max_rows_per_file": -(-rows.num_rows // self.files)}
        self.dataset = lance.write_dataset(rows, f"{self.path}/trips", **size)
        self.dataset.create_scalar_index("id", "BTREE")

    def upsert(self, rows: pa.Table) -> None:
        self.dataset.merge_insert(
            "id"
        ).when_matched_update_all().when_not_matched_insert_all().execute(rows)

    def delete_where(self, where: str) -> None:
        self.dataset.delete(where)

    def update_where(self, column: str, value: str, where: str) -> int:
        return int(self.dataset.update({column: value}, where=where)["num_rows_updated"])

    def tidy(self) -> None:
        self.dataset.optimize.compact_files()
        self.dataset.optimize.optimize_indices()
        self.dataset.cleanup_old_versions(timedelta(0))

    def reopen(self) -> None:
        self.dataset = lance.dataset(f"{self.path}/trips")

    def lookup(self, keys: Sequence[Key]) -> pa.Table:
        return self.dataset.to_table(filter=f"id in {sql_list(keys)}")

    def index(self) -> int:
        before = bytes_below(self.path)
        for column, kind in INDEXES:
            self.dataset.create_scalar_index(column, kind)
        return bytes_below(self.path) - before

    def query(self, query: Query) -> pa.Table:
        return self.dataset.to_table(filter=query.sql())

    def scan(self) -> pa.Table:
        return self.dataset.to_table()
