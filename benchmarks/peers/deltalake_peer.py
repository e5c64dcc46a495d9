"""deltalake (delta-rs): merge by key, queries through its own DataFusion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from benchmarks.peers import Peer, bytes_a_row, bytes_below, sql_list
from benchmarks.trips import FILES, Key

BYTES_A_ROW = 110
"""Of its Parquet files, measured: sets the number of files."""


class DeltaLake(Peer):
    """A Delta table."""

    configuration: ClassVar[dict[str, str | None]] = {}
    """Properties of the table."""

    def load(self, rows: pa.Table) -> None:
        size = (
            None
            if self.files is None
            else max(1, rows.num_rows * bytes_a_row(rows, BYTES_A_ROW) // self.files)
        )
        write_deltalake(self.path, rows, target_file_size=size, configuration=self.configuration)
        self.table = DeltaTable(self.path)

    def upsert(self, rows: pa.Table) -> None:
        merge = self.table.merge(rows, "old.id = new.id", source_alias="new", target_alias="old")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def delete_where(self, where: str) -> int:
        return int(self.table.delete(where)["num_deleted_rows"])

    def update_where(self, column: str, value: str, where: str) -> int:
        return int(self.table.update({column: value}, predicate=where)["num_updated_rows"])

    def merge(self, rows: pa.Table, *, whole: bool) -> int:
        merge = self.table.merge(
            rows, "target.id = source.id", source_alias="source", target_alias="target"
        )
        if whole:
            merge = merge.when_matched_update_all()
        else:
            merge = merge.when_matched_update(
                {"fare": "source.fare", "ts": "source.ts"}, predicate="source.ts > target.ts"
            )
        done = merge.when_not_matched_insert_all().execute()
        return int(done["num_target_rows_updated"] + done["num_target_rows_inserted"])

    def tidy(self) -> None:
        self.table.optimize.compact()
        self.table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        self.table.create_checkpoint()
        self.table.cleanup_metadata()

    def compact(self) -> None:
        self.table.optimize.compact()

    def cluster(self, by: Sequence[str], curve: str) -> None:
        self.table.optimize.z_order(by, target_size=bytes_below(self.path) // FILES)

    def commit(self) -> int:
        return self.table.version()

    def changes(self, commit: int, before: bool = True) -> pa.Table:
        return pa.table(self.table.load_cdf(commit, commit))

    def reopen(self) -> None:
        self.table = DeltaTable(self.path)

    def lookup(self, keys: Sequence[Key]) -> pa.Table:
        return self._query(f"select * from trips where id in {sql_list(keys)}")

    def scan(self) -> pa.Table:
        return self._query("select * from trips")

    def _query(self, sql: str) -> pa.Table:
        return pa.table(QueryBuilder().register("trips", self.table).execute(sql).read_all())


class DeltaLakeFeed(DeltaLake):
    """A Delta table that keeps a change data feed."""

    configuration: ClassVar[dict[str, str | None]] = {"delta.enableChangeDataFeed": "true"}
