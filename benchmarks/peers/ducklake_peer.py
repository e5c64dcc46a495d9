"""DuckLake: data in Parquet files, metadata in a file of duckdb; rows are found by their key
through bounds of files alone.

It runs where ``duckdb`` and ``duckdb-extension-ducklake`` of the same version are installed, which
may be another environment than mdt's (option ``--ducklake``): nothing here is imported but duckdb
and Arrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import duckdb
import pyarrow as pa

from benchmarks.peers import Peer, sql_list
from benchmarks.trips import Key

_MERGE = """merge into trips using batch on (trips.id = batch.id)
            when matched then update when not matched then insert"""
_TIDY = (
    "ducklake_flush_inlined_data('lake')",
    "ducklake_expire_snapshots('lake', older_than => now())",
    "ducklake_merge_adjacent_files('lake')",
    "ducklake_rewrite_data_files('lake')",
    "ducklake_cleanup_old_files('lake', cleanup_all => true)",
)


class DuckLake(Peer):
    """A table in a lake of its own, sorted by key as it is loaded."""

    def load(self, rows: pa.Table) -> None:
        self.reopen()
        self._with_batch("create table trips as select * from batch", rows)

    def upsert(self, rows: pa.Table) -> None:
        self._with_batch(_MERGE, rows)

    def tidy(self) -> None:
        for call in _TIDY:
            self.connection.execute(f"call {call}")

    def reopen(self) -> None:
        found = find_spec("duckdb_extension_ducklake")
        assert found is not None and found.origin is not None, (
            "pip install duckdb-extension-ducklake"
        )
        extension = next(Path(found.origin).parent.rglob("ducklake.duckdb_extension"))
        if hasattr(self, "connection"):
            self.connection.close()
        self.connection = duckdb.connect()
        self.connection.execute("set enable_progress_bar = false")
        self.connection.execute(f"load '{extension}'")
        self.connection.execute(
            f"attach 'ducklake:{self.path}/lake.ducklake' as lake (data_path '{self.path}/data/')"
        )
        self.connection.execute("use lake")

    def lookup(self, keys: Sequence[Key]) -> pa.Table:
        return self.connection.execute(
            f"select * from trips where id in {sql_list(keys)}"
        ).to_arrow_table()

    def scan(self) -> pa.Table:
        return self.connection.sql("select * from trips").to_arrow_table()

    def _with_batch(self, sql: str, rows: pa.Table) -> None:
        self.connection.register("batch", rows)
        self.connection.execute(sql)
        self.connection.unregister("batch")
