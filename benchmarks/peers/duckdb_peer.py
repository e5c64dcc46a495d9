"""duckdb: its own file, a primary key (an adaptive radix tree in memory)."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa

from benchmarks.peers import Peer, sql_list
from benchmarks.queries import Query
from benchmarks.trips import Key

COLUMNS = """id {} primary key, ts bigint, city varchar, rider varchar, status varchar, fare double,
             distance double, age bigint, note varchar"""
MORE = ", geo struct(lat double, lon double, zone bigint), tip double, detail varchar"


class DuckDB(Peer):
    """A table with a primary key; its other index (rider) is part of the file, so its bytes are not
    known.
    """

    indexes = True

    def load(self, rows: pa.Table) -> None:
        self.connection = duckdb.connect(f"{self.path}/trips.duckdb")
        self.connection.execute("set enable_progress_bar = false")
        columns = COLUMNS.format(
            "bigint" if pa.types.is_integer(rows.schema.field("id").type) else "varchar"
        )
        more = MORE if "geo" in rows.schema.names else ""
        self.connection.execute(f"create table trips ({columns}{more})")
        self._change("insert into trips select * from batch", rows)

    def upsert(self, rows: pa.Table) -> None:
        self._change("insert or replace into trips select * from batch", rows)

    def lookup(self, keys: Sequence[Key]) -> pa.Table:
        # The quicker call for few rows; for many it copies them once more than a relation does.
        return self.connection.execute(
            f"select * from trips where id in {sql_list(keys)}"
        ).to_arrow_table()

    def index(self) -> int:
        self.connection.execute("create index by_rider on trips (rider)")
        return 0

    def query(self, query: Query) -> pa.Table:
        return self.connection.execute(f"select * from trips where {query.sql()}").to_arrow_table()

    def scan(self) -> pa.Table:
        return self.connection.sql("select * from trips").to_arrow_table()

    def _change(self, sql: str, rows: pa.Table) -> None:
        self.connection.register("batch", rows)
        self.connection.execute(sql)
        self.connection.unregister("batch")
