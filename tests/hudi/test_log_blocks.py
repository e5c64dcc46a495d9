"""Blocks of log files that count, and their order."""

from __future__ import annotations

import pytest
from foreign_tables import block, rollback, time
from hypothesis import given
from hypothesis import strategies as st

from mdt.errors import Corrupt, Unsupported
from mdt.hudi import log_file
from mdt.hudi.read import log_blocks
from mdt.hudi.read.log_blocks import live_blocks, load_blocks
from mdt.stores.storage import MemoryStorage

PATH = "p/.a_1.log.1_1-2-3"


def is_any(instant):
    return True


def compacted(number, *times):
    return block(number, f"C{number}".encode(), COMPACTED_TIMES=",".join(map(time, times)))


def contents(blocks):
    return [bytes(one.block.content).decode() for one in blocks]


def parsed(*parts):
    return log_blocks.parse(b"".join(parts), PATH)


def live(*parts, is_completed=is_any, at=0):
    return contents(live_blocks(parsed(*parts), is_completed, time(at) if at else ""))


def test_blocks_have_their_instant_header_and_content():
    storage = MemoryStorage()
    data = block(1, b"abc", SCHEMA='"ü"') + block(2, b"", log_file.HFILE)
    storage.create(PATH, data)
    first, second = load_blocks(storage, PATH, len(data))
    assert (first.instant, first.path, first.block.header[log_file.SCHEMA]) == (
        time(1),
        PATH,
        '"ü"',
    )
    assert bytes(first.block.content) == b"abc"
    assert (second.block.kind, second.instant) == (log_file.HFILE, time(2))


def test_blocks_for_change_feeds_and_marked_ones_are_left_out():
    kinds = (log_file.CDC, log_file.CORRUPT)
    assert live(*(block(0, b"x", kind) for kind in kinds), block(1, b"a")) == ["a"]


WHOLE = block(2, b"whole")


@given(st.integers(0, len(WHOLE) - 1), st.booleans())
def test_a_torn_block_is_left_out(cut, is_followed):
    tail = [block(3, b"after")] if is_followed and cut >= 6 else []
    expected = ["before", "after"] if tail else ["before"]
    assert live(block(1, b"before"), WHOLE[:cut], *tail) == expected


@pytest.mark.parametrize("place", [6, len(WHOLE) - 1], ids=["size", "copy of the size"])
def test_a_block_with_a_wrong_size_is_left_out(place):
    damaged = bytearray(WHOLE)
    damaged[place] ^= 1
    assert live(bytes(damaged), block(3, b"after")) == ["after"]


def test_a_torn_block_may_contain_magic_bytes():
    torn = block(1, b"#HUDI#" * 5)[:-3]
    assert live(torn, block(2, b"after")) == ["after"]


@pytest.mark.parametrize("garbage", [b"garbage", b"\x00" * 6])
def test_garbage_is_corrupt_where_it_begins(garbage):
    with pytest.raises(Corrupt) as caught:
        parsed(WHOLE, garbage, WHOLE)
    assert (caught.value.path, caught.value.offset) == (PATH, len(WHOLE))


def test_a_whole_block_with_a_damaged_header_is_corrupt():
    damaged = bytearray(WHOLE)
    damaged[22] ^= 1
    with pytest.raises(Corrupt):
        parsed(bytes(damaged))
    with pytest.raises(Corrupt, match="no instant"):
        parsed(block(0))


def test_a_file_above_the_limit_is_not_read(monkeypatch):
    monkeypatch.setattr(log_blocks, "LOG_FILE_BYTES_MAX", 10)
    with pytest.raises(Corrupt, match="too large"):
        load_blocks(MemoryStorage(), PATH, 11)


def test_blocks_count_if_their_instant_is_completed_and_not_too_new():
    blocks = [block(number, b"%d" % number) for number in (1, 2, 3)]
    assert live(*blocks, is_completed=lambda instant: instant != time(2)) == ["1", "3"]
    assert live(*blocks, at=2) == ["1", "2"]


def test_a_command_removes_the_blocks_of_its_target_before_it():
    again = block(2, b"again")
    blocks = [block(1, b"1"), block(2, b"2"), block(3, b"3"), block(2, b"2"), rollback(4, 2)]
    assert live(*blocks) == ["1", "3"]
    assert live(*blocks, again) == ["1", "3", "again"]
    assert live(*blocks, is_completed=lambda instant: instant < time(4), at=3) == ["1", "3"]


def test_commands_need_a_target_and_a_known_type():
    assert live(rollback(2, 1, COMMAND_TYPE="0")) == []
    with pytest.raises(Corrupt, match="target"):
        live(block(1, b"", log_file.COMMAND))
    with pytest.raises(Unsupported, match="type '1'"):
        live(rollback(2, 1, COMMAND_TYPE="1"))


def test_blocks_of_an_instant_are_merged_together():
    assert live(block(1, b"a"), block(2, b"b"), block(1, b"c")) == ["a", "c", "b"]


def test_a_log_compaction_takes_the_place_of_the_newest_compacted_instant():
    blocks = [block(number, b"%d" % number) for number in (1, 2, 3, 4)]
    assert live(*blocks, compacted(5, 1, 2, 3), block(6, b"6")) == ["C5", "4", "6"]


def test_a_log_compaction_that_is_not_completed_does_not_count():
    blocks = [block(1, b"1"), block(2, b"2"), compacted(3, 1, 2)]
    assert live(*blocks, is_completed=lambda instant: instant != time(3)) == ["1", "2"]
    assert live(*blocks, rollback(4, 3)) == ["1", "2"]
    assert live(*blocks, at=2) == ["1", "2"]


def test_a_log_compaction_may_replace_another_one():
    blocks = [block(1, b"1"), block(2, b"2"), block(3, b"3"), compacted(4, 1, 2)]
    assert live(*blocks, compacted(5, 4, 3)) == ["C5"]
    assert live(*blocks, block(6, b"6"), compacted(7, 4)) == ["C7", "3", "6"]


def test_a_log_compaction_whose_sources_are_gone_keeps_its_place():
    assert live(block(1, b"1"), compacted(5, 2, 3), block(6, b"6")) == ["1", "C5", "6"]
    assert live(compacted(5, 5)) == ["C5"]
