"""The processes of the soak test: writers, services, readers and a follower of one table. Any of
them may be killed at any moment.

A writer has some keys of its own, and each of its commits writes all of them with one number, or
deletes all of them. A reader that sees two numbers among the keys of one writer, or only some of
its keys, has seen half a commit. A writer notes its number in a journal before a commit, and its
acknowledgement after it.
"""

import os
import random
import time
from pathlib import Path

import pyarrow as pa

import mdt
from mdt.errors import Conflict, Expired
from mdt.services.reclaiming import cleaning

KEYS = 40
GATHERER = 2
"""The writer that gathers rows."""
GONE = -1
"""Number of a writer whose keys are deleted."""
SCHEMA = pa.schema([("id", pa.int64()), ("writer", pa.int64()), ("n", pa.int64())])
OPTIONS = {
    "mdt.durable": False,
    "mdt.rollback.after.seconds": 1,
    "mdt.metadata.compact.records": 8,
    "mdt.clean.retain.commits": 6,
}


def rows(writer, n):
    ids = list(range(writer * KEYS, (writer + 1) * KEYS))
    return pa.table([ids, [writer] * KEYS, [n] * KEYS], schema=SCHEMA)


def create(folder, partition_by):
    """Create the table."""
    options = {**OPTIONS, "mdt.max.file.bytes": 4096}
    mdt.create(
        folder / "t",
        SCHEMA,
        ["id"],
        partition_by=partition_by,
        indexes=["bitmap(n)"],
        options=options,
    )


def seen(table):
    """Return the number of each writer that has rows. Assert that all of its keys have it."""
    numbers = {}
    for row in table.select(["writer", "n"]).to_pylist():
        numbers.setdefault(row["writer"], []).append(row["n"])
    for writer, written in numbers.items():
        assert len(written) == KEYS and len(set(written)) == 1, (
            f"half a commit of writer {writer}: {sorted(set(written))}, {len(written)} rows"
        )
    return {writer: written[0] for writer, written in numbers.items()}


def note(path, text):
    """Append a line to a file so that it survives the end of this process."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{text}\n".encode())
    os.close(descriptor)


def journal(folder, writer):
    """Return the possible numbers of a writer's rows: the last acknowledged one (GONE for none),
    and those that were tried since.
    """
    path = folder / f"journal-{writer}"
    acknowledged, tried = GONE, list[int]()
    for line in path.read_text().splitlines() if path.exists() else ():
        what, _, number = line.partition(" ")
        if what == "ok":
            acknowledged, tried = int(number), []
        else:
            tried.append(int(number))
    return acknowledged, tried


def write(folder, writer, seed):
    """Upsert and delete forever."""
    draw, table = random.Random(seed), mdt.open(folder / "t", OPTIONS)
    n = seed * 1_000_000
    if writer == GATHERER:
        gather(folder, writer, draw, n)
    while True:
        n += 1
        number = GONE if draw.random() < 0.15 else n
        note(folder / f"journal-{writer}", f"try {number}")
        try:
            if number == GONE:
                table.delete(rows(writer, 0))
            else:
                table.upsert(rows(writer, n))
        except Conflict:
            continue  # nothing of it was committed
        note(folder / f"journal-{writer}", f"ok {number}")


def gather(folder, writer, draw, n):
    """Upsert and delete forever with a writer that gathers rows, two numbers at a time."""
    with mdt.open(folder / "t", OPTIONS).writer(max_seconds=0) as gathering:
        while True:
            futures = []
            for _ in range(2):
                n += 1
                number = GONE if draw.random() < 0.15 else n
                note(folder / f"journal-{writer}", f"try {number}")
                futures.append(
                    gathering.delete(rows(writer, 0))
                    if number == GONE
                    else gathering.upsert(rows(writer, n))
                )
            if any(isinstance(future.exception(), Conflict) for future in futures):
                continue
            assert all(future.result() for future in futures)
            note(folder / f"journal-{writer}", f"ok {number}")


def look_after(folder, writer, seed):
    """Compact, cluster and clean forever."""
    cleaning.ARCHIVE_RECORDS_MIN = 8
    draw, table = random.Random(seed), mdt.open(folder / "t", OPTIONS)
    while True:
        service = draw.choice(
            [table.compact, lambda: table.cluster(["n"]), lambda: table.clean(retain_commits=5)]
        )
        try:
            service()
        except Conflict:
            continue
        note(folder / "services", "done")


def read(folder, writer, seed):
    """Scan forever, also the states of a moment ago."""
    table = mdt.open(folder / "t", OPTIONS)
    while True:
        scan = table.scan()
        try:
            first = seen(scan.to_arrow())
            assert seen(scan.to_arrow()) == first, "a snapshot changed under its reader"
            for writer_, n in first.items():
                assert (
                    table.scan(f"n = {n} and writer = {writer_}", as_of=scan.snapshot.seq).count()
                    == KEYS
                )
        except Expired:
            note(folder / "expired", "reader")
            continue
        note(folder / "reads", "done")


def applied(state, changes):
    """Apply changes to a copy: key -> (writer, n)."""
    for row in changes.to_pylist():
        if row["_change"] in ("delete", "update_before"):
            assert state.pop(row["id"]) == (row["writer"], row["n"]), (
                "a deleted row is not in the copy"
            )
        else:
            assert row["id"] not in state, "an inserted row is in the copy already"
            state[row["id"]] = row["writer"], row["n"]


def copied(table, seq):
    """Return the rows after commit ``seq``."""
    return {
        row["id"]: (row["writer"], row["n"]) for row in table.scan(as_of=seq).to_arrow().to_pylist()
    }


def follow(folder, writer, seed):
    """Apply changes to a copy forever, and compare it. Begin again if the range was cleaned."""
    table = mdt.open(folder / "t", OPTIONS)
    at, state, mode = -1, dict[int, tuple[int, int]](), "net"
    while True:
        newest = table.snapshot().seq
        try:
            if at < 0:
                at, state = newest, copied(table, newest)
            applied(state, table.changes(at, newest, mode=mode).to_arrow())
            at, mode = newest, "all" if mode == "net" else "net"
            assert state == copied(table, at), f"the copy differs from the state after commit {at}"
        except Expired:
            note(folder / "expired", "follower")
            at = -1
            continue
        note(folder / "followed", "done")
        time.sleep(0.05)


ACTORS = {
    "writer 0": write,
    "writer 1": write,
    "writer 2": write,
    "services": look_after,
    "reader 0": read,
    "reader 1": read,
    "follower": follow,
}


def act(name, folder, seed):
    """Run an actor until it is killed. Note its errors."""
    try:
        ACTORS[name](Path(folder), int(name[-1]) if name[-1].isdigit() else 0, seed)
    except BaseException as error:
        note(Path(folder) / "failed", f"{name}: {type(error).__name__}: {error}".replace("\n", " "))
        raise
