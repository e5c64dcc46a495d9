"""pyiceberg: upserts by key into a table in a SQLite catalog."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import In

from benchmarks.peers import Peer
from benchmarks.trips import Key


class Iceberg(Peer):
    """An Iceberg table, whose files with replaced rows are written anew."""

    def load(self, rows: pa.Table) -> None:
        folder = Path(self.path)
        uri = f"sqlite:///{folder}/catalog.db"
        self._catalog = SqlCatalog("local", uri=uri, warehouse=folder.as_uri())
        self._catalog.create_namespace("trips")
        self._table = self._catalog.create_table("trips.trips", rows.schema)
        self._table.append(rows)

    def upsert(self, rows: pa.Table) -> None:
        self._table.upsert(rows, join_cols=["id"])

    def lookup(self, keys: Sequence[Key]) -> pa.Table:
        return self._table.scan(In("id", keys)).to_arrow()

    def scan(self) -> pa.Table:
        return self._table.scan().to_arrow()

    def reopen(self) -> None:
        self._table = self._catalog.load_table("trips.trips")
