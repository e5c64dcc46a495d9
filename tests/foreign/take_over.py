"""Random histories of ours, each handed to Hudi's own Spark writer at random commits; see README.md beside this file."""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import mdt
from mdt.errors import Unsupported
from mdt.table import Table

SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.int64()), ("note", pa.string())]
)
KEYS = 120
CITIES = ("x", "y", "z")
Row = tuple[str, str, int, int, str]
KEEP_VERSION = {"hoodie.write.table.version": "6", "hoodie.write.auto.upgrade": "false"}
LOCAL = ("BLOOM", "SIMPLE")
GLOBAL = ("GLOBAL_BLOOM", "GLOBAL_SIMPLE")


@dataclass(frozen=True)
class Kind:
    """A kind of table."""

    table_type: str
    key_index: str
    scope: str
    partitioned: bool
    ordering: str

    def create(self, path: Path, max_bytes: int) -> Table:
        """Create an empty table with small files."""
        return mdt.create(
            path, SCHEMA, ["id"], partition_by=["city"] if self.partitioned else [], ordering=self.ordering or None,
            table_type=self.table_type, key_index=self.key_index, scope=self.scope,
            options={"hoodie.parquet.max.file.size": max_bytes, "mdt.durable": False, "mdt.table.name": "taken"},
        )  # fmt: skip

    def identity(self, row: Row) -> Any:
        """Return what may live once."""
        return (row[1], row[0]) if self.partitioned and self.scope == "partition" else row[0]

    def place(self, row: Row) -> tuple[str, str]:
        """Return partition and key."""
        return (row[1] if self.partitioned else "", row[0])

    def indexes(self) -> tuple[str, ...]:
        """Return the indexes of Hudi's that mean the same as ours.

        Hudi's Bloom and simple indexes read base files only, so they find the keys of a record index only where there are no
        inserts in log files; footers of such tables have no Bloom filters.
        """
        is_global = self.scope == "table" or not self.partitioned
        if self.key_index == "record" and self.table_type == "MERGE_ON_READ":
            return ("RECORD_INDEX",) if is_global else ()
        if self.key_index == "record":
            return ("SIMPLE", "GLOBAL_SIMPLE") if is_global else ("SIMPLE",)
        return LOCAL if self.partitioned and self.scope == "partition" else LOCAL + GLOBAL


@dataclass
class History:
    """A table with what it must hold: identity -> row, and the places in which a key has died."""

    kind: Kind
    folder: Path
    draw: random.Random
    rows: dict[Any, Row] = field(default_factory=dict)
    dead: dict[tuple[str, str], Row] = field(default_factory=dict)
    clock: int = 0

    def __post_init__(self) -> None:
        self.table = self.kind.create(self.folder, self.draw.choice((4_000, 8_000, 1 << 20)))

    def fresh(self, key: int, city: str | None = None) -> Row:
        """Return a row that is newer than all before."""
        self.clock += 1
        return (
            f"k{key:03}",
            city or self.draw.choice(CITIES),
            self.clock,
            self.draw.randrange(1000),
            f"n{self.clock % 7}",
        )

    def step(self) -> str:
        """Do one thing at random."""
        name = self.draw.choice(("upsert", "upsert", "upsert", "delete", "delete", "back", "back", "compact"))
        if name == "upsert":
            self.upsert([self.fresh(key) for key in self.draw.sample(range(KEYS), self.draw.randrange(1, 40))])
        elif name == "delete" and self.rows:
            gone = self.draw.sample(sorted(self.rows.values()), min(len(self.rows), self.draw.randrange(1, 30)))
            self.table.delete(arrow(gone))
            self.remove(gone)
        elif name == "back" and self.dead:
            back = self.draw.sample(sorted(self.dead.values()), min(len(self.dead), self.draw.randrange(1, 20)))
            back = list({self.kind.identity(row): row for row in back}.values())
            self.upsert([self.fresh(int(row[0][1:]), row[1]) for row in back])
        elif name == "compact":
            self.table.compact()
        return name

    def upsert(self, rows: list[Row]) -> None:
        self.table.upsert(arrow(rows))
        self.put(rows)

    def put(self, rows: list[Row]) -> None:
        """Upsert into the model; a row that moves dies where it was."""
        for row in rows:
            old = self.rows.get(self.kind.identity(row))
            if old is not None and self.kind.place(old) != self.kind.place(row):
                self.dead[self.kind.place(old)] = old
            self.rows[self.kind.identity(row)] = row
            self.dead.pop(self.kind.place(row), None)

    def remove(self, rows: list[Row]) -> None:
        for row in rows:
            found = self.rows.pop(self.kind.identity(row), None)
            if found is not None:
                self.dead[self.kind.place(found)] = found


def arrow(rows: list[Row]) -> pa.Table:
    """Return rows as a table."""
    return pa.table([list(column) for column in zip(*rows, strict=True)] if rows else [[]] * 5, schema=SCHEMA)


@dataclass
class Job:
    """One take-over: what Hudi is told, and the rows that must be there afterwards."""

    said: dict[str, Any]
    expected: list[Row]
    opened: Table


def jobs_of(kind: Kind, folder: Path, draw: random.Random, numbers: Iterator[int], commits: int) -> Iterator[Job]:
    """Yield the take-overs of one history."""
    history = History(kind, folder / "ours", draw)
    history.upsert([history.fresh(key) for key in range(0, KEYS, 2)])
    for step in range(commits):
        name = history.step()
        if not kind.indexes() or draw.random() > 0.4 and step < commits - 1:
            continue
        number = next(numbers)
        copy = folder / f"copy{number}"
        shutil.copytree(folder / "ours", copy)
        yield take_over(history, copy, number, name)


def take_over(history: History, copy: Path, number: int, after: str) -> Job:
    """Return a random job on a copy of the table."""
    kind, draw = history.kind, history.draw
    ours = Counter(zip(*(column.to_pylist() for column in history.table.scan().to_arrow().columns), strict=True))
    assert ours == Counter(history.rows.values()), "the history itself is wrong"
    index, op = (
        draw.choice(kind.indexes()),
        draw.choice(("upsert", "upsert", "upsert", "delete", "update", "sql delete")),
    )
    said = {
        "number": number, "path": str(copy), "name": "taken", "op": op, "kind": kind.__dict__, "after": after,
        "partition": "city" if kind.partitioned else "", "ordering": kind.ordering,
        "options": {"hoodie.index.type": index, **(KEEP_VERSION if draw.random() < 0.6 else {})},
    }  # fmt: skip
    if op in ("update", "sql delete") and kind.table_type == "MERGE_ON_READ":
        said["options"] |= (
            KEEP_VERSION  # a statement that upgrades reads rows of base files that logs have replaced, in tables of Hudi's own too
        )
    if index == "RECORD_INDEX":
        said["options"] |= {
            "hoodie.metadata.record.index.enable": "true", "hoodie.metadata.global.record.level.index.enable": "true",
            "hoodie.record.index.update.partition.path": "true",
        }  # fmt: skip
    theirs = History.__new__(History)
    theirs.kind, theirs.draw, theirs.clock = kind, random.Random(number), history.clock
    theirs.rows, theirs.dead = dict(history.rows), dict(history.dead)
    if op == "upsert":
        rows = _upserted(theirs, is_global=index not in LOCAL)
        said["rows"] = rows
        theirs.put(rows)
    elif op == "delete":
        rows = draw.sample(sorted(theirs.rows.values()), min(len(theirs.rows), 15)) + _not_alive(theirs)[:5]
        said["rows"] = rows
        theirs.remove(rows)
    else:
        said["op"] = "sql"
        if op == "update":
            said["sql"] = "update {table} set note = 'by sql' where v < 300"
            theirs.rows = {key: (*row[:4], "by sql") if row[3] < 300 else row for key, row in theirs.rows.items()}
        else:
            said["sql"] = "delete from {table} where v < 300"
            theirs.rows = {key: row for key, row in theirs.rows.items() if row[3] >= 300}
    return Job(said, sorted(theirs.rows.values()), mdt.open(copy))


def _not_alive(theirs: History) -> list[Row]:
    return [row for row in theirs.dead.values() if theirs.kind.identity(row) not in theirs.rows]


def _upserted(theirs: History, *, is_global: bool) -> list[Row]:
    """Return rows for keys that live, for some that died, for new ones, and where the index is global for some that move."""
    draw = theirs.draw
    live = draw.sample(sorted(theirs.rows.values()), min(len(theirs.rows), 15))
    rows = [theirs.fresh(int(row[0][1:]), row[1]) for row in live]
    if is_global and theirs.kind.scope == "table":
        rows = [theirs.fresh(int(row[0][1:])) if draw.random() < 0.3 else row for row in rows]
    gone = _not_alive(theirs)
    rows += [theirs.fresh(int(row[0][1:]), row[1]) for row in draw.sample(gone, min(len(gone), 10))]
    rows += [theirs.fresh(key) for key in range(KEYS, KEYS + 4)]
    return list({theirs.kind.identity(row): row for row in rows}.values())


def wrong(job: Job, result: dict[str, Any]) -> str:
    """Return what is wrong after a take-over, "" if nothing is."""
    if "error" in result:
        return f"Hudi failed: {result['error'][:1500]}"
    found, expected = Counter(map(tuple, result["rows"])), Counter(job.expected)
    if found != expected:
        twice = [key for key, n in Counter(row[:2] for row in found.elements()).items() if n > 1]
        return f"twice: {twice[:5]}; too many: {sorted(found - expected)[:5]}; missing: {sorted(expected - found)[:5]}"
    for name, act in {
        "the open table": lambda: job.opened.scan(),
        "mdt.open": lambda: mdt.open(job.said["path"]),
    }.items():
        try:
            act()
            return f"{name} did not refuse"
        except Unsupported:
            pass
    return ""


def main() -> int:
    """Make histories, let Hudi take over, compare; the number of failures is the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="Python of the environment with pyspark 3.5")
    parser.add_argument("--jar", required=True, help="Hudi's Spark bundle")
    parser.add_argument("--histories", type=int, default=16)
    parser.add_argument("--type", default="", help="only tables of this type, such as MERGE_ON_READ")
    parser.add_argument("--commits", type=int, default=12)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="take-over-"))
    kinds = [Kind(*parts) for parts in itertools.product(
        ("MERGE_ON_READ", "COPY_ON_WRITE"), ("bloom", "record"), ("partition", "table"), (True, False), ("", "ts"))
        if given.type in ("", parts[0])]  # fmt: skip
    draw = random.Random(given.seed)
    draw.shuffle(kinds)
    numbers = itertools.count()
    jobs = [
        job
        for n in range(given.histories)
        for job in jobs_of(
            kinds[n % len(kinds)], folder / str(n), random.Random(f"{given.seed}/{n}"), numbers, given.commits
        )
    ]
    print(f"seed {given.seed}: {len(jobs)} take-overs of {given.histories} histories in {folder}", flush=True)
    (folder / "jobs.json").write_text(json.dumps([job.said for job in jobs]))
    writer = [given.python, str(Path(__file__).with_name("hudi_writer.py")), given.jar]
    subprocess.run([*writer, str(folder / "jobs.json"), str(folder / "results.jsonl")], check=True)
    results = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    failures = 0
    counts: Counter[str] = Counter()
    for job, result in zip(jobs, results, strict=True):
        what = f"{job.said['kind']['table_type']} {job.said['kind']['key_index']} {job.said['op']} {job.said['options']['hoodie.index.type']}"
        problem = wrong(job, result)
        counts[f"{'WRONG' if problem else 'right'} {what}"] += 1
        if problem:
            failures += 1
            print(f"\n{problem}\n{json.dumps({k: v for k, v in job.said.items() if k != 'rows'})}")
        else:
            shutil.rmtree(job.said["path"])
    print("\n".join(f"{n:>5} {what}" for what, n in sorted(counts.items())))
    print(f"{len(jobs) - failures} of {len(jobs)} right")
    return min(failures, 100)


if __name__ == "__main__":
    sys.exit(main())
