"""Flipped bits, truncations, and zeroed, swapped and exchanged blocks in every kind of file lead to
correct answers or mdt errors.
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
"""Multiples of the number of codecs."""
REPLAY = "MDT_FLIPS"
"""Environment variable <seed>:<case> that runs a single case again."""


def run(cases):
    """Run cases of a seed and print their outcomes. Fail with the commands that replay wrong cases."""
    replayed = os.environ.get(REPLAY)
    seed = int(replayed.partition(":")[0]) if replayed else random.randrange(1 << 30)
    numbers = [int(replayed.partition(":")[2])] if replayed else range(cases)
    outcomes = Counter()
    failures = []
    for number in numbers:
        codec = sorted(damage.KINDS)[number % len(damage.KINDS)]
        for text in damage.outcome(random.Random(f"{seed}:{number}"), codec, outcomes):
            failures.append(
                f"{text}\n  replay: {REPLAY}={seed}:{number} python -m pytest"
                " tests/campaigns/test_flips.py -k a_campaign"
            )
    count("damaged files, each read in every way", len(numbers))
    for outcome, n in outcomes.items():
        count(f"of damaged tables: {outcome}", n)
    print(f"seed {seed}")
    assert not failures, f"seed {seed}: {len(failures)} wrong\n" + "\n".join(failures[:20])


def test_a_campaign_of_damage_gives_correct_answers_or_mdt_errors():
    run(CASES)


@pytest.mark.nightly
def test_a_long_campaign_of_damage_gives_correct_answers_or_mdt_errors():
    run(NIGHTLY_CASES)


# Operations that rewrite rows


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


def filled_table(table_type="MERGE_ON_READ", compression="lz4", **more):
    """Return a table with one base file of two row groups, and the keys 0 to 2,499."""
    options = {**OPTIONS, "mdt.compression": compression}
    table = mdt.create(
        MemoryStorage(), SCHEMA, ["id"], table_type=table_type, options=options, **more
    )
    table.bulk_insert(rows(range(2500)))
    return table


def damage_offsets(table, segment):
    """Return an offset in the file of a segment for each kind of content."""
    snapshot = table.snapshot()
    file = snapshot.segment(segment)
    page_map = table.metadata.objects.page_map(file.page_map)
    start, end = file.block_offset, file.block_offset + file.block_length
    offsets = {
        "statistics in the footer": end - file.footer_length // 2,
        "length of the footer": end - 8,
    }
    for leaf in LEAVES:
        page = page_map.info[page_map.first[page_map.columns.index(leaf) * page_map.groups]]
        offsets[f"header of a page of {leaf}"] = start + int(page[OFFSET]) + 1
        offsets[f"body of a page of {leaf}"] = start + int(page[OFFSET] + page[SIZE]) - 2
    chunk = page_map.columns.index("few") * page_map.groups
    offsets["dictionary"] = start + int(page_map.start[chunk]) + int(page_map.dictionary[chunk]) - 2
    if file.rows <= 2000:
        del offsets["dictionary"]
    return offsets


def table_for(how):
    """Return a table in which the operation ``how`` reads or rewrites the rows of segment 0."""
    if how == "copy-on-write":
        return filled_table("COPY_ON_WRITE")
    table = filled_table(
        key_index="record" if how == "key that returns" else "bloom", ordering="ts"
    )
    if how == "compaction":
        table.upsert(rows(range(0, 30, 2), 2))
    if how == "key that returns":
        table.delete(rows([3]).select(["id"]))
    if how == "index build":
        table.create_index("bitmap(few)", mode="async")
    return table


READING_OPERATIONS = {
    "compaction": ("compaction", mdt.Table.compact),
    "copy-on-write update": ("copy-on-write", lambda t: t.upsert(rows([7, 2400], 2))),
    "copy-on-write delete": ("copy-on-write", lambda t: t.delete(rows([7]).select(["id"]))),
    # so many rows that the existing file is small in comparison
    "copy-on-write insert": ("copy-on-write", lambda t: t.upsert(rows(range(9000, 10000)))),
    "insert": ("small file", lambda t: t.upsert(rows(range(9000, 10000)))),
    "key that returns": ("key that returns", lambda t: t.upsert(rows([3], 5))),
    "index build": ("index build", mdt.Table.build_indexes),
}
"""Operations, each with the kind of table it needs and the call."""


@pytest.mark.parametrize("how", READING_OPERATIONS)
def test_no_operation_that_reads_rows_commits_after_reading_damaged_bytes(how):
    state, act = READING_OPERATIONS[how]
    table = table_for(state)
    storage = table.storage
    file = table.snapshot().segment(0)
    data = storage.read(file.name)
    for content, at in damage_offsets(table, 0).items():
        if how == "index build" and content.endswith(LEAVES[1:]):
            continue  # the build reads only the column of the index
        damaged = bytearray(data)
        damaged[at] ^= 1
        copy = storage.copy()
        copy.replace(file.name, bytes(damaged))
        assert_refused(copy, act, file.name, content)
        copy.replace(file.name, data)
        assert by_id(mdt.open(copy).scan().to_arrow()).equals(by_id(table.scan().to_arrow()))
        count("rewrites of damaged rows, none committed")
    act(mdt.open(storage))


def assert_refused(storage, act, name, content):
    before = [info.path for info in storage.list(paths.LOG_DIR)]
    with pytest.raises(Corrupt) as error:
        act(mdt.open(storage))
    assert (error.value.path, error.value.offset >= 0) == (name, True), content
    assert [info.path for info in storage.list(paths.LOG_DIR)] == before, content


def test_a_compaction_of_a_damaged_log_file_commits_nothing():
    table = table_for("compaction")
    storage = table.storage
    file = table.snapshot().segment(1)
    for content, at in damage_offsets(table, 1).items():
        data = bytearray(storage.read(file.name))
        data[at] ^= 1
        copy = storage.copy()
        copy.replace(file.name, bytes(data))
        assert_refused(copy, mdt.Table.compact, file.name, content)


@pytest.mark.parametrize("leaf", LEAVES)
def test_every_flipped_bit_of_a_page_header_is_detected(leaf):
    table = filled_table()
    storage = table.storage
    name, at = (
        table.snapshot().segment(0).name,
        damage_offsets(table, 0)[f"header of a page of {leaf}"] - 1,
    )
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
            "other columns can still be read"
        )
        count("flipped bits of page headers, all found")


def test_a_page_replaced_by_a_page_of_another_file_is_detected():
    table = filled_table(compression="uncompressed")
    table.bulk_insert(rows(range(5000, 7500)))
    storage, snapshot = table.storage, table.snapshot()
    first, second = (snapshot.segment(i).name for i in (0, 1))
    objects = [snapshot.segment(i).page_map for i in (0, 1)]
    pages = [table.metadata.objects.page_map(stored) for stored in objects if stored is not None]
    chunks = [p.columns.index("v") * p.groups for p in pages]
    infos = [p.info[p.first[c] : p.first[c + 1]] for p, c in zip(pages, chunks, strict=True)]
    places_of = [info[:, [OFFSET, SIZE]].tolist() for info in infos]
    exchanged = 0
    for first_page, second_page in zip(*places_of, strict=True):
        data, second_data = storage.read(first), storage.read(second)
        page = second_data[second_page[0] : sum(second_page)]
        if first_page[1] != second_page[1] or page == data[first_page[0] : sum(first_page)]:
            continue
        storage.replace(first, data[: first_page[0]] + page + data[sum(first_page) :])
        with pytest.raises(Corrupt, match="column chunk"):
            mdt.open(storage).scan().to_arrow()
        storage.replace(first, data)
        exchanged += 1
    assert exchanged >= 20
    count("pages exchanged between files, all found", exchanged)
