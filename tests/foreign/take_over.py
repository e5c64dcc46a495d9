"""Random histories of ours, with writers that die, each handed to Hudi's own Spark writer at random
moments; see README.md beside this file.
"""

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import mdt
from mdt.commit import publish
from mdt.commit.transaction import run
from mdt.errors import Unsupported
from mdt.services.layout.log_compaction import LogCompaction
from mdt.stores.local import LocalStorage
from mdt.table import Table
from mdt.testing.faulty import Crash, FaultyStorage
from mdt.testing.slow import FarStorage

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.int64()),
        ("note", pa.string()),
    ]
)
KEYS = 120
CITIES = ("x", "y", "z")
STEPS = (
    "upsert",
    "upsert",
    "upsert",
    "delete",
    "delete",
    "back",
    "back",
    "compact",
    "compact",
    "join",
    "cluster",
    "overwrite",
)
Row = tuple[str, str, int, int, str]
KEEP_VERSION = {"hoodie.write.table.version": "6", "hoodie.write.auto.upgrade": "false"}
ARCHIVING = {
    "hoodie.archive.automatic": "true",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.clean.automatic": "true",
    "hoodie.cleaner.commits.retained": "1",
}
"""After three commits the timeline begins behind everything of ours."""
FOLLOWING = 3
"""How often Hudi writes after it has taken over."""
OPERATIONS_MAX = 30
"""A writer dies at one of so many changes of storage, if it makes as many."""
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

    def create(self, path, max_bytes):
        """Create an empty table with small files."""
        return mdt.create(
            path,
            SCHEMA,
            ["id"],
            partition_by=["city"] if self.partitioned else [],
            ordering=self.ordering or None,
            table_type=self.table_type,
            key_index=self.key_index,
            scope=self.scope,
            options={
                "hoodie.parquet.max.file.size": max_bytes,
                "mdt.durable": False,
                "mdt.table.name": "taken",
            },
        )

    def identity(self, row):
        """Return what may live once."""
        return (row[1], row[0]) if self.partitioned and self.scope == "partition" else row[0]

    def place(self, row):
        """Return partition and key."""
        return (row[1] if self.partitioned else "", row[0])

    def indexes(self):
        """Return the indexes of Hudi's that mean the same as ours.

        Hudi's Bloom and simple indexes read base files only, so they find the keys of a record
        index only where there are no inserts in log files; footers of such tables have no Bloom
        filters.
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
    unseen: dict[Any, Row] | None = None
    """What Hudi's readers see, if the newest commit is not on Hudi's timeline."""
    died: int = 0

    def __post_init__(self):
        self.table = self.kind.create(self.folder, self.draw.choice((4_000, 8_000, 1 << 20)))
        self.is_far = self.draw.random() < 0.4

    def fresh(self, key, city=None):
        """Return a row that is newer than all before."""
        self.clock += 1
        return (
            f"k{key:03}",
            city or self.draw.choice(CITIES),
            self.clock,
            self.draw.randrange(1000),
            f"n{self.clock % 7}",
        )

    def step(self):
        """Do one thing at random; in one of two the writer dies in the midst of it."""
        self.unseen = None
        name = self.draw.choice(STEPS)
        act, done = self.planned(name)
        if self.draw.random() < 0.5:
            act(mdt.open(self.folder))
            self.rows, self.dead = done.rows, done.dead
            return name
        return self.dies(name, act, done)

    def dies(self, name, act, done):
        """Do it with a writer that dies at some change of storage, if it makes as many."""
        seq, local = mdt.open(self.folder).snapshot().seq, LocalStorage(self.folder, durable=False)
        kind = FarStorage if self.is_far else FaultyStorage
        at, mode = (
            self.draw.randrange(1, OPERATIONS_MAX),
            self.draw.choice(("before", "after", "torn")),
        )
        try:
            act(mdt.open(kind(local, at, mode)))
        except Crash:
            self.died += 1
        table = mdt.open(self.folder)
        record = table.metadata.record(seq + 1)
        if record is None:
            return f"{name}, died at {at}"
        if not publish.is_published(local, record, table.definition):
            self.unseen = dict(self.rows)
        self.rows, self.dead = done.rows, done.dead
        return f"{name}, died at {at} after its commit"

    def copied(self):
        """Return what must be true of the rows, alone."""
        other = History.__new__(History)
        other.kind, other.draw, other.clock = self.kind, self.draw, self.clock
        other.rows, other.dead = dict(self.rows), dict(self.dead)
        return other

    def planned(self, name):
        """Return what does one thing, and the rows afterwards."""
        done, draw = self.copied(), self.draw
        if name == "upsert":
            new = [self.fresh(key) for key in draw.sample(range(KEYS), draw.randrange(1, 40))]
            return self.upserting(new, done)
        if name == "delete" and self.rows:
            gone = draw.sample(
                sorted(self.rows.values()), min(len(self.rows), draw.randrange(1, 30))
            )
            done.remove(gone)
            return lambda table: table.delete(arrow(gone)), done
        if name == "back" and self.dead:
            back = draw.sample(
                sorted(self.dead.values()), min(len(self.dead), draw.randrange(1, 20))
            )
            back = list({self.kind.identity(row): row for row in back}.values())
            return self.upserting([self.fresh(int(row[0][1:]), row[1]) for row in back], done)
        if name == "overwrite":
            new = [self.fresh(key) for key in draw.sample(range(KEYS), draw.randrange(20, 60))]
            done.remove(list(self.rows.values()))
            done.put(new)
            return lambda table: table.insert_overwrite_table(arrow(new)), done
        if name == "join":
            return join_logs, done
        if name == "cluster":
            return lambda table: table.cluster(by=["v"]), done
        return lambda table: table.compact(), done

    def upserting(self, new, done):
        """Return what upserts rows, and the rows afterwards."""
        done.put(new)
        return lambda table: table.upsert(arrow(new)), done

    def upsert(self, rows):
        self.table.upsert(arrow(rows))
        self.put(rows)

    def put(self, rows):
        """Upsert into the model; a row that moves dies where it was."""
        for row in rows:
            old = self.rows.get(self.kind.identity(row))
            if old is not None and self.kind.place(old) != self.kind.place(row):
                self.dead[self.kind.place(old)] = old
            self.rows[self.kind.identity(row)] = row
            self.dead.pop(self.kind.place(row), None)

    def remove(self, rows):
        for row in rows:
            found = self.rows.pop(self.kind.identity(row), None)
            if found is not None:
                self.dead[self.kind.place(found)] = found


def join_logs(table):
    """Join log files of each file group."""
    groups = table.snapshot().file_groups
    return run(
        table.metadata,
        LogCompaction(table.metadata, table.options, names=groups.names(range(groups.count))),
    )


def arrow(rows):
    """Return rows as a table."""
    return pa.table(
        [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * 5, schema=SCHEMA
    )


@dataclass
class Job:
    """One take-over: what Hudi is told, and the rows that must be there before and after each of
    its writes.
    """

    said: dict[str, Any]
    expected: list[list[Row]]
    opened: Table


def jobs_of(kind, folder, draw, number, commits):
    """Yield the take-over of one history, none if Hudi has no index that means the same."""
    if not kind.indexes():
        return
    history = History(kind, folder / "ours", draw)
    history.upsert([history.fresh(key) for key in range(0, KEYS, 2)])
    name = ""
    for _ in range(draw.randrange(2, commits)):
        name = history.step()
    copy = folder / f"copy{number}"
    shutil.copytree(folder / "ours", copy)
    yield take_over(history, copy, number, name)


def take_over(history, copy, number, after):
    """Return a random job on a copy of the table."""
    kind, draw = history.kind, history.draw
    table = mdt.open(copy)
    ours = Counter(
        zip(*(column.to_pylist() for column in table.scan().to_arrow().columns), strict=True)
    )
    assert ours == Counter(history.rows.values()), f"the history itself is wrong after {after}"
    theirs = history.copied()
    if history.unseen is not None:
        theirs.rows = history.unseen
    index, op = (
        draw.choice(kind.indexes()),
        draw.choice(("upsert", "upsert", "upsert", "delete", "update", "sql delete")),
    )
    said = {
        "number": number,
        "path": str(copy),
        "name": "taken",
        "op": op,
        "kind": kind.__dict__,
        "after": after,
        "died": history.died,
        "far": history.is_far,
        "unseen": history.unseen is not None,
        "partition": "city" if kind.partitioned else "",
        "ordering": kind.ordering,
        "options": {
            "hoodie.index.type": index,
            **ARCHIVING,
            **(KEEP_VERSION if draw.random() < 0.6 else {}),
        },
    }
    options = said["options"]
    options["hoodie.clean.failed.writes.policy"] = draw.choice(("EAGER", "LAZY"))
    if op in ("update", "sql delete") and kind.table_type == "MERGE_ON_READ":
        # A statement that upgrades reads rows of base files that logs have replaced, in tables of
        # Hudi's own too.
        options |= KEEP_VERSION
    if index == "RECORD_INDEX":
        options |= {
            "hoodie.metadata.record.index.enable": "true",
            "hoodie.metadata.global.record.level.index.enable": "true",
            "hoodie.record.index.update.partition.path": "true",
        }
    elif draw.random() < 0.5:
        options["hoodie.metadata.enable"] = "false"
    expected = [sorted(theirs.rows.values())]
    is_global = index not in LOCAL
    if op == "upsert":
        rows = _upserted(theirs, is_global=is_global)
        said["rows"] = rows
        theirs.put(rows)
    elif op == "delete":
        rows = (
            draw.sample(sorted(theirs.rows.values()), min(len(theirs.rows), 15))
            + _not_alive(theirs)[:5]
        )
        said["rows"] = rows
        theirs.remove(rows)
    else:
        said["op"] = "sql"
        if op == "update":
            said["sql"] = "update {table} set note = 'by sql' where v < 300"
            theirs.rows = {
                key: (*row[:4], "by sql") if row[3] < 300 else row
                for key, row in theirs.rows.items()
            }
        else:
            said["sql"] = "delete from {table} where v < 300"
            theirs.rows = {key: row for key, row in theirs.rows.items() if row[3] >= 300}
    expected.append(sorted(theirs.rows.values()))
    said["then"] = []
    for _ in range(FOLLOWING):
        said["then"].append(_upserted(theirs, is_global=is_global)[:8])
        theirs.put(said["then"][-1])
        expected.append(sorted(theirs.rows.values()))
    return Job(said, expected, table)


def _not_alive(theirs):
    return [row for row in theirs.dead.values() if theirs.kind.identity(row) not in theirs.rows]


def _upserted(theirs, *, is_global):
    """Return rows for keys that live, for some that died, for new ones, and where the index is
    global for some that move.
    """
    draw = theirs.draw
    live = draw.sample(sorted(theirs.rows.values()), min(len(theirs.rows), 15))
    rows = [theirs.fresh(int(row[0][1:]), row[1]) for row in live]
    if is_global and theirs.kind.scope == "table":
        rows = [theirs.fresh(int(row[0][1:])) if draw.random() < 0.3 else row for row in rows]
    gone = _not_alive(theirs)
    rows += [theirs.fresh(int(row[0][1:]), row[1]) for row in draw.sample(gone, min(len(gone), 10))]
    # An index of Hudi's that looks into one partition keeps keys unique only if they stay there.
    cities = (
        {row[0]: row[1] for row in theirs.rows.values()} if theirs.kind.scope == "table" else {}
    )
    rows += [theirs.fresh(key, cities.get(f"k{key:03}")) for key in range(KEYS, KEYS + 4)]
    return list({theirs.kind.identity(row): row for row in rows}.values())


def wrong(job, result):
    """Return what is wrong after a take-over, "" if nothing is."""
    if "error" in result:
        return f"Hudi failed: {result['error'][:1500]}"
    for write, (rows, told) in enumerate(zip(result["rows"], job.expected, strict=True)):
        found, expected = Counter(map(tuple, rows)), Counter(told)
        if found != expected:
            twice = [
                key for key, n in Counter(row[:2] for row in found.elements()).items() if n > 1
            ]
            where = (
                f"after {write} writes of Hudi's: twice: {twice[:5]}; too many:"
                f" {sorted(found - expected)[:5]}"
            )
            return f"{where}; missing: {sorted(expected - found)[:5]}"
    for name, act in {
        "the open table": lambda: job.opened.scan(),
        "a write": lambda: mdt.open(job.said["path"]).truncate(),
    }.items():
        try:
            act()
            return f"{name} did not refuse"
        except Unsupported:
            pass
    count = mdt.open(job.said["path"]).scan().count()
    if job.expected and count != len(job.expected[-1]):
        return f"mdt.open reads {count} rows instead of {len(job.expected[-1])}"
    return ""


def main():
    """Make histories, let Hudi take over, compare; the number of failures is the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--python", required=True, help="Python of the environment with pyspark 3.5"
    )
    parser.add_argument("--jar", required=True, help="Hudi's Spark bundle")
    parser.add_argument("--histories", type=int, default=16)
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first history, to go on with a seed"
    )
    parser.add_argument(
        "--type", default="", help="only tables of this type, such as MERGE_ON_READ"
    )
    parser.add_argument("--commits", type=int, default=12)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="take-over-"))
    kinds = [
        Kind(*parts)
        for parts in itertools.product(
            ("MERGE_ON_READ", "COPY_ON_WRITE"),
            ("bloom", "record"),
            ("partition", "table"),
            (True, False),
            ("", "ts"),
        )
        if given.type in ("", parts[0])
    ]
    draw = random.Random(given.seed)
    draw.shuffle(kinds)
    kinds = [kind for kind in kinds if kind.indexes()]
    jobs = []
    for n in range(given.first, given.first + given.histories):
        jobs += jobs_of(
            kinds[n % len(kinds)],
            folder / str(n),
            random.Random(f"{given.seed}/{n}"),
            n,
            given.commits,
        )
    died = sum(job.said["died"] for job in jobs)
    print(
        f"seed {given.seed}: {len(jobs)} take-overs after {died} deaths of writers, in {folder}",
        flush=True,
    )
    (folder / "jobs.json").write_text(json.dumps([job.said for job in jobs]))
    writer = [given.python, str(Path(__file__).with_name("hudi_writer.py")), given.jar]
    process = subprocess.Popen(
        [*writer, str(folder / "jobs.json"), "/dev/stdout"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    results = (json.loads(line) for line in process.stdout if line.startswith("{"))
    failures = 0
    counts = Counter()
    for job, result in zip(jobs, results, strict=True):
        what = (
            f"{job.said['kind']['table_type']} {job.said['kind']['key_index']} {job.said['op']}"
            f" {job.said['options']['hoodie.index.type']}"
        )
        problem = wrong(job, result)
        counts[f"{'WRONG' if problem else 'right'} {what}"] += 1
        for name in ("unseen", "far"):
            counts[f"with {name}"] += job.said[name]
        if problem:
            failures += 1
            print(
                f"\n{problem}\n{json.dumps({k: v for k, v in job.said.items() if k not in ('rows', 'then')})}"
            )
        else:
            shutil.rmtree(job.said["path"])
    print("\n".join(f"{n:>5} {what}" for what, n in sorted(counts.items())))
    print(f"{len(jobs) - failures} of {len(jobs)} right")
    return min(failures, 100)


if __name__ == "__main__":
    sys.exit(main())
