"""The other formats of a table, seen by readers of our own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import delta_tables
import iceberg_tables
import pyarrow as pa
from reader import bag
from worlds import MOR, SCHEMA, make

import mdt
from mdt.formats.delta import vectors
from mdt.formats.format import Format
from mdt.formats.registry import FORMATS
from mdt.formats.twins import FOLDER as TWINS
from mdt.stores.storage import MemoryStorage, Storage
from mdt.table import Table

Rows = Callable[[Storage, pa.Schema, int | None], pa.Table]
OthersRows = Callable[[Any, pa.Schema, int | None], Iterator[tuple[str, pa.Table]]]


@dataclass(frozen=True)
class View:
    """A format with a reader of ours.

    Attributes:
        rows: Returns the rows of a commit, None for the newest.
        others_rows: Yields the name of each other reader with the rows that it reads.
        newest_version: Returns the version that readers find.
        folders: Directories with objects of the format.
        pointer: The object that readers read first, and forged content for it.
        foreign: Content of a version of another writer, whose name is others-1.0.
    """

    form: Format
    rows: Rows
    others_rows: OthersRows
    newest_version: Callable[[Storage], int]
    folders: tuple[str, ...]
    pointer: tuple[str, bytes]
    foreign: bytes

    @property
    def options(self) -> dict[str, Any]:
        """Options of a table with the format."""
        return {
            "mdt.formats": f"hudi,{self.form.name}",
            "mdt.services.auto": "false",
            "mdt.formats.retain.hours": 0,
        }

    def table(
        self, kind: str = MOR, storage: Storage | None = None, **options: Any
    ) -> tuple[Storage, Table]:
        """Return a new table with the format, and its storage."""
        storage = MemoryStorage() if storage is None else storage
        return storage, make(storage, kind, "record", **{**self.options, **options})

    def assert_same_rows(self, storage: Storage, seq: int | None = None) -> None:
        """Assert that readers of the format see the newest commit, or an older one, as mdt does."""
        table = mdt.open(storage)
        assert self.newest_version(storage) == table.snapshot().seq
        ours = table.scan(as_of=seq).to_arrow()
        assert bag(self.rows(storage, SCHEMA, seq)) == bag(ours)


VIEWS = {
    "delta": View(
        FORMATS["delta"],
        delta_tables.delta_rows,
        delta_tables.others_rows,
        delta_tables.newest_version,
        (delta_tables.LOG, TWINS, vectors.FOLDER),
        ("_delta_log/_last_checkpoint", b'{"version": 999999999}'),
        b'{"commitInfo": {"engineInfo": "others-1.0"}}',
    ),
    "iceberg": View(
        FORMATS["iceberg"],
        iceberg_tables.iceberg_rows,
        iceberg_tables.others_rows,
        iceberg_tables.newest_version,
        (iceberg_tables.FOLDER, TWINS),
        (iceberg_tables.HINT, b"999999999"),
        b'{"snapshots": [{"summary": {"engine-name" : "others-1.0"}}]}',
    ),
}
