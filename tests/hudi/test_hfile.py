"""HFiles of any writer: all written entries are read back, and damaged bytes raise."""

from __future__ import annotations

import re
import struct
import zipfile
from pathlib import Path

import pytest
from hfile_writer import GZIP, NONE, SUFFIX, entry, hfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mdt.errors import Corrupt, MdtError, Unsupported
from mdt.hudi import log_file
from mdt.hudi.read import hfile as reader
from mdt.stores.storage import MemoryStorage

FIXTURES = Path(__file__).resolve().parents[3] / "shared" / "fixtures"
LONG = settings(max_examples=20_000, deadline=None, suppress_health_check=list(HealthCheck))
TEN = [(b"k%d" % number, b"v%d" % number * number) for number in range(10)]


def has_metadata_table(path: Path) -> bool:
    with zipfile.ZipFile(path) as archive:
        return any("/.hoodie/metadata/files/" in name for name in archive.namelist())


TABLES = list(filter(has_metadata_table, sorted((FIXTURES / "hudi_rs").glob("*.zip"))))


def open_hfile(data: bytes) -> reader.HFile:
    return reader.open_bytes(data, "f.hfile")


def pairs(entries) -> list[tuple[bytes, bytes]]:
    return list(zip(*entries.to_pydict().values(), strict=True))


class CountedReads:
    """Storage with a single HFile, which records its reads."""

    def __init__(self, data: bytes) -> None:
        self.storage = MemoryStorage()
        self.storage.create("f.hfile", data)
        self.reads: list[tuple[int, int]] = []
        self.file = reader.open_object(self, "f.hfile", len(data))

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        self.reads.append((offset, length or 0))
        return self.storage.read(path, offset, length)


KEYS = st.lists(st.binary(max_size=4), max_size=40, unique=True).map(sorted)


@given(
    KEYS, st.sampled_from([GZIP, NONE]), st.integers(1, 5), st.sampled_from([0, 2, 3]), st.data()
)
def test_all_entries_look_ups_and_prefixes_read_what_was_written(
    keys, codec, block_entries, fan_out, data
):
    entries = [(key, bytes([number]) * number) for number, key in enumerate(keys)]
    file = open_hfile(hfile(entries, codec=codec, block_entries=block_entries, fan_out=fan_out))
    assert pairs(file.all()) == entries and file.count == len(entries)
    lookup_keys = data.draw(st.sets(st.sampled_from([b"", b"a", *keys])))
    assert pairs(file.lookup(lookup_keys)) == [pair for pair in entries if pair[0] in lookup_keys]
    prefix = data.draw(st.sampled_from([b"", b"\xff", *(key[:1] for key in keys)]))
    assert pairs(file.lookup_prefix(prefix)) == [
        pair for pair in entries if pair[0].startswith(prefix)
    ]


@pytest.mark.parametrize("index_suffix", [b"", SUFFIX])
@pytest.mark.parametrize("key_bytes", [0, 1, 127, 128, 300, 40_000])
def test_keys_of_any_length_are_found(index_suffix, key_bytes):
    entries = [(b"a" * key_bytes + end, end) for end in (b"", b"x", b"y", b"z")]
    file = open_hfile(hfile(entries, block_entries=1, index_suffix=index_suffix))
    for pair in entries:
        assert pairs(file.lookup([pair[0]])) == [pair]


@pytest.mark.parametrize("index_key", [b"k2b", b"k3a", b"k3m"])
def test_an_index_key_may_be_smaller_than_the_first_key_of_its_block(index_key):
    entries = [(key, key) for key in (b"k0m", b"k1m", b"k2a", b"k3m", b"k4m", b"k5m")]
    head, _, tail = hfile(entries, block_entries=3).rpartition(b"k3m")
    file = open_hfile(head + index_key + tail)
    for pair in entries:
        assert pairs(file.lookup([pair[0]])) == [pair]


def test_equal_keys_are_found_in_all_blocks():
    entries = [(b"a", b"1"), *((b"b", bytes([number])) for number in range(5)), (b"c", b"2")]
    for block_entries in (1, 2, 3):
        file = open_hfile(hfile(entries, block_entries=block_entries, fan_out=2))
        assert pairs(file.lookup([b"b"])) == entries[1:-1]


def test_a_file_without_entries_is_empty():
    for codec in (GZIP, NONE):
        file = open_hfile(hfile([], codec=codec))
        assert len(file.all()) == len(file.lookup([b"a"])) == len(file.lookup_prefix(b"")) == 0


def test_file_info_has_the_schema_and_the_largest_record_key():
    file = open_hfile(hfile(TEN, info={"schema": b"{}", "maxRecordKey": b"k9"}, codec=GZIP))
    assert (file.info["schema"], file.info["maxRecordKey"]) == (b"{}", b"k9")


@pytest.mark.parametrize(
    ("info", "after_value"),
    [
        ({}, b"\0"),
        ({}, b"\x70"),
        ({"MAX_MEMSTORE_TS_KEY": b"\0" * 7 + b"\xff"}, b"\x8f\xff"),
        ({"MAX_MEMSTORE_TS_KEY": b"\x7f" + b"\xff" * 7}, b"\x88" + b"\x7f" * 8),
        ({"KEY_VALUE_VERSION": b"\0\0\0\0"}, b""),
        ({"MAX_TAGS_LEN": b"\0\0\0\0"}, b"\0\0\0"),
        ({"MAX_TAGS_LEN": b"\0\0\0\5"}, b"\0\5tags \x8e\1\1"),
        ({"MAX_TAGS_LEN": b"\0\0\1\1", "KEY_VALUE_VERSION": b""}, b"\1\1" + b"t" * 257),
    ],
)
def test_tags_and_versions_after_values_are_skipped(info, after_value):
    file = open_hfile(hfile(TEN, info=info, after_value=after_value))
    assert pairs(file.all()) == TEN


def test_keys_may_have_a_column_family():
    suffix = b"\3fam" + b"qualifier" + SUFFIX[1:]
    file = open_hfile(hfile(TEN, suffix=suffix, index_suffix=suffix))
    assert pairs(file.all()) == TEN


def test_a_look_up_reads_only_the_blocks_it_needs():
    entries = [(b"%06d" % number, b"x" * 100) for number in range(30_000)]
    counted = CountedReads(hfile(entries, block_entries=500, fan_out=8))
    assert [length for _, length in counted.reads] == [64 << 10]
    counted.reads.clear()
    assert pairs(counted.file.lookup([b"000777", b"000778"])) == entries[777:779]
    assert [length < 64 << 10 for _, length in counted.reads] == [True]
    counted.reads.clear()
    assert pairs(counted.file.lookup_prefix(b"01234")) == entries[12_340:12_350]
    assert [length < 64 << 10 for _, length in counted.reads] == [True]
    counted.reads.clear()
    assert pairs(counted.file.all()) == entries
    assert len(counted.reads) == 1


def test_blocks_far_from_each_other_are_read_separately():
    entries = [(b"%06d" % number, b"x" * 100) for number in range(9_000)]
    counted = CountedReads(hfile(entries, block_entries=500))
    counted.reads.clear()
    assert pairs(counted.file.lookup([b"000777", b"005555"])) == [entries[777], entries[5555]]
    assert [length < 64 << 10 for _, length in counted.reads] == [True, True]


def test_a_small_file_is_read_once():
    counted = CountedReads(hfile(TEN, codec=GZIP))
    assert pairs(counted.file.all()) == TEN
    assert len(counted.reads) == 1


@pytest.mark.parametrize(
    ("codec", "name"), [(0, "LZO"), (3, "SNAPPY"), (4, "LZ4"), (6, "ZSTD"), (9, "9")]
)
def test_unsupported_codecs_are_refused_by_name(codec, name):
    with pytest.raises(Unsupported, match=f"compression {name}"):
        open_hfile(hfile(TEN, trailer={12: codec}))


def test_unsupported_versions_and_encryption_are_refused():
    with pytest.raises(Unsupported, match="version 2"):
        open_hfile(hfile(TEN, version=2))
    assert pairs(open_hfile(hfile(TEN, version=3 << 24 | 3)).all()) == TEN
    with pytest.raises(Unsupported, match="encrypted"):
        open_hfile(hfile(TEN, trailer={13: b"key"}))


HUGE = (1 << 64) - 1


@pytest.mark.parametrize(
    "trailer",
    [
        {1: 0},
        {1: HUGE},
        {2: HUGE},
        {2: 0},
        {5: HUGE},
        {5: 1},
        {7: 9},
        {7: HUGE},
        {8: 0},
        {8: 2},
        {8: HUGE},
        {12: GZIP},
    ],
    ids=str,
)
def test_a_wrong_trailer_is_corrupt(trailer):
    with pytest.raises(Corrupt, match="damaged HFile") as caught:
        open_hfile(hfile(TEN, trailer=trailer)).all()
    assert caught.value.path == "f.hfile"


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.replace(b"DATABLK*", b"DATABLKE", 1),
        lambda data: data.replace(b"IDXROOT2", b"IDXLEAF2", 1),
        lambda data: data.replace(b"PBUF", b"PBUG"),
        lambda data: data.replace(entry(*TEN[1], SUFFIX, b""), entry(b"k1", b"", SUFFIX, b"")),
        lambda data: data.replace(b"\x02k1\0", b"\x02z1\0"),
        lambda data: data.replace(b"\x02k1\0", b"\xf2k1\0"),
        lambda data: data.replace(SUFFIX, SUFFIX[:-1] + b"\x08"),
        lambda data: data[:-1],
        lambda data: data[1:],
        lambda data: data[:100],
        lambda data: data[-4000:],
        lambda data: b"",
    ],
)
def test_damaged_files_are_corrupt(damage):
    data = hfile(TEN)
    assert damage(data) != data
    with pytest.raises(Corrupt):
        open_hfile(damage(data)).all()


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1])
def test_sizes_of_blocks_and_entries_are_checked_before_they_are_used(size):
    data = hfile(TEN, codec=NONE)
    number = struct.pack(">i", size)
    for at in (8, 12, 29, 33, 37):
        with pytest.raises(Corrupt):
            open_hfile(data[:at] + number + data[at + 4 :]).all()


def test_a_block_that_decompresses_to_more_than_its_stated_size_is_corrupt():
    data = hfile([(b"a", bytes(1 << 20))], codec=GZIP)
    with pytest.raises(Corrupt, match="wrong size"):
        open_hfile(data[:12] + struct.pack(">i", 100) + data[16:]).all()


def test_the_checksum_of_a_compressed_block_is_verified():
    data = hfile(TEN[:3], codec=GZIP)
    (end,) = struct.unpack_from(">i", data, 29)
    without_checksum = data[:29] + struct.pack(">i", end - 8) + data[33:]
    flipped = data[: end - 8] + bytes([data[end - 8] ^ 1]) + data[end - 7 :]
    for damaged in (without_checksum, flipped):
        with pytest.raises(Corrupt):
            open_hfile(damaged).all()


def test_blocks_that_overlap_are_corrupt():
    data = hfile(TEN, block_entries=4)
    _, second, third = (match.start() for match in re.finditer(rb"DATABLK\*", data))
    before, _, after = data.rpartition(struct.pack(">q", third))
    with pytest.raises(Corrupt, match="overlap"):
        open_hfile(before + struct.pack(">q", second) + after)


def test_files_above_the_limits_are_refused_or_corrupt(monkeypatch):
    data = hfile([(b"%03d" % number, bytes(1000)) for number in range(9)], codec=GZIP)
    monkeypatch.setattr(reader, "HFILE_ENTRIES_BYTES_MAX", 9_000)
    with pytest.raises(Unsupported, match="9000 bytes"):
        open_hfile(data).all()
    assert len(open_hfile(data).lookup([b"001", b"005"])) == 2
    for name, limit in (
        ("HFILE_BLOCK_BYTES_MAX", 3_000),
        ("HFILE_INFO_BYTES_MAX", 10),
        ("HFILE_INDEX_BYTES_MAX", 10),
        ("HFILE_LEVELS_MAX", 0),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(reader, name, limit)
            with pytest.raises(Corrupt, match="too (large|many)"):
                open_hfile(data).all()


def damaged(data, draw) -> bytes:
    """Return ``data`` with flipped bytes or without its end."""
    changed = bytearray(data)
    if draw(st.integers(0, 4)) == 0:
        return bytes(changed[: draw(st.integers(0, len(data) - 1))])
    for _ in range(draw(st.integers(1, 3))):
        # most of the trailer is zeros
        at = draw(
            st.integers(0, len(data) - 4096 + 120) | st.integers(len(data) - 4, len(data) - 1)
        )
        changed[at] ^= draw(st.integers(1, 255))
    return bytes(changed)


def assert_read_or_refused(data):
    codec = data.draw(st.sampled_from([GZIP, NONE]))
    stored = hfile(TEN, codec=codec, fan_out=data.draw(st.sampled_from([0, 2])))
    changed = damaged(stored, data.draw)
    try:
        file = open_hfile(changed)
        file.all().validate(full=True)
        file.lookup([b"k3"]).validate(full=True)
        file.lookup_prefix(b"k").validate(full=True)
    except MdtError as error:
        assert isinstance(error, Corrupt | Unsupported)


@given(st.data())
def test_damaged_bytes_are_read_or_refused(data):
    assert_read_or_refused(data)


@pytest.mark.nightly
@LONG
@given(st.data())
def test_many_damaged_bytes_are_read_or_refused(data):
    assert_read_or_refused(data)


def hfiles_of_hudi(path: Path):
    """Yield the HFiles of a metadata table: base files and blocks of log files."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if "/.hoodie/metadata/" not in name or name.startswith("__MACOSX"):
                continue
            if name.endswith(".hfile"):
                yield name, archive.read(name)
            elif ".log." in name and not name.endswith(".crc"):
                for block in log_file.parse(archive.read(name), path=name):
                    if block.kind == log_file.HFILE:
                        yield name, bytes(block.content)


@pytest.mark.skipif(not TABLES, reason=f"no fixtures in {FIXTURES}")
@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_look_ups_in_hfiles_written_by_hudi_find_all_entries(path):
    for name, data in hfiles_of_hudi(path):
        file = reader.open_bytes(data, name)
        entries = file.all()
        assert len(entries) == file.count and file.info["schema"].startswith(b'{"type":"record"')
        keys = entries["key"].to_pylist()
        assert file.lookup(keys).equals(entries) and file.lookup_prefix(b"").equals(entries)
        for key in keys[:: len(keys) // 3 + 1]:
            assert pairs(file.lookup([key])) == [pair for pair in pairs(entries) if pair[0] == key]
