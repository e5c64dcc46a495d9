"""Write the golden tables: small tables of every kind, and the rows that they hold.

``python tests/golden/make.py`` writes ``tests/golden/v1/`` anew: for each table a ``<name>.zip``
with its directory as it stood on storage, and ``<name>.arrow`` with its rows.  The rows come from
the histories below, applied to a dictionary, not from a scan. What a version has written is never
made again once it is released: later versions must read it as it is.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent.parent))

import pyarrow as pa

import mdt
from mdt.metadata.files import paths
from mdt.schema.definition import FORMAT_VERSION
from mdt.services.reclaiming import cleaning
from mdt.stores.storage import MemoryStorage
from mdt.testing.faulty import Crash, FaultyStorage

FOLDER, OLDER = HERE / "v2", HERE / "v1"
"""Of tables of format 4, and of those of format 3, which are not made again."""
MADE_BY = "made_by.json"
COMMAND = "python tests/golden/make.py"
OPTIONS = {
    "mdt.writer.threads": 1,
    "mdt.reader.threads": 1,
    "mdt.row.group.rows": 16,
    "mdt.page.bytes": 256,
    "mdt.usage.counts": False,
    "mdt.durable": False,
    "mdt.small.file.bytes": 0,
}
"""One thread, so that the same bytes are made again; few rows a row group, so that there are
several.
"""
LATER_SECONDS = 7200
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("n", pa.int64()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("status", pa.string()),
        ("fare", pa.float64()),
        ("day", pa.date32()),
        ("note", pa.string()),
        ("at", pa.struct([("lat", pa.float64()), ("zip", pa.string())])),
    ]
)
NOTES = ("a black umbrella", "", "two red gloves", "Übergepäck, schwer", "one glove", None)
STATUS = ("paid", "lost", "found", None)
NAN = float("nan")

Row = dict[str, Any]


def row(i: int, ts: int = 1) -> Row:
    """Return one row; all but key and city change with ``ts``."""
    n = i * 7 + ts
    fare = (None, NAN, -0.0, float("inf"))[i % 4] if i % 10 == 9 else n / 4
    return {
        "id": f"id_{i:03}",
        "n": n,
        "city": ("Oslo", "Rome", "São Paulo/x")[i % 3],
        "ts": ts,
        "status": STATUS[n % 4],
        "fare": fare,
        "day": date(2026, 1, 1) + timedelta(days=n % 50),
        "note": NOTES[n % 6],
        "at": None if i % 11 == 5 else {"lat": n / 8, "zip": f"z{n % 5}"},
    }


@dataclass
class Golden:
    """A table in the making, and the rows that it must hold: key -> row."""

    name: str
    schema: pa.Schema = SCHEMA
    key: tuple[str, ...] = ("id",)
    storage: MemoryStorage = field(default_factory=MemoryStorage)
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)

    def create(self, options: Mapping[str, Any] | None = None, **settings: Any) -> mdt.Table:
        """Create the table."""
        named = {**OPTIONS, "mdt.table.name": self.name, **(options or {})}
        self.ordering = settings.get("ordering")
        return mdt.create(self.storage, self.schema, self.key, options=named, **settings)

    def key_of(self, one: Row) -> tuple[Any, ...]:
        return tuple(one[name] for name in self.key)

    def table(self, rows: Iterable[Row]) -> pa.Table:
        return pa.Table.from_pylist(list(rows), schema=self.schema)

    def upsert(self, rows: Iterable[Row]) -> None:
        """Upsert: the larger ordering value wins, at equal ones the later commit."""
        some = list(rows)
        self.open().upsert(self.table(some))
        for one in some:
            known = self.rows.get(self.key_of(one))
            if known is None or self.ordering is None or known[self.ordering] <= one[self.ordering]:
                self.rows[self.key_of(one)] = one

    def bulk_insert(self, rows: Iterable[Row]) -> None:
        some = list(rows)
        self.open().bulk_insert(self.table(some))
        self.rows.update({self.key_of(one): one for one in some})

    def delete(self, rows: Iterable[Row]) -> None:
        some = list(rows)
        self.open().delete(self.table(some))
        for one in some:
            self.rows.pop(self.key_of(one), None)

    def die(self, rows: list[Row], *, committed: bool) -> None:
        """Upsert, and die right before the commit, or right after it."""
        record = paths.commit(self.open().snapshot().seq + 1)
        before = after = self.storage
        for change in count(1):
            before, after = after, self.storage.copy()
            with suppress(Crash):
                mdt.open(FaultyStorage(after, change, "before")).upsert(self.table(rows))
            if after.size(record) is not None:
                break
        self.storage = after if committed else before
        if committed:
            self.rows.update({self.key_of(one): one for one in rows})

    def open(self) -> mdt.Table:
        return mdt.open(self.storage)

    def expected(self) -> pa.Table:
        """Return the rows in the order of their keys."""
        return self.table(self.rows[key] for key in sorted(self.rows))


def history(golden: Golden) -> None:
    """Loads, updates, a late arrival, deletes, a key that returns with a smaller ordering value."""
    golden.bulk_insert(row(i) for i in range(60))
    golden.upsert(row(i, 5) for i in range(50, 70))
    golden.upsert([row(3, 4), row(55, 2), row(200, 1)])
    golden.delete(row(i) for i in (1, 4, 52, 61, 999))
    golden.upsert([row(4, 1), row(52, 1)])


def copy_on_write(golden: Golden) -> None:
    golden.create(
        table_type="COPY_ON_WRITE", key_index="bloom", partition_by=["city"], ordering="ts"
    )
    history(golden)


def copy_on_write_record(golden: Golden) -> None:
    golden.create(
        table_type="COPY_ON_WRITE", key_index="record", options={"mdt.compression": "zstd"}
    )
    history(golden)


def merge_on_read(golden: Golden) -> None:
    golden.create(
        table_type="MERGE_ON_READ", key_index="bloom", partition_by=["city"], ordering="ts"
    )
    history(golden)


def merge_on_read_record(golden: Golden) -> None:
    options = {"mdt.compression": "snappy", "mdt.write.record.positions": True}
    golden.create(table_type="MERGE_ON_READ", key_index="record", scope="table", options=options)
    history(golden)


def compacted(golden: Golden) -> None:
    """Base files of a compaction, log files after it, metadata that are compacted every third
    commit.
    """
    options = {"mdt.metadata.compact.records": 3}
    golden.create(
        table_type="MERGE_ON_READ",
        key_index="record",
        partition_by=["city"],
        ordering="ts",
        options=options,
    )
    history(golden)
    golden.open().compact()
    golden.upsert(row(i, 9) for i in range(0, 70, 5))
    golden.delete([row(10), row(11)])


def indexed(golden: Golden) -> None:
    """Every skipping index, before and after the rows; one index dropped, one built again."""
    indexes = ["bitmap(status)", "bitmap(n)", "text(note)", "bloom(at.zip)", "table_stats(fare)"]
    golden.create(
        table_type="MERGE_ON_READ",
        key_index="record",
        partition_by=["city"],
        ordering="ts",
        indexes=indexes,
        options={"mdt.metadata.compact.records": 6},
    )
    history(golden)
    golden.open().create_index(["text(note, tokenizer='ngram(3)')", "bitmap(day)", "bloom(day)"])
    golden.open().drop_index("bloom(day)")
    golden.open().rebuild_index("bitmap(n)")
    golden.upsert(row(i, 9) for i in range(60, 80))


def half_indexed(golden: Golden) -> None:
    """An index that covers nothing yet, and one that covers half of the files."""
    golden.create(table_type="COPY_ON_WRITE", key_index="bloom")
    golden.bulk_insert(row(i) for i in range(30))
    golden.open().create_index(["bitmap(status)", "text(note)"], mode="async")
    golden.bulk_insert(row(i) for i in range(30, 60))


def moved(golden: Golden) -> None:
    """Two key columns, one of them a number; keys that are unique in the table and move to another
    partition.
    """
    golden.key = ("n", "id")
    golden.create(
        table_type="MERGE_ON_READ",
        key_index="record",
        scope="table",
        partition_by=["city", "status"],
        ordering="ts",
    )
    rows = [{**row(i), "n": i, "status": "a/b"} for i in range(30)]
    golden.bulk_insert(rows)
    golden.upsert({**one, "city": "Lima", "status": None, "ts": 2} for one in rows[:9])
    golden.delete(rows[3:6])


def rolled_back(golden: Golden) -> None:
    """One writer died before its commit and was rolled back, one after it and was published; a
    third has left its claim.
    """
    golden.create(
        table_type="MERGE_ON_READ", key_index="bloom", partition_by=["city"], ordering="ts"
    )
    golden.bulk_insert(row(i) for i in range(30))
    golden.die([row(i, 5) for i in range(20)], committed=False)
    golden.storage.sleep(LATER_SECONDS)
    golden.upsert(row(i, 6) for i in range(0, 30, 6))
    golden.die([row(i, 7) for i in range(0, 30, 7)], committed=True)
    golden.storage.sleep(LATER_SECONDS)
    golden.upsert(row(i, 8) for i in range(0, 30, 8))
    golden.die([row(i, 9) for i in range(20)], committed=False)


def altered(golden: Golden) -> None:
    """Columns that came, went, were widened and put in order, as Hudi's readers understand it; one
    alteration was taken back.
    """
    before = pa.schema(
        [
            ("junk", pa.string()),
            *(f for f in SCHEMA if f.name not in ("n", "status", "at")),
            ("n", pa.int32()),
            ("at", pa.struct([("lat", pa.float64())])),
        ]
    )
    golden.schema = before
    golden.create(
        table_type="COPY_ON_WRITE",
        key_index="record",
        partition_by=["city"],
        indexes=["bitmap(n)", "text(note)"],
    )
    golden.bulk_insert({**row(i), "junk": "j"} for i in range(40))
    golden.open().alter(
        add={"status": "string", "at.zip": "string"},
        widen={"n": "int64"},
        drop=["junk"],
        reorder=SCHEMA.names,
    )
    golden.schema = SCHEMA
    for one in golden.rows.values():
        at = one["at"]
        one |= {"status": None, "at": None if at is None else {**at, "zip": None}}
        del one["junk"]
    golden.upsert(row(i, 3) for i in range(30, 50))
    then = golden.open().snapshot().seq
    golden.open().alter(add={"more": "int64"}, drop=["note"])
    golden.open().delete(golden.table([row(1), row(31)]))
    golden.open().restore(then)
    golden.upsert([row(2, 4)])


def altered_beyond_hudi(golden: Golden) -> None:
    """Log files of three versions of a schema with a renamed column and one with a default."""
    golden.schema = pa.schema(
        [f if f.name != "note" else f.with_name("remark") for f in SCHEMA if f.name != "fare"]
    )
    golden.create(
        table_type="MERGE_ON_READ",
        key_index="bloom",
        partition_by=["city"],
        ordering="ts",
        indexes=["bitmap(status)"],
    )
    golden.bulk_insert({**row(i), "remark": row(i)["note"]} for i in range(30))
    golden.upsert({**row(i, 2), "remark": "again"} for i in range(0, 30, 4))
    golden.open().alter(rename={"remark": "note"}, beyond_hudi=True)
    golden.open().alter(
        add={"fare": "double"}, defaults={"fare": 12.5}, reorder=SCHEMA.names, beyond_hudi=True
    )
    golden.schema = SCHEMA
    for one in golden.rows.values():
        one |= {"note": one.pop("remark"), "fare": 12.5}
    golden.upsert(row(i, 5) for i in range(20, 35))


def aged(golden: Golden) -> None:
    """A table whose log is archived, with a tagged state before the horizon, a savepoint, clustered
    and joined files.
    """
    options = {"mdt.metadata.compact.records": 3, "mdt.services.auto": False}
    golden.create(
        table_type="MERGE_ON_READ",
        key_index="record",
        partition_by=["city"],
        ordering="ts",
        indexes=["bitmap(status)"],
        options=options,
    )
    golden.bulk_insert(row(i) for i in range(0, 40, 2))
    golden.bulk_insert(row(i) for i in range(1, 40, 2))
    golden.open().tag("loaded")
    golden.open().cluster(["n"], curve="sort")
    for ts in range(2, 12):
        golden.upsert(row(i, ts) for i in range(ts, 40, 9))
    golden.open().savepoint("saved", comment="before the deletes")
    golden.delete(row(i) for i in (5, 6))
    with patch.object(cleaning, "ARCHIVE_RECORDS_MIN", 1):
        golden.open().clean(retain_commits=2)
    for ts in range(20, 24):
        golden.upsert([row(7, ts)])


def emptied(golden: Golden) -> None:
    golden.create(table_type="MERGE_ON_READ", key_index="bloom", indexes=["bitmap(status)"])
    golden.bulk_insert(row(i) for i in range(20))
    golden.delete(row(i) for i in range(20))


def new(golden: Golden) -> None:
    golden.create(table_type="COPY_ON_WRITE", key_index="record", partition_by=["city"])


TYPES = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("flag", pa.bool_()),
        ("i8", pa.int8()),
        ("u8", pa.uint8()),
        ("i16", pa.int16()),
        ("u32", pa.uint32()),
        ("u64", pa.uint64()),
        ("f16", pa.float16()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("dec", pa.decimal128(20, 3)),
        ("wide", pa.decimal256(38, 2)),
        ("text", pa.large_string()),
        ("view", pa.string_view()),
        ("enum", pa.dictionary(pa.int8(), pa.string())),
        ("raw", pa.binary()),
        ("fixed", pa.binary(3)),
        ("day", pa.date32()),
        ("day64", pa.date64()),
        ("at", pa.timestamp("us", "UTC")),
        ("at_s", pa.timestamp("s", "Europe/Oslo")),
        ("local", pa.timestamp("ms")),
        ("nano", pa.timestamp("ns")),
        ("clock", pa.time32("ms")),
        ("clock64", pa.time64("ns")),
        ("wait", pa.duration("s")),
        ("list", pa.list_(pa.int8())),
        ("fixed_list", pa.list_(pa.int32(), 2)),
        ("map", pa.map_(pa.string(), pa.int8())),
        (
            "struct",
            pa.struct([pa.field("a", pa.uint16(), nullable=False), ("b", pa.list_(pa.string()))]),
        ),
    ]
)


def typed_row(i: int) -> Row:
    """Return one row of every type; a third of its values are null, never the same third."""
    at = datetime(2026, 3, 29, 1, 30) + timedelta(days=i, microseconds=0)
    day = date(1969, 12, 25) + timedelta(days=i)
    values: Row = {
        "id": i - 5,
        "flag": i % 2 == 0,
        "i8": i - 100,
        "u8": i + 200,
        "i16": -i,
        "u32": 2**32 - 1 - i,
        "u64": 2**64 - 1 - i,
        "f16": i / 2,
        "f32": (NAN, -0.0, 0.1)[i % 3],
        "f64": (float("-inf"), 1e300, -0.0)[i % 3],
        "dec": Decimal(i * 1001) / 1000 - 7,
        "wide": Decimal(-i) / 4,
        "text": "Ünïcode \U0001f697" * (i % 3),
        "view": f"view {i}" * 3,
        "enum": "ab"[i % 2],
        "raw": bytes(range(i % 4)),
        "fixed": bytes((i, 0, 255)),
        "day": day,
        "day64": day,
        "at": at,
        "at_s": at,
        "local": at,
        "nano": at,
        "clock": time(i % 24, 30),
        "clock64": time(23, 59, i),
        "wait": timedelta(seconds=i * 90 - 300),
        "list": [1, None, i][: i % 4],
        "fixed_list": [i, None],
        "map": [("a", i), ("b", None)][: i % 3],
        "struct": {"a": i, "b": ["x", None][: i % 3]},
    }
    kept = (
        (name, value)
        for place, (name, value) in enumerate(values.items())
        if not place or (place + i) % 3
    )
    return {name: None for name in values} | dict(kept)


def types(golden: Golden) -> None:
    golden.schema = TYPES
    golden.create(
        table_type="MERGE_ON_READ",
        key_index="bloom",
        indexes=["bitmap(u8)", "bitmap(at)", "bloom(dec)"],
    )
    golden.bulk_insert(typed_row(i) for i in range(24))
    golden.upsert({**typed_row(i + 1), "id": i - 5} for i in range(20, 30))


def keyed(golden: Golden) -> None:
    golden.create(
        table_type="MERGE_ON_READ", key_index="record", partition_by=["city"], ordering="ts"
    )
    history(golden)


def rekeyed(golden: Golden) -> None:
    """Files of the checkpoint and later ones get another key hash, and files follow."""
    golden.create(
        table_type="MERGE_ON_READ",
        key_index="bloom",
        ordering="ts",
        options={"mdt.metadata.compact.records": 4},
    )
    history(golden)
    golden.open().rekey()
    golden.upsert(row(i, 6) for i in range(60, 80))


NEW = ("keyed", "rekeyed")
TABLES: dict[str, Callable[[Golden], None]] = {
    make.__name__: make
    for make in (
        copy_on_write,
        copy_on_write_record,
        merge_on_read,
        merge_on_read_record,
        compacted,
        indexed,
        half_indexed,
        moved,
        rolled_back,
        emptied,
        new,
        types,
        altered,
        altered_beyond_hudi,
        aged,
        keyed,
        rekeyed,
    )
}
"""Name -> what happens to the table."""


def made(name: str) -> Golden:
    """Return a table, made now."""
    golden = Golden(name)
    TABLES[name](golden)
    return golden


def folder_of(name: str) -> Path:
    """Return where a table is stored."""
    return FOLDER if name in NEW else OLDER


def write(golden: Golden, folder: Path) -> None:
    """Write a table's files and rows; equal tables give equal bytes."""
    with zipfile.ZipFile(
        folder / f"{golden.name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9
    ) as packed:
        for info in golden.storage.list(""):
            entry = zipfile.ZipInfo(info.path)  # of 1980, whenever it is written
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, golden.storage.read(info.path))
    expected = golden.expected()
    with (
        pa.OSFile(str(folder / f"{golden.name}.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, expected.schema) as writer,
    ):
        writer.write_table(expected)


def main() -> None:
    """Write all tables."""
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    for name in NEW:
        write(made(name), FOLDER)
    by = {"version": mdt.__version__, "format": FORMAT_VERSION, "pyarrow": pa.__version__}
    (FOLDER / MADE_BY).write_text(json.dumps(by, indent=1) + "\n")
    print(
        f"{len(NEW)} tables, {sum(file.stat().st_size for file in FOLDER.iterdir()):,} bytes in"
        f" {FOLDER}"
    )


if __name__ == "__main__":
    main()
