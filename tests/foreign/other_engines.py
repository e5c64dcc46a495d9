"""Compares the answers of Trino, Presto, Athena or Hive with ours, by their command lines. By hand:
see README.md of this folder.

``make`` puts tables with Hudi's metadata table below a location and enters them in a Hive
metastore. ``check`` asks an engine for each of them and compares its answers.
"""

from __future__ import annotations

import argparse
import csv
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa

import mdt
from mdt.catalogs import HiveMetastore

SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.int64())]
)
KINDS = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}
OPTIONS = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
}
WHERES = ("", "where id = 'k017'", "where city = 'oslo'", "where v between 20 and 40")


def rows(numbers: range, ts: int) -> pa.Table:
    cities = ("oslo", "paris", "rome")
    values = [{"id": f"k{n:03}", "city": cities[n % 3], "ts": ts, "v": n + ts} for n in numbers]
    return pa.Table.from_pylist(values, SCHEMA)


def names(version: int) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the name, the type and the partition columns of each table."""
    for short, kind in KINDS.items():
        for by in ([], ["city"]):
            yield f"mdt_{short}_{version}{'_by_city' * len(by)}", kind, by


def make(location: str, version: int, metastore: str, database: str) -> None:
    """Make tables with updates, deletes and services. Their log files are merged at the end, as
    some engines read base files only.
    """
    for name, kind, by in names(version):
        table = mdt.create(
            f"{location.rstrip('/')}/{name}",
            SCHEMA,
            key=["id"],
            partition_by=by,
            ordering="ts",
            scope="table",
            table_type=kind,
            version=version,
            options=OPTIONS,
        )
        for ts in range(15):
            table.upsert(rows(range(10 * ts, 10 * ts + 30), ts))
        table.delete(rows(range(5), 100))
        table.cluster(["v"])
        table.upsert(rows(range(60, 90), 50))
        table.compact()
        if metastore:
            mdt.register(table, HiveMetastore(metastore), f"{database}.{name}")
        print(f"made {table.path}")


def check(location: str, version: int, command: str, database: str) -> bool:
    """Compare the counts and sums of an engine with ours. Return True if all are equal."""
    is_equal = True
    for name, _, _ in names(version):
        table = mdt.open(f"{location.rstrip('/')}/{name}")
        for where in WHERES:
            values = table.scan(where=where.removeprefix("where ") or None).to_arrow()["v"]
            expected = [len(values), sum(values.to_pylist())]
            answer = ask(command, f"select count(*), sum(v) from {database}.{name} {where}")
            if answer != expected:
                is_equal = False
            verdict = "equal" if answer == expected else f"DIFFERS: {answer}, not {expected}"
            print(f"{name} {where or 'all rows'}: {verdict}")
    return is_equal


def ask(command: str, query: str) -> list[int] | None:
    """Return the numbers of the last line that the engine prints, or None if there are none."""
    process = subprocess.run(
        [*shlex.split(command), query], capture_output=True, text=True, check=False
    )
    lines = [line for line in process.stdout.splitlines() if line.strip()]
    try:
        return [int(text) for text in next(csv.reader(lines[-1:]))]
    except (StopIteration, ValueError):
        print(json.dumps(process.stderr[-1000:]), file=sys.stderr)
        return None


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["make", "check"])
    parser.add_argument("location", help="where the tables are: a folder, or a URL of a store")
    parser.add_argument("--version", type=int, default=6, help="table version, 6 or 9")
    parser.add_argument("--metastore", default="", help="thrift://… of a Hive metastore")
    parser.add_argument("--database", default="default")
    parser.add_argument("--command", default="", help="a command line that gets a query")
    parsed = parser.parse_args(arguments)
    if parsed.action == "make":
        make(parsed.location, parsed.version, parsed.metastore, parsed.database)
        return 0
    return 0 if check(parsed.location, parsed.version, parsed.command, parsed.database) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
