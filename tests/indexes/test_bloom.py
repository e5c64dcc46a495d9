"""Bloom filters never deny a key they contain, keep their false positive rate, and equal those of
Hudi bit for bit.
"""

import base64
import struct
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_hashes import random_hashes

from indexes import bloom, hudi_bloom
from indexes.base import KeyHashes


def filter_text(keys, entries, fpp, kind=hudi_bloom.SIMPLE, max_entries=0):
    """Return the base64 text of a filter of ``keys``."""
    builder = hudi_bloom.FilterBuilder(kind, len(keys), entries, fpp, max_entries)
    builder.add(keys)
    return builder.text()


def dynamic_v0(keys, entries, fpp, max_entries):
    """Return the base64 text of a DYNAMIC_V0 filter of ``keys``."""
    return filter_text(keys, entries, fpp, hudi_bloom.DYNAMIC_V0, max_entries)


FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures" / "hudi"


@pytest.mark.parametrize("fpp", [0.2, 0.01, 0.001])
@pytest.mark.parametrize("count", [0, 3000, 100_000])
@pytest.mark.parametrize("shift", [0, 20], ids=["all keys", "keys of one shard"])
def test_a_filter_contains_its_keys_and_keeps_its_false_positive_rate(fpp, count, shift):
    hashes = random_hashes(count, 1)
    hashes = KeyHashes(hashes.hi >> np.uint64(shift), hashes.lo)
    data = bloom.build(hashes, fpp)
    assert bloom.probe(data, hashes).all()
    assert bloom.probe(data, random_hashes(200_000, 2)).mean() <= 1.3 * fpp * min(count, 1)


def test_the_bits_are_those_of_the_parquet_format():
    """One key in one block sets bit (low * salt) >> 27 of each word, as in BloomFilter.md."""
    low = 0x9E3779B9
    data = bloom.build(KeyHashes(np.zeros(1, np.uint64), np.array([low], np.uint64)))
    salts = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D)
    salts += (0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
    bits = [1 << (low * salt % 2**32 >> 27) for salt in salts]
    assert list(struct.unpack("<8I", data)) == bits


def test_probing_many_filters_together_gives_the_same_answers_as_each_filter_alone():
    hashes, probes = random_hashes(5000, 1), random_hashes(300, 2)
    owner = np.arange(5000) % 7 // 2
    data, blocks = bloom.build_many(hashes, owner, 5)
    filters = bloom.filter_set(data, blocks)
    which, key = np.repeat(np.arange(5), 300), np.tile(np.arange(300), 5)
    together = filters.probe_pairs(which, key, probes).reshape(5, 300)
    for number in range(5):
        alone = bloom.build(hashes.take(owner == number))
        start = int(filters.first[number]) * bloom.BLOCK_BYTES
        assert data[start : start + len(alone)] == alone
        assert np.array_equal(together[number], bloom.probe(alone, probes))


@pytest.mark.parametrize("fpp", [0.0, 1.0, -1.0, float("nan")])
def test_an_invalid_probability_and_an_invalid_size_of_filters_are_refused(fpp):
    with pytest.raises(ValueError, match="between 0 and 1"):
        bloom.build(random_hashes(1, 1), fpp)
    for size in (0, 31, 33):
        with pytest.raises(ValueError):
            bloom.probe(bytes(size), random_hashes(1, 1))


@pytest.fixture(scope="module")
def footers(tmp_path_factory):
    """(keys, base64 text, type code) of every base file in the fixtures."""
    if not FIXTURES.is_dir():
        pytest.skip(f"the folder of real Hudi tables does not exist: {FIXTURES}")
    root = tmp_path_factory.mktemp("hudi")
    for archive in FIXTURES.glob("*.zip"):
        with zipfile.ZipFile(archive) as opened:
            names = [
                name for name in opened.namelist() if name.endswith(".parquet") and "/." not in name
            ]
            opened.extractall(root / archive.stem, names)
    out = []
    for path in sorted(root.rglob("*.parquet")):
        with pq.ParquetFile(path) as file:
            footer = file.metadata.metadata
            if b"org.apache.hudi.bloomfilter" in footer:
                code = footer[b"hoodie_bloom_filter_type_code"].decode()
                keys = file.read(["_hoodie_record_key"])["_hoodie_record_key"]
                out.append((keys, footer[b"org.apache.hudi.bloomfilter"].decode(), code))
    assert len(out) >= 20
    return out


def test_the_filters_in_footers_of_real_tables_equal_those_built_from_their_keys(footers):
    assert hudi_bloom.sizing(60_000, 1e-9) == (2_587_966, 30), "the documented size"
    others = pa.array([f"not-there-{n}" for n in range(100)])
    for keys, text, code in footers:
        assert code == hudi_bloom.DYNAMIC_V0
        assert dynamic_v0(keys, 60_000, 1e-9, 100_000) == text
        assert hudi_bloom.may_contain(text, code, keys).all()
        assert not hudi_bloom.may_contain(text, code, others).any()


def scalar_murmur(key, seed):
    """Hash one byte string as described in section 8 of HUDI_FORMAT.md."""
    m, mask, length = 0x5BD1E995, 0xFFFFFFFF, len(key)
    h = seed ^ length
    for (w,) in struct.iter_unpack("<I", key[: length // 4 * 4]):
        w = w * m & mask
        w = (w ^ w >> 24) * m & mask
        h = (h * m & mask) ^ w
    if length % 4:
        for back, shift in ((3, 16), (2, 8), (1, 0)):
            if length % 4 >= back:
                h ^= ((key[-back] ^ 128) - 128 << shift) & mask
        h = h * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def scalar_positions(key, bits, hashes):
    seed = 0
    for _ in range(hashes):
        seed = scalar_murmur(key, seed)
        yield abs(seed - 2**32 if seed >= 2**31 else seed) % bits


@given(st.lists(st.text(max_size=24), max_size=20), st.integers(1, 9))
def test_a_simple_filter_sets_the_documented_bits(keys, entries):
    bits, hashes = hudi_bloom.sizing(entries, 0.01)
    expected = bytearray((bits + 7) // 8)
    for key in keys:
        for at in scalar_positions(key.encode(), bits, hashes):
            expected[at // 8] |= 1 << at % 8
    array = pa.array(keys, "string")
    text = filter_text(array, entries, 0.01)
    assert base64.b64decode(text) == struct.pack(">iibi", -1, hashes, 1, bits) + expected
    assert hudi_bloom.may_contain(text, hudi_bloom.SIMPLE, array).all()


def test_a_filter_is_the_same_for_any_batch_size_of_keys(monkeypatch):
    """Keys are added one by one, in batches, or all at once."""
    keys = pa.array([f"{n * 7919}é" for n in range(1000)])
    filters = set()
    for single_keys_max, batch_keys in ((0, 10_000), (0, 3), (8, 3)):
        monkeypatch.setattr(hudi_bloom, "_SINGLE_KEYS_MAX", single_keys_max)
        monkeypatch.setattr(hudi_bloom, "_PIECE_KEYS", batch_keys)
        filters.add((filter_text(keys, 1000, 1e-9), dynamic_v0(keys, 100, 1e-9, 250)))
    assert len(filters) == 1


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 25, 30, 31, 32, 47])
def test_a_dynamic_filter_adds_rows_up_to_its_limit_and_then_reuses_them(count):
    """Ten keys per row and at most 25 entries make three rows. After them the rows are used again,
    the first one twice in a row.
    """
    keys = pa.array([f"key{n}" for n in range(count)], "string")
    row_of = [min(n // 10, 2) if n < 30 else max(n - 31, 0) % 3 for n in range(count)]
    text = dynamic_v0(keys, 10, 0.01, 25)
    data = base64.b64decode(text)
    rows = max(1, min(3, -(-count // 10)))
    bits, hashes = hudi_bloom.sizing(10, 0.01)
    head = (-1, hashes, 1, bits, 10, count - 10 * (rows - 1), rows)
    filters = [keys.filter(pa.array([at == row for at in row_of], "bool")) for row in range(rows)]
    expected = [base64.b64decode(filter_text(own, 10, 0.01)) for own in filters]
    assert data == b"".join([struct.pack(">iibiiii", *head), *expected])
    assert hudi_bloom.may_contain(text, hudi_bloom.DYNAMIC_V0, keys).all()


@given(st.data())
def test_damaged_hudi_filters_are_refused_or_answered(data):
    keys = pa.array(["a", "bc", "def"])
    code, valid = data.draw(
        st.sampled_from(
            [
                (hudi_bloom.SIMPLE, filter_text(keys, 3, 0.1)),
                (hudi_bloom.DYNAMIC_V0, dynamic_v0(keys, 2, 0.1, 4)),
            ]
        )
    )
    raw = base64.b64decode(valid)
    at = data.draw(st.integers(0, len(raw)))
    junk = data.draw(st.binary(max_size=9) | st.just(b"\x7f" + b"\xff" * 3))
    for damaged in (junk, raw[:at], raw + b"\0", raw[:at] + junk + raw[at + len(junk) :]):
        with suppress(ValueError):
            assert hudi_bloom.may_contain(base64.b64encode(damaged), code, keys).shape == (3,)


@pytest.mark.parametrize(
    ("text", "code"), [("!!", "SIMPLE"), ("AAAA", "SIMPLE"), ("", "DYNAMIC_V0"), ("AAAA", "NEW")]
)
def test_invalid_hudi_filters_are_refused(text, code):
    with pytest.raises(ValueError, match="Hudi Bloom filter"):
        hudi_bloom.may_contain(text, code, pa.array(["a"]))


@pytest.mark.parametrize(("entries", "fpp"), [(0, 0.1), (5, 0.0), (5, 1.0), (2**31, 1e-9)])
def test_impossible_sizes_of_hudi_filters_are_refused(entries, fpp):
    with pytest.raises(ValueError):
        filter_text(pa.array(["a"]), entries, fpp)
