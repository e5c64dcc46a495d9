"""The blocks of log files that a reader applies, and their order."""

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


def is_always_completed(instant):
    return True


def log_compaction(number, *times):
    return block(number, f"C{number}".encode(), COMPACTED_TIMES=",".join(map(time, times)))


def contents(blocks):
    return [bytes(log_block.block.content).decode() for log_block in blocks]


def parsed(*parts):
    return log_blocks.parse(b"".join(parts), PATH)


def live(*parts, is_completed=is_always_completed, at=0):
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


def test_cdc_blocks_and_blocks_marked_as_corrupt_are_left_out():
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
def test_garbage_is_corrupt_at_the_offset_where_it_begins(garbage):
    with pytest.raises(Corrupt) as caught:
        parsed(WHOLE, garbage, WHOLE)
    assert (caught.value.path, caught.value.offset) == (PATH, len(WHOLE))


def test_a_complete_block_with_a_damaged_header_or_without_an_instant_is_corrupt():
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


def test_blocks_of_pending_and_of_later_instants_are_left_out():
    blocks = [block(number, b"%d" % number) for number in (1, 2, 3)]
    assert live(*blocks, is_completed=lambda instant: instant != time(2)) == ["1", "3"]
    assert live(*blocks, at=2) == ["1", "2"]


def test_a_rollback_command_removes_the_earlier_blocks_of_its_target_instant():
    later_block = block(2, b"again")
    blocks = [block(1, b"1"), block(2, b"2"), block(3, b"3"), block(2, b"2"), rollback(4, 2)]
    assert live(*blocks) == ["1", "3"]
    assert live(*blocks, later_block) == ["1", "3", "again"]
    assert live(*blocks, is_completed=lambda instant: instant < time(4), at=3) == ["1", "3"]


def test_command_blocks_need_a_target_and_a_known_type():
    assert live(rollback(2, 1, COMMAND_TYPE="0")) == []
    with pytest.raises(Corrupt, match="target"):
        live(block(1, b"", log_file.COMMAND))
    with pytest.raises(Unsupported, match="type '1'"):
        live(rollback(2, 1, COMMAND_TYPE="1"))


def test_blocks_of_the_same_instant_are_applied_together():
    assert live(block(1, b"a"), block(2, b"b"), block(1, b"c")) == ["a", "c", "b"]


def test_a_log_compaction_takes_the_place_of_the_newest_compacted_instant():
    blocks = [block(number, b"%d" % number) for number in (1, 2, 3, 4)]
    assert live(*blocks, log_compaction(5, 1, 2, 3), block(6, b"6")) == ["C5", "4", "6"]


def test_a_pending_rolled_back_or_later_log_compaction_is_left_out():
    blocks = [block(1, b"1"), block(2, b"2"), log_compaction(3, 1, 2)]
    assert live(*blocks, is_completed=lambda instant: instant != time(3)) == ["1", "2"]
    assert live(*blocks, rollback(4, 3)) == ["1", "2"]
    assert live(*blocks, at=2) == ["1", "2"]


def test_a_log_compaction_may_replace_another_log_compaction():
    blocks = [block(1, b"1"), block(2, b"2"), block(3, b"3"), log_compaction(4, 1, 2)]
    assert live(*blocks, log_compaction(5, 4, 3)) == ["C5"]
    assert live(*blocks, block(6, b"6"), log_compaction(7, 4)) == ["C7", "3", "6"]


def test_a_log_compaction_without_its_source_blocks_keeps_its_own_position():
    assert live(block(1, b"1"), log_compaction(5, 2, 3), block(6, b"6")) == ["1", "C5", "6"]
    assert live(log_compaction(5, 5)) == ["C5"]
