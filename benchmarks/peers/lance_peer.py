"""lance: its own format, a B-tree over the key."""

from __future__ import annotations

from collections.abc import Sequence

import lance
import pyarrow as pa

from benchmarks.peers import Peer, sql_list
from benchmarks.trips import FILES


class Lance(Peer):
    """A lance dataset with a scalar index on the key."""

    def load(self, rows: pa.Table) -> None:
        self.dataset = lance.write_dataset(rows, f"{self.path}/trips", max_rows_per_file=-(-rows.num_rows // FILES))
        self.dataset.create_scalar_index("id", "BTREE")

    def upsert(self, rows: pa.Table) -> None:
        self.dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)

    def lookup(self, keys: Sequence[str]) -> pa.Table:
        return self.dataset.to_table(filter=f"id in {sql_list(keys)}")

    def scan(self) -> pa.Table:
        return self.dataset.to_table()
