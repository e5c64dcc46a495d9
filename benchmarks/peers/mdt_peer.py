"""mdt: merge-on-read, record index, in-process engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from obstore.store import LocalStore

import mdt
from benchmarks.peers import Peer, bytes_a_row, sql_list
from benchmarks.queries import Query
from benchmarks.trips import FILES, Key
from mdt.metadata import references
from mdt.stores.object_store import ObjectStorage

BYTES_A_ROW = 80
"""Of a base file, measured: sets the number of files."""
INDEXES = (
    "bitmap(status)",
    "bitmap(city)",
    "bitmap(age)",
    "bitmap(fare)",
    "bitmap(rider)",
    "text(note, tokenizer='word')",
)


class Mdt(Peer):
    """The table under test."""

    indexes = True
    filters = True
    after_only = True
    formats: ClassVar[Sequence[str]] = ("hudi",)

    def load(self, rows: pa.Table) -> None:
        options = {}
        if self.files is not None:
            options["mdt.max.file.bytes"] = max(
                1024, rows.num_rows * bytes_a_row(rows, BYTES_A_ROW) // self.files
            )
        self.table = mdt.create(
            self.path,
            rows.schema,
            key=["id"],
            ordering="ts",
            table_type="MERGE_ON_READ",
            key_index="record",
            formats=self.formats,
            options=options,
        )
        self.table.bulk_insert(rows)

    def upsert(self, rows: pa.Table) -> None:
        self.table.upsert(rows)

    def delete_where(self, where: str) -> int:
        return self.table.delete_where(where).deleted

    def update_where(self, column: str, value: str, where: str) -> int:
        return self.table.update_where({column: value}, where).updated

    def merge(self, rows: pa.Table, *, whole: bool) -> int:
        merge = self.table.merge(rows)
        if whole:
            merge = merge.when_matched().update("*")
        else:
            newer = merge.when_matched("source.ts > target.ts")
            merge = newer.update({"fare": "source.fare", "ts": "source.ts"})
        done = merge.when_not_matched().insert().execute()
        return done.updated + done.inserted

    def compact(self) -> None:
        self.table.compact()

    def cluster(self, by: Sequence[str], curve: str) -> None:
        size = pc.sum(self.table.files()["size"]).as_py() // FILES
        mdt.open(self.path, {"mdt.max.file.bytes": size}).cluster(by, curve=curve)

    def commit(self) -> int:
        return self.table.snapshot().seq

    def changes(self, commit: int, before: bool = True) -> pa.Table:
        return self.table.changes(commit - 1, commit, mode="all", before=before).to_arrow()

    @contextmanager
    def reads_counted(self) -> Iterator[None]:
        """Open the table as in an object store, whose files no process can map."""
        self.table = mdt.open(ObjectStorage(f"file://{self.path}", LocalStore(self.path)))
        yield
        self.reopen()

    def referred(self) -> int:
        paths = references.all_paths(self.table.metadata, self.table.metadata.newest()).to_pylist()
        return sum(Path(self.path, path).stat().st_size for path in paths)

    def reopen(self) -> None:
        self.table = mdt.open(self.path)

    def lookup(self, keys: Sequence[Key]) -> pa.Table:
        return self.table.get(list(keys))

    def filtered(self, keys: Sequence[Key]) -> pa.Table:
        where = f"id = {sql_list(keys)[1:-1]}" if len(keys) == 1 else [("id", "in", tuple(keys))]
        return self.table.scan(where=where).to_arrow()

    def index(self) -> int:
        self.table.create_index(INDEXES)
        return int(pc.sum(self.table.indexes()["bytes"]).as_py())

    def query(self, query: Query) -> pa.Table:
        return self.table.scan(query.sql("match(note, '{}')")).to_arrow()

    def scan(self) -> pa.Table:
        return self.table.scan().to_arrow()


class MdtDelta(Mdt):
    """The table under test with a Delta log."""

    formats = ("hudi", "delta")


class MdtAll(Mdt):
    """The table under test with the metadata of all formats."""

    formats = ("hudi", "delta", "iceberg")
