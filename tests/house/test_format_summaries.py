"""FORMAT.md is sufficient to read summaries: these decoders follow its sections 7.3 to 7.9, without
the decoders of ``indexes``.
"""

import json
import math
import re
import struct
import zlib
from collections import Counter
from decimal import Decimal
from itertools import pairwise
from os.path import commonprefix

import mmh3
import numpy as np
import pyarrow as pa
import pytest
import trees
from pyroaring import BitMap
from test_format_doc import (
    PAGE,
    bloom_block_holds,
    double_key,
    flipped,
    parquet_rows,
    record,
    stored,
)
from texts import columns
from worlds import meanwhile

import mdt
from indexes.bitmap import BitmapIndex
from indexes.column_bloom import ColumnBloom
from indexes.column_stats import ColumnStats
from indexes.table_stats import TableStats
from indexes.text import TextIndex
from mdt.services.layout.compaction import Compaction

ROWS = 3_000
RNG = np.random.default_rng(7)
SOME_NAN = struct.unpack("<d", b"\1" * 6 + b"\xf8\xff")[0]
DOUBLES = [-math.inf, -1.5, -0.0, 0.0, 2.0**-1074, 3.25, math.inf, math.nan, SOME_NAN]
REDUNDANT = "the same beginning of many texts, and long: " * 10


def random_column(values, type, nulls=0.0):
    """Return a column with random repetitions of ``values``, and a share of nulls."""
    picked = [values[i] for i in RNG.integers(0, len(values), ROWS)]
    return pa.array([None if RNG.random() < nulls else value for value in picked], type)


COLUMNS = {
    "few integers": random_column(list(range(-4, 4)), pa.int64()),
    "one frequent integer": random_column([5] * 9 + [-(2**63), 2**63 - 1], pa.int64(), 0.1),
    "many integers": random_column(
        [int(i) * 1000 for i in RNG.integers(-(2**40), 2**40, 700)], pa.int64(), 0.1
    ),
    "doubles with NaN": random_column(DOUBLES, pa.float64(), 0.2),
    "many doubles": pa.array(RNG.random(ROWS)),
    "booleans": random_column([True, False], pa.bool_(), 0.3),
    "decimals": random_column([Decimal(i) / 100 for i in range(-300, 300)], pa.decimal128(20, 2)),
    "few texts": random_column(["", "a", "a\0", "ab", "b" * 300, "é", "日本"], pa.string(), 0.5),
    "many texts": random_column([f"rider_{i}" for i in range(900)], pa.string(), 0.01),
    "long texts": random_column([REDUNDANT + str(i) for i in range(600)], pa.string()),
    "runs over two containers": pa.array(np.repeat(np.arange(5), 14_000)),
    "texts of every length": pa.array(["x" * i for i in (*range(40), 511, 512, 513, 2_000)]),
    "a filter of several pages": pa.array(range(0, 40_000, 5)),
    "nulls only": pa.array([None] * 10, pa.string()),
    "no rows of integers": pa.array([], pa.int64()),
    "no rows of texts": pa.array([], pa.string()),
}
EACH_COLUMN = pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS.keys())


def key_of(value, type):
    """Return the key of a value as section 8 describes."""
    if isinstance(value, bool):
        return bytes([value])
    if isinstance(value, int):
        return flipped(value).to_bytes(8, "big")
    if isinstance(value, float):
        return double_key(math.nan if math.isnan(value) else value + 0.0)
    if isinstance(value, Decimal):
        return (int(value.scaleb(type.scale)) + 2**127).to_bytes(16, "big")
    return bytes(value.encode())


def keys_of(column):
    return [None if value is None else key_of(value, column.type) for value in column.to_pylist()]


def positions_by_item(rows):
    """Return each item in the rows -> positions of the rows that have it."""
    result = {}
    for position, row in enumerate(rows):
        for item in row:
            result.setdefault(item, []).append(position)
    return result


def unpacked(summary, kind):
    """Return the blocks of a summary, as section 7.3 describes."""
    magic, stored_kind, n = struct.unpack_from("<4s8sI", summary)
    assert (magic, stored_kind) == (b"MDTP", kind.ljust(8, b"\0"))
    first = 20 + 8 * n
    *table, crc = struct.unpack_from(f"<{2 * n + 1}I", summary, 16)
    ends = [0, *table[::2]]
    assert crc == zlib.crc32(summary[: first - 4]) and len(summary) == first + ends[-1]
    blocks = [summary[first + start : first + end] for start, end in pairwise(ends)]
    assert [zlib.crc32(block) for block in blocks] == table[1::2]
    return blocks


def positions(block):
    return set(BitMap.deserialize(block + bytes(8192)))


def dictionary(blocks, d):
    """Return the d keys of a dictionary, as section 7.4 describes, and check the separators of its
    blocks.

    Args:
        blocks: The index of the dictionary, followed by its blocks.
    """
    w, count = struct.unpack_from("<BI", blocks[0])
    b = -(-d // 256)
    assert count == d
    keys = []
    if w == 8:
        starts = [first.to_bytes(8, "big") for first in struct.unpack(f"<{b}Q", blocks[0][5:])]
    else:
        *offsets, length = struct.unpack_from(f"<{b + 1}I", blocks[0], 5)
        texts = blocks[0][9 + 4 * b :]
        assert length == len(texts) and offsets[:1] == [0][:b]
        starts = [texts[start:end] for start, end in pairwise([*offsets, length])]
    for start, block, first in zip(starts, blocks[1 : 1 + b], range(0, d, 256), strict=True):
        deflated, length = struct.unpack_from("<BI", block)
        rest = zlib.decompress(block[5:], -15) if deflated else block[5:]
        assert len(rest) == length
        k = min(256, d - first)
        block = numbers_in(rest, k, start) if w == 8 else texts_in(rest, k)
        assert (
            start <= block[0]
            and all(key < start for key in keys)
            and (w == 0 or {len(key) for key in block} == {w})
        )
        keys += block
    assert keys == sorted(set(keys))
    return keys


def numbers_in(rest, k, first):
    shift, v = rest[:2]
    assert len(rest) == 2 + v * (k - 1)
    numbers = [int.from_bytes(first, "big")]
    for at in range(2, len(rest), v):
        numbers.append(numbers[-1] + (int.from_bytes(rest[at : at + v], "little") << shift))
    return [number.to_bytes(8, "big") for number in numbers]


def texts_in(rest, k):
    v = rest[0]
    lengths = struct.unpack_from(f"<{k}{'I' if v == 4 else 'B'}", rest, 1 + k)
    at, key, keys = 1 + k + v * k, b"", []
    for shared, length in zip(rest[1 : 1 + k], lengths, strict=True):
        keys.append(key[:shared] + rest[at : at + length])
        assert shared == min(255, len(commonprefix([key, keys[-1]])))
        key, at = keys[-1], at + length
    assert at == len(rest)
    return keys


def bitmaps(summary):
    """Return form, number of rows, and key (None for null) -> positions, as in section 7.4."""
    blocks = unpacked(summary, b"bitmap/1")
    form, rows, nulls, d, left_out = struct.unpack("<BIIIi", blocks[0])
    keys = dictionary(blocks[1:], d)
    at = 2 + -(-d // 256)
    positions_by_key = {}
    if nulls:
        positions_by_key[None] = positions(blocks[at])
        assert len(positions_by_key[None]) == nulls
        at += 1
    present = set(range(rows)) - positions_by_key.get(None, set())
    rest = blocks[at:]
    if form == 0:
        assert len(rest) == d and (left_out < 0 or rest[left_out] == b"")
        positions_by_key |= {
            key: positions(block)
            for i, (key, block) in enumerate(zip(keys, rest, strict=True))
            if i != left_out
        }
        if left_out >= 0:
            positions_by_key[keys[left_out]] = set(range(rows)) - set().union(
                *positions_by_key.values()
            )
    else:
        assert (left_out, len(rest)) == (-1, (d - 1).bit_length() if d else 0)
        slices = [positions(block) for block in rest]
        assert all(bits <= present for bits in slices)
        for position in present:
            code = int("0" + "".join("01"[position in bits] for bits in slices), 2)
            positions_by_key.setdefault(keys[code], set()).add(position)
    return form, rows, positions_by_key


def test_shards_have_gaps_where_a_compaction_left_out_files(tmp_path):
    """In section 7.3, ``first_row`` does not follow from the rows of earlier files."""
    root, schema = tmp_path / "t", columns("id string, city string, n int64")
    table = trees.create(
        root, schema, partition_by=["city"], indexes=["bitmap(n)", "bloom(n)"], ordering="n"
    )
    numbers = range(60)
    data = {
        "id": [f"k{n}" for n in numbers],
        "city": [f"c{n % 3}" for n in numbers],
        "n": list(numbers),
    }
    table.bulk_insert(data)
    table.upsert({**data, "n": [n + 100 for n in numbers]})
    other = mdt.open(root)
    with meanwhile(Compaction, lambda: other.upsert([{"id": "k1", "city": "c1", "n": 500}])):
        table.compact()
    header, sections = record(root, 4)
    files = sections["files"]
    assert header["action"] == "compaction" and len(header["left_out"]) == 1
    assert [(file["first_row"], file["rows"], file["shard"]) for file in files] == [
        (0, 20, 0),
        (40, 20, 0),
    ]
    _, shard_rows, positions_by_key = bitmaps(stored_summary(root, sections, "bitmap"))
    assert shard_rows == 60
    for file in files:
        values = [row["n"] for row in parquet_rows(root, file)]
        assert values and all(
            file["first_row"] + at in positions_by_key[key_of(value, pa.int64())]
            for at, value in enumerate(values)
        )
    starts, *parts = unpacked(stored_summary(root, sections, "bloom"), b"parts/1")
    assert struct.unpack("<3I", starts) == (0, 20, 40) and len(parts) == 3


def stored_summary(root, sections, name):
    [row] = [row for row in sections["summaries"] if row["index"].startswith(name)]
    location = (row[column] for column in ("path", "offset", "length", "crc"))
    return row["payload"] or stored(root, *location)


@EACH_COLUMN
@pytest.mark.parametrize("form", [0, 1, None], ids=["values", "slices", "smaller"])
def test_bitmaps_have_the_positions_of_every_value(form, column, monkeypatch):
    monkeypatch.setattr(BitmapIndex, "form", None if form is None else ("values", "slices")[form])
    used, rows, positions_by_key = bitmaps(BitmapIndex().summarize(column))
    assert (used if form is None else form, len(column)) == (used, rows)
    assert positions_by_key == {
        key: set(at) for key, at in positions_by_item([key] for key in keys_of(column)).items()
    }


def test_the_bitmap_of_a_value_in_half_of_the_rows_is_left_out(monkeypatch):
    monkeypatch.setattr(BitmapIndex, "form", "values")
    blocks = unpacked(BitmapIndex().summarize(pa.array([1, 2, 2, 3])), b"bitmap/1")
    assert (blocks[0][13:], [bool(block) for block in blocks[3:]]) == (
        b"\1\0\0\0",
        [True, False, True],
    )


def postings(summary):
    """Return identity, number of rows, and term -> positions, as section 7.5 describes."""
    header, *blocks = unpacked(summary, b"text/1")
    rows, i, f = struct.unpack_from("<3I", header)
    ends = [0, *struct.unpack_from(f"<{max(len(blocks) - 1, 0)}I", header, 12 + i)]
    texts = header[len(header) - f :]
    assert ends[-1] == f and len(header) == 12 + i + 4 * (len(ends) - 1) + f
    fences = [texts[start:end] for start, end in pairwise(ends)]
    positions_by_term = {}
    for number, block in enumerate(blocks):
        terms = postings_of_block(block)
        assert number == 0 or all(
            term < fences[number - 1] <= min(terms) for term in positions_by_term
        )
        positions_by_term |= terms
    assert list(positions_by_term) == sorted(positions_by_term)
    return (
        header[12 : 12 + i].decode(),
        rows,
        {term.decode(): at for term, at in positions_by_term.items()},
    )


def postings_of_block(block):
    """Return term -> positions of a block of postings."""
    t, p, m, *lengths = struct.unpack_from("<8I", block)
    bounds = np.cumsum([32, *lengths]).tolist()
    assert bounds[-1] == len(block)
    parts = [block[start:end] for start, end in pairwise(bounds)]
    sizes = [8 * t + m, p, p, p, p]
    zstd = pa.Codec("zstd")
    raw = [
        part if len(part) in (0, size) else bytes(zstd.decompress(part, size, asbytes=True))
        for part, size in zip(parts, sizes, strict=True)
    ]
    ends, counts = struct.unpack_from(f"<{t}I", raw[0]), struct.unpack_from(f"<{t}I", raw[0], 4 * t)
    gaps = [
        int.from_bytes(bytes(plane[at] if plane else 0 for plane in raw[1:]), "little")
        for at in range(p)
    ]
    assert sum(counts) == p and ends[-1] == m
    terms = [raw[0][8 * t + start : 8 * t + end] for start, end in pairwise([0, *ends])]
    starts = np.cumsum([0, *counts]).tolist()
    return {
        term: (np.cumsum(np.array(gaps[start:end]) + 1) - 1).tolist()
        for term, (start, end) in zip(terms, pairwise(starts), strict=True)
    }


def words(text):
    """Return the tokens of a text with no other word characters than ASCII letters, digits and é.

    Each token is cut to 128 code points.
    """
    return {
        token[:128] for token in "".join(c if c.isalnum() else " " for c in text.lower()).split()
    }


TEXTS = [
    None,
    "",
    " , ",
    "Éa, b",
    "x" * 200,
    *(f"Order {i % 97} of Customer-{i}, {REDUNDANT}" for i in range(2_000)),
]


RARE = ["rare", *[""] * 70_000, "rare", "rare"]


@pytest.mark.parametrize(
    "texts", [TEXTS, RARE, TEXTS[:3], []], ids=["many", "far apart", "no words", "no rows"]
)
def test_a_text_index_has_the_positions_of_every_word(texts):
    summary = TextIndex("word").summarize(pa.array(texts, pa.string()))
    assert postings(summary) == (
        "word 1",
        len(texts),
        positions_by_item(words(text or "") for text in texts),
    )
    assert (
        (b"\x28\xb5\x2f\xfd" in summary)
        == (len(unpacked(summary, b"text/1")) > 3)
        == (texts is TEXTS)
    )


def test_a_text_index_of_ngrams_has_the_positions_of_runs_of_code_points():
    texts = ["aİB aib", "zz", None, "日本語 日本"]
    folded = [(text or "").replace("İ", "i").lower() for text in texts]
    grams = positions_by_item({text[at : at + 3] for at in range(len(text) - 2)} for text in folded)
    assert postings(TextIndex("ngram(3)").summarize(pa.array(texts))) == ("ngram(3) 1", 4, grams)


def lo_of(key):
    return int.from_bytes(mmh3.mmh3_x64_128_digest(key, 0)[:8], "little")


def filter_of(summary):
    """Return the flags and the blocks of a column's Bloom filter, as section 7.6 describes."""
    magic, version, flags, zero, w, crc = struct.unpack_from("<4sBBHII", summary)
    assert (magic, version, zero, crc) == (b"MCBL", 1, 0, zlib.crc32(summary[:12]))
    blocks = []
    at, page = 16, 0
    while len(blocks) < w:
        end = at + 32 * min(128, w - len(blocks))
        assert struct.unpack_from("<I", summary, end)[0] == zlib.crc32(summary[at:end], page)
        blocks += [summary[start : start + 32] for start in range(at, end, 32)]
        at, page = end + 4, page + 1
    assert at == len(summary) and w > 0
    return flags, blocks


def may_hold(blocks, key):
    lo = lo_of(key)
    return bloom_block_holds(blocks[(lo >> 32) * len(blocks) >> 32], lo)


@EACH_COLUMN
def test_a_bloom_filter_has_every_value_and_few_false_positives(column):
    flags, blocks = filter_of(ColumnBloom().summarize(column))
    keys = set(keys_of(column))
    assert flags == (None in keys) + 2 * bool(keys - {None})
    assert all(may_hold(blocks, key) for key in keys if key is not None)
    absent = [struct.pack(">Q", i) + b"absent" for i in range(300)]
    assert sum(may_hold(blocks, key) for key in absent) < 30


@EACH_COLUMN
def test_column_statistics_have_bounds_and_counts(column):
    summary = ColumnStats().summarize(column)
    version, flags, nulls, nans, rows, _, low, high = struct.unpack_from(">BBqqqqHH", summary)
    keys = sorted(key for key in keys_of(column) if key is not None)
    assert (version, rows, nulls, len(summary)) == (
        1,
        len(column),
        column.null_count,
        38 + low + high,
    )
    assert (nans, flags & 3) == (sum(key == double_key(math.nan) for key in keys), 3 * bool(keys))
    if keys:
        lowest, highest = summary[38 : 38 + low], summary[38 + low :]
        assert lowest == keys[0][:64] and (highest == keys[-1] if flags & 8 else highest > keys[-1])
        assert bool(flags & 4) == (lowest == keys[0]) and bool(flags & 8) == (len(keys[-1]) <= 64)


def mixed(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def sketch_hash(key):
    """Return the hash of a key, as section 7.8 describes."""
    if len(key) > 512:
        return lo_of(key)
    offsets = [len(key) - 8 if len(key) > 8 else 0, *range(0, len(key) - 8, 8)]
    ws = [int.from_bytes(key[offset : offset + 8], "little") for offset in offsets]
    factors = [mixed((i + 1) * 0x9E3779B97F4A7C15 % 2**64) | 1 for i in range(len(ws) + 1)]
    sums = sum((w ^ w >> 32) * factor for w, factor in zip(ws, factors[1:], strict=True))
    return mixed((len(key) * factors[0] + sums) % 2**64)


def registers_of(keys):
    registers = bytearray(2048)
    for h in map(sketch_hash, keys):
        rank = min(53, 1 + 53 - (h >> 11).bit_length())
        registers[h % 2048] = max(registers[h % 2048], rank)
    return bytes(registers)


@EACH_COLUMN
def test_table_statistics_have_counts_and_a_sketch(column):
    summary = TableStats().summarize(column)
    magic, version, n, zero, rows, nulls, _, rest, crc = struct.unpack_from("<4sBBHQQQQI", summary)
    assert (magic, version, zero, crc) == (
        b"MTST",
        1,
        0,
        zlib.crc32(summary[44:], zlib.crc32(summary[:40])),
    )
    payload = zlib.decompress(summary[44:])
    counts, errors = (struct.unpack_from(f"<{n}Q", payload, 2048 + 8 * n * i) for i in range(2))
    at = 2048 + 17 * n
    ends = np.cumsum([at, *payload[at - n : at]]).tolist()
    assert ends[-1] == len(payload)
    listed = {
        payload[start:end]: bounds
        for (start, end), *bounds in zip(pairwise(ends), counts, errors, strict=True)
    }
    keys = Counter(key for key in keys_of(column) if key is not None)
    assert (rows, nulls, len(listed)) == (len(column), column.null_count, n)
    assert all(0 < count <= keys[key] <= count + error for key, (count, error) in listed.items())
    assert max((count for key, count in keys.items() if key not in listed), default=0) <= rest
    assert payload[:2048] == registers_of(keys)


def test_offsets_in_the_tables_of_the_page_follow_from_the_sizes():
    section = PAGE[PAGE.index("### 7.3") : PAGE.index("## 8.")]
    tables = [
        re.findall(r"^\| (\d+) \| (\d+) \|", table, re.MULTILINE) for table in section.split("\n\n")
    ]
    steps = [step for fields in tables for step in pairwise(fields)]
    assert len(steps) > 30 and all(
        int(start) + int(size) == int(following) for (start, size), (following, _) in steps
    )


SPECS = ["bitmap/1(city)", "text/1(note, tokenizer='ngram(3)')", "bloom/1(place.zip)"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    path = tmp_path_factory.mktemp("summaries") / "t"
    rows = [
        {"id": i, "city": "xyz"[i % 3], "note": f"note {i}", "place": {"zip": i % 7}}
        for i in range(500)
    ]
    data = pa.Table.from_pylist(rows)
    trees.create(path, data.schema, indexes=[spec.replace("/1", "") for spec in SPECS]).bulk_insert(
        data
    )
    return path


def summary_of(root, row):
    location = [row[name] for name in ("path", "offset", "length", "crc")]
    return row["payload"] or stored(root, *location)


def test_commit_records_contain_small_summaries_and_locations_of_large_summaries(root):
    assert record(root, 0)[0]["definition"]["indexes"] == SPECS
    summaries, data = record(root, 1)[1]["summaries"], {}
    for row in summaries:
        summary = data[row["index"]] = summary_of(root, row)
        assert (row["payload"] is None) == (len(summary) > 256) == (row["path"] is not None)
    assert data.keys() == set(SPECS)
    assert {key and key.decode() for key in bitmaps(data[SPECS[0]])[2]} == set("xyz")
    assert postings(data[SPECS[1]])[1] == 500
    first, part = unpacked(data[SPECS[2]], b"parts/1")
    assert first == bytes(4)
    assert all(may_hold(filter_of(part)[1], key_of(i, pa.int64())) for i in range(7))


def test_the_parts_of_a_summary_follow_the_first_rows_of_the_segments_of_their_shard(tmp_path):
    data = pa.table({"id": range(90), "city": ["abc"[i % 3] for i in range(90)], "n": range(90)})
    table = trees.create(tmp_path / "t", data.schema, partition_by=["city"], indexes=["bloom(n)"])
    table.bulk_insert(data)
    files, (summary,) = (record(tmp_path / "t", 1)[1][name] for name in ("files", "summaries"))
    assert [(row["shard"], row["first_row"]) for row in files] == [(0, 0), (0, 30), (0, 60)]
    assert summary["shard"] == 0
    first, *parts = unpacked(summary_of(tmp_path / "t", summary), b"parts/1")
    assert struct.unpack("<3I", first) == (0, 30, 60) and len(parts) == 3
    for part, file in zip(parts, files, strict=True):
        numbers = [i for i in range(90) if "abc"[i % 3] == file["partition"]]
        assert all(may_hold(filter_of(part)[1], key_of(i, pa.int64())) for i in numbers)


def test_usage_reports_have_the_fields_of_the_page(root):
    table = mdt.open(root, {"mdt.usage.counts": True})
    assert table.scan("city = 'xx' and id > 3 and note like '%7%'").to_arrow().num_rows == 0
    table.metadata.usage.report()
    (path,) = (root / ".hoodie" / ".mdt" / "usage").iterdir()
    report = json.loads(path.read_text())
    assert report.keys() == {"since_us", "queries", "indexes", "tests"} and report["queries"] == 1
    queries = {name: [kind[0] for kind in kinds] for name, kinds in report["tests"].items()}
    assert queries == {"city": [1, 0, 0], "id": [0, 1, 0], "note": [0, 0, 1]}
    assert all(exact <= read for kinds in report["tests"].values() for _, _, read, exact in kinds)
    assert report["indexes"][SPECS[0]][:3] == [1, 1, 1]
    assert all(f"`{field}`" in PAGE for field in report)
