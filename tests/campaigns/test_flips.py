"""Flipped bits, truncations, zeroed, swapped and exchanged blocks in every kind of file: the right
answer, or an error of ours.
"""

import os
import random
from collections import Counter

import damage
import pyarrow as pa
import pytest
from counting import count
from damage import by_id

import mdt
from mdt.errors import Corrupt
from mdt.metadata.files import paths
from mdt.parquet.page_map import OFFSET, SIZE
from mdt.stores.storage import MemoryStorage

CASES = 255
NIGHTLY_CASES = 10_020
"""Multiples of the codecs."""
REPLAY = "MDT_FLIPS"
"""Environment variable <seed>:<case> that runs a single case again."""


def run(cases):
    """Run cases of a seed and print how they ended; fail with the command that replays the first
    wrong one.
    """
    given = os.environ.get(REPLAY)
    seed = int(given.partition(":")[0]) if given else random.randrange(1 << 30)
    numbers = [int(given.partition(":")[2])] if given else range(cases)
    found = Counter()
    wrong = []
    for number in numbers:
        codec = sorted(damage.KINDS)[number % len(damage.KINDS)]
        for text in damage.outcome(random.Random(f"{seed}:{number}"), codec, found):
            wrong.append(
                f"{text}\n  replay: {REPLAY}={seed}:{number} python -m pytest"
                " tests/campaigns/test_flips.py -k a_campaign"
            )
    count("damaged files, each read in every way", len(numbers))
    for what, n in found.items():
        count(f"of damaged tables: {what}", n)
    print(f"seed {seed}")
    assert not wrong, f"seed {seed}: {len(wrong)} wrong\n" + "\n".join(wrong[:20])


def test_a_campaign_of_damage_gives_right_answers_or_errors_of_ours():
    run(CASES)


@pytest.mark.nightly
def test_a_long_campaign_of_damage_gives_right_answers_or_errors_of_ours():
    run(NIGHTLY_CASES)


# What rewrites rows


SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("few", pa.string()),
        ("v", pa.float64()),
        ("s", pa.struct([("a", pa.int64())])),
        ("l", pa.list_(pa.int64())),
    ]
)
LEAVES = ("few", "s.a", "l.list.element")
OPTIONS = {"mdt.row.group.rows": 1500, "mdt.page.bytes": 256, "mdt.writer.threads": 2}


def rows(ids, ts=1):
    numbers = list(ids)
    texts = {"id": [f"k{i:05}" for i in numbers], "few": [f"f{i % 5}" for i in numbers]}
    nested = {"s": [{"a": i} for i in numbers], "l": [list(range(i % 4)) for i in numbers]}
    flat = {**texts, "ts": [ts] * len(numbers), "v": [i / 7 for i in numbers]}
    return pa.table({**flat, **nested}).select(SCHEMA.names).cast(SCHEMA)


def made(table_type="MERGE_ON_READ", compression="lz4", **more):
    """Return a table of one base file of two row groups, keys 0 to 2,499."""
    options = {**OPTIONS, "mdt.compression": compression}
    table = mdt.create(
        MemoryStorage(), SCHEMA, ["id"], table_type=table_type, options=options, **more
    )
    table.bulk_insert(rows(range(2500)))
    return table


def places(table, segment):
    """Return a byte of a segment's file by what stands there."""
    snapshot = table.snapshot()
    file = snapshot.segment(segment)
    page_map = table.metadata.objects.page_map(file.page_map)
    start, end = file.block_offset, file.block_offset + file.block_length
    known = {
        "statistics in the footer": end - file.footer_length // 2,
        "length of the footer": end - 8,
    }
    for leaf in LEAVES:
        page = page_map.info[page_map.first[page_map.columns.index(leaf) * page_map.groups]]
        known[f"header of a page of {leaf}"] = start + int(page[OFFSET]) + 1
        known[f"body of a page of {leaf}"] = start + int(page[OFFSET] + page[SIZE]) - 2
    chunk = page_map.columns.index("few") * page_map.groups
    known["dictionary"] = start + int(page_map.start[chunk]) + int(page_map.dictionary[chunk]) - 2
    if file.rows <= 2000:
        del known["dictionary"]
    return known


def prepared(how):
    """Return a table in which ``how`` rewrites or reads the rows of segment 0."""
    if how == "copy-on-write":
        return made("COPY_ON_WRITE")
    table = made(key_index="record" if how == "key that returns" else "bloom", ordering="ts")
    if how == "compaction":
        table.upsert(rows(range(0, 30, 2), 2))
    if how == "key that returns":
        table.delete(rows([3]).select(["id"]))
    if how == "index build":
        table.create_index("bitmap(few)", mode="async")
    return table


REWRITES = {
    "compaction": ("compaction", mdt.Table.compact),
    "copy-on-write update": ("copy-on-write", lambda t: t.upsert(rows([7, 2400], 2))),
    "copy-on-write delete": ("copy-on-write", lambda t: t.delete(rows([7]).select(["id"]))),
    # so many that the file is small beside them
    "copy-on-write insert": ("copy-on-write", lambda t: t.upsert(rows(range(9000, 10000)))),
    "insert": ("small file", lambda t: t.upsert(rows(range(9000, 10000)))),
    "key that returns": ("key that returns", lambda t: t.upsert(rows([3], 5))),
    "index build": ("index build", mdt.Table.build_indexes),
}
"""What is done -> what the table must be for it, and who does it."""


@pytest.mark.parametrize("how", REWRITES)
def test_nothing_that_reads_rows_to_write_goes_on_from_damaged_bytes(how):
    state, act = REWRITES[how]
    table = prepared(state)
    storage = table.storage
    file = table.snapshot().segment(0)
    data = storage.read(file.name)
    for what, at in places(table, 0).items():
        if how == "index build" and what.endswith(LEAVES[1:]):
            continue  # it reads the column of the index alone
        damaged = bytearray(data)
        damaged[at] ^= 1
        copy = storage.copy()
        copy.replace(file.name, bytes(damaged))
        assert_refused(copy, act, file.name, what)
        copy.replace(file.name, data)
        assert by_id(mdt.open(copy).scan().to_arrow()).equals(by_id(table.scan().to_arrow()))
        count("rewrites of damaged rows, none committed")
    act(mdt.open(storage))


def assert_refused(storage, act, name, what):
    before = [info.path for info in storage.list(paths.log_dir())]
    with pytest.raises(Corrupt) as caught:
        act(mdt.open(storage))
    assert (caught.value.path, caught.value.offset >= 0) == (name, True), what
    assert [info.path for info in storage.list(paths.log_dir())] == before, what


def test_compaction_of_a_damaged_log_file_commits_nothing():
    table = prepared("compaction")
    storage = table.storage
    file = table.snapshot().segment(1)
    for what, at in places(table, 1).items():
        data = bytearray(storage.read(file.name))
        data[at] ^= 1
        copy = storage.copy()
        copy.replace(file.name, bytes(data))
        assert_refused(copy, mdt.Table.compact, file.name, what)


@pytest.mark.parametrize("leaf", LEAVES)
def test_every_bit_of_a_page_header_decides_nothing_unseen(leaf):
    table = made()
    storage = table.storage
    name, at = table.snapshot().segment(0).name, places(table, 0)[f"header of a page of {leaf}"] - 1
    data = storage.read(name)
    for bit in range(8 * at, 8 * (at + 20)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        storage.replace(name, bytes(damaged))
        for columns in ([leaf.partition(".")[0]], SCHEMA.names):
            with pytest.raises(Corrupt, match="column chunk"):
                mdt.open(storage).scan(columns=columns).to_arrow()
        with pytest.raises(Corrupt, match="page of"):
            mdt.open(storage).scan("id = 'k00000'").to_arrow()
        assert mdt.open(storage).scan(columns=["v"]).to_arrow().num_rows == 2500, (
            "other columns are read"
        )
        count("flipped bits of page headers, all found")


def test_a_page_that_changed_places_with_one_of_another_file_is_found():
    table = made(compression="uncompressed")
    table.bulk_insert(rows(range(5000, 7500)))
    storage, snapshot = table.storage, table.snapshot()
    first, second = (snapshot.segment(i).name for i in (0, 1))
    objects = [snapshot.segment(i).page_map for i in (0, 1)]
    pages = [table.metadata.objects.page_map(stored) for stored in objects if stored is not None]
    chunks = [p.columns.index("v") * p.groups for p in pages]
    found = [p.info[p.first[c] : p.first[c + 1]] for p, c in zip(pages, chunks, strict=True)]
    places_of = [info[:, [OFFSET, SIZE]].tolist() for info in found]
    exchanged = 0
    for one, other in zip(*places_of, strict=True):
        data, others = storage.read(first), storage.read(second)
        page = others[other[0] : sum(other)]
        if one[1] != other[1] or page == data[one[0] : sum(one)]:
            continue
        storage.replace(first, data[: one[0]] + page + data[sum(one) :])
        with pytest.raises(Corrupt, match="column chunk"):
            mdt.open(storage).scan().to_arrow()
        storage.replace(first, data)
        exchanged += 1
    assert exchanged >= 20
    count("pages exchanged between files, all found", exchanged)
