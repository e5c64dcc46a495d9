"""Apache Paimon by pypaimon: a table with a primary key, in hash buckets; newer rows are merged
over older ones when they are read.

It runs where ``pypaimon`` is installed, which wants an older Arrow than mdt: nothing here is
imported but that and Arrow. Deletion vectors are left off: with them a scan before a compaction
returns no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory, Schema

from benchmarks.peers import Peer
from benchmarks.trips import Key

_TABLE = "default.trips"
_OPTIONS = {"bucket": "2"}
"""As many buckets as there are processors here: each is written and read by one thread."""


class Paimon(Peer):
    """A table in a warehouse of its own."""

    def load(self, rows: pa.Table) -> None:
        catalog = self._catalog()
        catalog.create_database("default", True)
        schema = Schema.from_pyarrow_schema(rows.schema, primary_keys=["id"], options=_OPTIONS)
        catalog.create_table(_TABLE, schema, False)
        self.reopen()
        self.upsert(rows)

    def upsert(self, rows: pa.Table) -> None:
        builder = self.table.new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        try:
            write.write_arrow(rows)
            commit.commit(write.prepare_commit())
        finally:
            write.close()
            commit.close()

    def reopen(self) -> None:
        self.table = self._catalog().get_table(_TABLE)

    def lookup(self, keys: Sequence[Key]) -> pa.Table:
        builder = self.table.new_read_builder()
        return self._read(
            builder.with_filter(builder.new_predicate_builder().is_in("id", list(keys)))
        )

    def scan(self) -> pa.Table:
        return self._read(self.table.new_read_builder())

    def _catalog(self) -> Any:
        return CatalogFactory.create({"warehouse": self.path})

    def _read(self, builder: Any) -> pa.Table:
        found: pa.Table = builder.new_read().to_arrow(builder.new_scan().plan().splits())
        return found
