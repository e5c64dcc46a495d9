"""Damage to the files of small tables, chosen by a seed, and its effect on every way to read or
rewrite them.

A :class:`World` is a table with the answers that it gave before any damage. :func:`hit` damages one
of its files. :func:`outcome` reads and rewrites the damaged table in every way and compares: each
answer must be right or an error of mdt, and an operation that fails must not have committed
anything.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

import mdt
from mdt.errors import MdtError
from mdt.metadata.files import paths
from mdt.parquet.page_map import OFFSET, SIZE
from mdt.stores.storage import MemoryStorage

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("city", pa.string()),
        ("few", pa.string()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("m", pa.decimal128(12, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("flag", pa.bool_()),
        ("note", pa.string()),
        ("raw", pa.binary()),
        ("s", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("l", pa.list_(pa.int64())),
        ("k", pa.map_(pa.string(), pa.float64())),
    ]
)
WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath")
OPTIONS = {
    "mdt.writer.threads": 1,
    "mdt.reader.threads": 1,
    "mdt.row.group.rows": 900,
    "mdt.page.bytes": 512,
}
KINDS = {
    "lz4": {
        "table_type": "MERGE_ON_READ",
        "key_index": "bloom",
        "partition_by": ["city"],
        "ordering": "ts",
    },
    "zstd": {"table_type": "COPY_ON_WRITE", "key_index": "record", "ordering": "ts"},
    "snappy": {"table_type": "MERGE_ON_READ", "key_index": "record", "scope": "table"},
}
"""Codec -> settings of the table with that codec."""
INDEXES = {
    "lz4": ["bitmap(few)", "text(note, tokenizer='word')"],
    "zstd": ["bitmap(few)", "bloom(n)"],
    "snappy": ["bloom(n)"],
}
FILTERS = (
    "few = 'v3' and n > 4000",
    "match(note, 'cedar')",
    "s.a = 7 or x is null",
    "n between 100 and 900 and flag",
)
KEYS = ("k00007", "k00012", "k01500", "k02150", "k99999")
ASIDE = ("hint", "timeline", "hoodie.properties", "partition metadata")
"""Kinds of files that contain nothing about rows."""
BLOCK = 512
"""Bytes that are zeroed or exchanged: a sector."""


def rows(ids, version=1):
    """Return one row for each id. All columns but the key change with ``version``."""
    draw = random.Random(f"{ids} {version}")

    def row(i):
        n = draw.randrange(10_000)
        return {
            "id": f"k{i:05}",
            "ts": version,
            "city": "x" if i % 20 else "y",
            "few": f"v{n % 9}",
            "n": n,
            "x": None if n % 11 == 0 else n / 7,
            "m": Decimal(n) / 4,
            "day": date(2026, 1, 1) + timedelta(n % 90),
            "at": datetime(2026, 1, 1) + timedelta(minutes=n),
            "flag": n % 3 == 0,
            "note": " ".join(draw.choices(WORDS, k=3)) + f" {n}",
            "raw": draw.randbytes(n % 9),
            "s": None if n % 13 == 0 else {"a": n % 50, "b": f"b{n % 5}"},
            "l": list(range(n % 4)),
            "k": [(f"m{n % 3}", n / 3)],
        }

    return pa.Table.from_pylist([row(i) for i in ids], schema=SCHEMA)


def by_id(table):
    """Return rows in the order of their keys, so that equal tables are equal."""
    return table.combine_chunks().sort_by("id").combine_chunks()


def fresh_rows():
    """Return the upsert that every damaged table gets: updates in all file groups, and inserts."""
    return pa.concat_tables([rows(range(5, 2200, 97), 9), rows(range(3000, 3005), 9)])


@dataclass(frozen=True)
class World:
    """An undamaged table: its storage, and its answers by question."""

    storage: MemoryStorage
    answers: dict[str, Any]


def questions(table):
    """Yield the questions to a table: a name, and a function that returns an answer for
    comparisons.
    """
    yield "full scan", lambda: by_id(table.scan().to_arrow())
    yield "keys", lambda: by_id(table.scan([("id", "in", KEYS)]).to_arrow())
    yield "get", lambda: table.get(list(KEYS))
    yield "count", lambda: table.scan().count()
    for text in FILTERS:
        yield text, lambda text=text: by_id(table.scan(text).to_arrow())
        yield f"count where {text}", lambda text=text: table.scan(text).count()


def rewrites(table):
    """Yield the operations that rewrite rows of a table: a name, and a function that runs it."""
    yield "compaction", table.compact
    yield "upsert", lambda: table.upsert(fresh_rows())


@cache
def world(codec):
    """Return the table of a codec, with base files, log files or rewritten ones, deleted rows,
    indexes and compacted metadata.
    """
    storage = MemoryStorage()
    options = {**OPTIONS, "mdt.compression": codec}
    table = mdt.create(
        storage, SCHEMA, ["id"], indexes=INDEXES[codec], options=options, **KINDS[codec]
    )
    table.bulk_insert(rows(range(2200)))
    table.upsert(rows(range(0, 400, 7), 2))
    table.metadata.compact()
    table.upsert(rows(range(1490, 1510), 3))
    table.delete(rows(range(100, 140)).select(["id", "city"]))
    answers = {name: ask() for name, ask in questions(mdt.open(storage))}
    for number, (name, _) in enumerate(list(rewrites(table))):
        copy = storage.copy()
        list(rewrites(mdt.open(copy)))[number][1]()
        answers[name] = by_id(mdt.open(copy).scan().to_arrow())
    assert answers["compaction"].equals(answers["full scan"]) and mdt.open(storage).check().ok
    return World(storage, answers)


def kind_of(path):
    """Return the kind of the file at a path."""
    if path.startswith(".hoodie/.mdt/"):
        name = path.removeprefix(".hoodie/.mdt/").partition("/")[0]
        return "manifest" if path.endswith(".manifest") else name
    if path.startswith(".hoodie/"):
        return "hoodie.properties" if path.endswith("hoodie.properties") else "timeline"
    if path.endswith(".parquet"):
        return "base file"
    return "log file" if ".log." in path else "partition metadata"


@cache
def files(codec):
    """Return the files of a world by kind."""
    by_kind = {}
    for info in world(codec).storage.list(""):
        if info.size:
            by_kind.setdefault(kind_of(info.path), []).append(info.path)
    return by_kind


@cache
def spans(codec):
    """Return, for each data file, the spans that Parquet's page checksums do not cover: page
    headers, and the end with the footer.
    """
    table = mdt.open(world(codec).storage)
    by_path = {}
    snapshot = table.snapshot()
    for i in snapshot.live_numbers.tolist():
        file = snapshot.segment(i)
        stored = file.page_map
        if stored is None:
            continue
        page_map = table.metadata.objects.page_map(stored)
        info = page_map.info
        starts = (file.block_offset + np.concatenate([info[:, OFFSET], page_map.start])).tolist()
        data = max(int((info[:, OFFSET] + info[:, SIZE]).max()), 0) + file.block_offset
        headers = [(start, start + 24) for start in starts]
        end = file.block_offset + file.block_length
        footer = [(end - file.footer_length, end), (data, end)] * (1 + len(headers) // 2)
        by_path[file.path] = headers + footer
    return by_path


def somewhere(draw, codec, path, size):
    """Return an offset in a file. In data files, half of the time it is one that no page checksum
    covers.
    """
    known = spans(codec).get(path)
    if known is None or draw.random() < 0.5:
        return draw.randrange(size)
    start, end = draw.choice(known)
    return min(draw.randrange(start, max(end, start + 1)), size - 1)


def hit(draw, codec, storage):
    """Damage one file of ``storage``, a copy of a world's. Return its kind and a description of the
    damage.
    """
    kind = draw.choice(sorted(files(codec)))
    path = draw.choice(files(codec)[kind])
    data = bytearray(storage.read(path))
    at = somewhere(draw, codec, path, len(data))
    what = draw.choice(("flip", "flip", "flip", "flips", "cut", "zeros", "swap", "exchange"))
    if what in ("flip", "flips"):
        for place in (
            [at] if what == "flip" else [at, somewhere(draw, codec, path, len(data)), at // 2]
        ):
            data[place] ^= 1 << draw.randrange(8)
    elif what == "cut":
        del data[at:]
    elif what == "zeros":
        length = min(BLOCK, len(data) - at)
        data[at : at + length] = bytes(length)
    else:
        other = path if what == "swap" else draw.choice(files(codec)[kind])
        source = storage.read(other)
        begin = somewhere(draw, codec, other, len(source))
        length = min(draw.choice((BLOCK, 64, 4096)), len(data) - at, len(source) - begin)
        replaced = bytes(data[at : at + length])
        data[at : at + length] = source[begin : begin + length]
        if other == path and abs(begin - at) >= length:
            data[begin : begin + length] = replaced
    storage.replace(path, bytes(data))
    return kind, f"{what} at byte {at} of {path} ({kind}, {codec})"


def outcome(draw, codec, found):
    """Damage a copy of a world and ask it all questions but some of the filters. In every other
    case, also rewrite it in one of the ways, which takes longest. Rewrite seldom if the file
    contains nothing about rows.

    Return what was wrong, and count the outcomes in ``found``.
    """
    undamaged = world(codec)
    storage = undamaged.storage.copy()
    reader = mdt.open(storage) if draw.random() < 0.3 else None
    if reader is not None:
        reader.scan("n >= 0").to_arrow()
        reader.scan([("id", "in", KEYS)]).to_arrow()
    kind, damage = hit(draw, codec, storage)
    wrong = []
    table = reader
    try:
        table = table or mdt.open(storage)
    except MdtError:
        found["not opened"] += 1
        return []
    except Exception as error:  # noqa: BLE001 (other errors are the finding)
        return [f"{damage}: open: {error!r}"]
    text = draw.choice(FILTERS)
    for name, ask in questions(table):
        if not name.endswith(FILTERS) or name.endswith(text):
            wrong += _judged(damage, name, ask, undamaged.answers[name], found)
    if draw.random() >= (0.15 if kind in ASIDE else 0.5):
        return wrong
    number, (name, _) = draw.choice(list(enumerate(rewrites(table))))
    return wrong + _rewritten(damage, name, number, storage, undamaged.answers[name], found)


def _judged(damage, name, ask, answer, found):
    try:
        actual = ask()
    except MdtError:
        found["answers refused"] += 1
        return []
    except Exception as error:  # noqa: BLE001
        return [f"{damage}: {name}: {error!r}"]
    if actual.equals(answer) if isinstance(answer, pa.Table) else actual == answer:
        found["answers right"] += 1
        return []
    return [f"{damage}: {name}: another answer"]


def _rewritten(damage, name, number, storage, answer, found):
    log = [info.path for info in storage.list(paths.LOG_DIR)]
    try:
        list(rewrites(mdt.open(storage)))[number][1]()
    except MdtError:
        found["rewrites refused"] += 1
        committed = [info.path for info in storage.list(paths.LOG_DIR)] != log
        return [f"{damage}: {name} failed and committed"] if committed else []
    except Exception as error:  # noqa: BLE001
        return [f"{damage}: {name}: {error!r}"]
    found["rewrites done"] += 1
    return _judged(
        damage,
        f"scan after {name}",
        lambda: by_id(mdt.open(storage).scan().to_arrow()),
        answer,
        found,
    )
