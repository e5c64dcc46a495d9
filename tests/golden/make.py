"""Write the golden tables of this version: small tables and their expected rows.

``python tests/golden/make.py`` writes ``tests/golden/v2/`` from scratch: for each table a
``<name>.zip`` with its directory and ``<name>.arrow`` with its rows. The rows come from the
histories below, applied to a dictionary, not from a scan. Tables of a released version are never
rewritten: later versions must read them as they are.
"""

import json
import sys
import zipfile
from datetime import date, timedelta
from pathlib import Path

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent.parent))

import pyarrow as pa

import mdt
from mdt.schema.definition import FORMAT_VERSION
from mdt.stores.storage import MemoryStorage

FOLDER, OLDER = HERE / "v2", HERE / "v1"
"""Tables of format 4, and tables of format 3, which are not regenerated."""
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
"""One thread, so that the same bytes are written again. Few rows per row group, so that there are
several.
"""
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


def row(i, ts=1):
    """Return one row. All columns except key and city change with ``ts``."""
    n = i * 7 + ts
    odd_fare = (None, float("nan"), -0.0, float("inf"))[i % 4]
    return {
        "id": f"id_{i:03}",
        "n": n,
        "city": ("Oslo", "Rome", "São Paulo/x")[i % 3],
        "ts": ts,
        "status": STATUS[n % 4],
        "fare": odd_fare if i % 10 == 9 else n / 4,
        "day": date(2026, 1, 1) + timedelta(days=n % 50),
        "note": NOTES[n % 6],
        "at": None if i % 11 == 5 else {"lat": n / 8, "zip": f"z{n % 5}"},
    }


class Golden:
    """A table under construction, and the rows that it must have: id -> row."""

    def __init__(self, name, options=None, **settings):
        named = {**OPTIONS, "mdt.table.name": name, **(options or {})}
        self.name, self.rows = name, {}
        self.table = mdt.create(
            MemoryStorage(),
            SCHEMA,
            ["id"],
            ordering="ts",
            table_type="MERGE_ON_READ",
            options=named,
            **settings,
        )

    def upsert(self, rows):
        """Upsert rows. The larger ordering value wins, and of equal ones the later commit."""
        self._opened().upsert(pa.Table.from_pylist(rows, SCHEMA))
        for new_row in rows:
            current_row = self.rows.get(new_row["id"])
            if current_row is None or current_row["ts"] <= new_row["ts"]:
                self.rows[new_row["id"]] = new_row

    def write_history(self):
        """Load, update, upsert late rows, delete, and insert again with smaller ordering values."""
        first = [row(i) for i in range(60)]
        self._opened().bulk_insert(pa.Table.from_pylist(first, SCHEMA))
        self.rows.update({loaded_row["id"]: loaded_row for loaded_row in first})
        self.upsert([row(i, 5) for i in range(50, 70)])
        self.upsert([row(3, 4), row(55, 2), row(200, 1)])
        deleted_rows = [row(i) for i in (1, 4, 52, 61, 999)]
        self._opened().delete(pa.Table.from_pylist(deleted_rows, SCHEMA))
        for deleted_row in deleted_rows:
            self.rows.pop(deleted_row["id"], None)
        self.upsert([row(4, 1), row(52, 1)])

    def rekey(self):
        self._opened().rekey()

    def _opened(self):
        return mdt.open(self.table.storage)

    def write(self):
        """Write the files and rows of the table. Equal tables give equal bytes."""
        target, storage = FOLDER / f"{self.name}.zip", self.table.storage
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
            for info in storage.list(""):
                entry = zipfile.ZipInfo(info.path)  # always dated 1980
                entry.compress_type = zipfile.ZIP_DEFLATED
                packed.writestr(entry, storage.read(info.path))
        expected = pa.Table.from_pylist([self.rows[key] for key in sorted(self.rows)], SCHEMA)
        with (
            pa.OSFile(str(FOLDER / f"{self.name}.arrow"), "wb") as sink,
            pa.ipc.new_file(sink, expected.schema) as writer,
        ):
            writer.write_table(expected)


def keyed():
    golden = Golden("keyed", key_index="record", partition_by=["city"])
    golden.write_history()
    return golden


def rekeyed():
    """A table rekeyed after a checkpoint, with an upsert under the new key hash."""
    golden = Golden("rekeyed", {"mdt.metadata.compact.records": 4}, key_index="bloom")
    golden.write_history()
    golden.rekey()
    golden.upsert([row(i, 6) for i in range(60, 80)])
    return golden


def version_9():
    """A table version 9 of Hudi after a compaction and a clustering, with later log files."""
    golden = Golden("version_9", key_index="record", partition_by=["city"], version=9)
    golden.write_history()
    golden.table.compact()
    golden.table.cluster(["fare"])
    golden.upsert([row(i, 7) for i in range(20, 30)])
    return golden


def main():
    """Write all tables."""
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    for make in (keyed, rekeyed, version_9):
        make().write()
    by = {"version": mdt.__version__, "format": FORMAT_VERSION, "pyarrow": pa.__version__}
    (FOLDER / MADE_BY).write_text(json.dumps(by, indent=1) + "\n")
    size = sum(file.stat().st_size for file in FOLDER.iterdir())
    print(f"{size:,} bytes in {FOLDER}")


if __name__ == "__main__":
    main()
