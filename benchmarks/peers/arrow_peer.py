"""pyarrow datasets: plain Parquet files without a table; it reads and cannot upsert."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.dataset as ds

from benchmarks.peers import Peer
from benchmarks.trips import Key


class ArrowDataset(Peer):
    """Parquet files in a directory."""

    upserts = False

    def load(self, rows: pa.Table) -> None:
        self._schema = rows.schema
        size = -(-rows.num_rows // (self.files or 1))
        options = ds.ParquetFileFormat().make_write_options(compression="zstd")
        ds.write_dataset(
            rows,
            self.path,
            format="parquet",
            file_options=options,
            max_rows_per_file=size,
            max_rows_per_group=size,
        )

    def lookup(self, keys: Sequence[Key]) -> pa.Table:
        return self._dataset().to_table(filter=ds.field("id").isin(keys))

    def scan(self) -> pa.Table:
        return self._dataset().to_table()

    def _dataset(self) -> ds.Dataset:
        return ds.dataset(self.path, schema=self._schema, format="parquet")
