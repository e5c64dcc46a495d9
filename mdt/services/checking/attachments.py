"""Check and rebuild key maps and page maps, which are derived from data files.

A rebuilt map with the CRC in the commit record equals the original. It is written back under the
same name without a commit, so older states can use it too. If the bytes differ, the file group is
rewritten.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import flags
from mdt.errors import Corrupt, Invalid, Missing
from mdt.hudi.avro_schema import RECORD_KEY
from mdt.metadata.files import key_map
from mdt.metadata.log import trusted_names as names
from mdt.parquet import page_map
from mdt.parquet.segment import Segment
from mdt.services.checking.problems import Problem
from mdt.services.checking.state import DataFile, Repair, TableState
from mdt.stores.object_range import ObjectRange
from mdt.stores.storage import Storage


def read_verified(storage: Storage, stored: ObjectRange) -> bytes:
    """Read a range from storage, bypassing caches. Raises Corrupt if its CRC is wrong."""
    data = storage.read(stored.path, stored.offset, stored.length)
    if zlib.crc32(data) != stored.crc:
        text = f"{stored.length} bytes of metadata are damaged"
        raise Corrupt(text, path=stored.path, offset=stored.offset)
    return data


def is_whole(storage: Storage, stored: ObjectRange) -> bool:
    """Return True if the bytes of a range have the right CRC."""
    try:
        read_verified(storage, stored)
    except Corrupt:
        return False
    return True


def check_key_map(file: DataFile) -> Iterator[str]:
    """Compare a key map, possibly in an older format, with the rows of the file."""
    state, stored = file.state, file.segment.key_map
    if stored is None:
        yield "has no key map"
        return
    data, expected = read_verified(state.storage, stored), _key_map_of(state, file.table)
    if data != expected:
        content = key_map.decode(data, path=stored.path, offset=stored.offset).verify_all()
        if key_map.encode(content) != expected:
            yield f"the key map at {stored.path}:{stored.offset} differs from the rows"


def check_page_map(file: DataFile) -> Iterator[str]:
    """Compare a page map with the bytes of the file.

    Page maps are optional.
    """
    stored = file.segment.page_map
    if stored is None:
        return
    content = read_verified(file.state.storage, stored)
    if content not in _page_maps_of(file.segment, file.data):
        yield f"the page map at {stored.path}:{stored.offset} differs from the file"


def _key_map_of(state: TableState, table: pa.Table) -> bytes:
    words = key_map.words_of(table, state.definition.ordering)
    hashes = state.definition.key_hash.hash(table[RECORD_KEY].combine_chunks())
    return key_map.encode(key_map.build(hashes, words))


def _page_maps_of(segment: Segment, data: bytes) -> Iterator[bytes]:
    """Yield the possible page maps of a data file. Older writers omitted nested columns."""
    block = pa.py_buffer(data).slice(segment.block_offset, segment.block_length)
    for nested in (True, False):
        with suppress(*page_map.UNKNOWN_LAYOUT):
            yield page_map.encode(page_map.build(block, nested=nested))


def rebuild(repair: Repair, problems: Sequence[Problem]) -> None:
    """Write damaged key maps and page maps back if their data files are readable."""
    state, rewritten = repair.state(), set[str]()
    history = state.snapshot.history
    seqs = dict(zip(history["instant"].to_pylist(), history["seq"].to_pylist(), strict=True))
    for path in sorted({problem.path for problem in problems}):
        instant, _ = names.stored_of(path) or ("", 0)
        count = 0
        for past in _states(state, seqs.get(instant, 0)):
            count += _restore_maps(past, path, rewritten)
        if count:
            repair.note(path, f"{count} key maps and page maps restored byte for byte")
    repair.begin_again()
    repair.rewrite(rewritten)


def _states(state: TableState, seq: int) -> Iterator[TableState]:
    """Yield the readable states whose files may refer to an object of commit ``seq``.

    These are the state after the commit (or the oldest readable state), the newest state, and
    tagged states.
    """
    horizon, tags = state.snapshot.retention.horizon, state.snapshot.tags
    for number in {max(seq, horizon), state.snapshot.seq, *tags.before(horizon)}:
        try:
            snapshot = state.metadata.state(number)
        except Corrupt:
            continue
        yield TableState(state.metadata, snapshot)


def _restore_maps(state: TableState, path: str, changed_groups: set[str]) -> int:
    """Write back the damaged maps of a state in the object at ``path``. Return their number.

    File groups whose rebuilt maps have other bytes are added to ``changed_groups``.
    """
    files, count = state.snapshot.files, 0
    is_here = pc.equal(files.column("key_map_path"), path).fill_null(False)
    segments = list(files.segments(np.flatnonzero(flags(is_here))))
    try:
        data = bytearray(state.storage.read(path))
    except Missing:
        data = bytearray()
    with ThreadPoolExecutor(pa.cpu_count()) as pool:
        rebuilt = pool.map(partial(_rebuild_maps, state), segments)
        for segment, maps in zip(segments, rebuilt, strict=True):
            for stored, content in maps:
                if len(content) != stored.length or zlib.crc32(content) != stored.crc:
                    changed_groups.add(segment.file_id)
                    continue
                data.extend(bytes(max(0, stored.offset + stored.length - len(data))))
                data[stored.offset : stored.offset + stored.length] = content
                count += 1
    if count:
        state.storage.replace(path, bytes(data))
    return count


def _rebuild_maps(state: TableState, segment: Segment) -> list[tuple[ObjectRange, bytes]]:
    """Rebuild the damaged maps of a data file. Returns nothing if the file is unreadable."""
    maps, stored, storage = [], segment.page_map, state.storage
    with suppress(Corrupt, Invalid):
        if segment.key_map is not None and not is_whole(storage, segment.key_map):
            columns = RECORD_KEY, *state.definition.ordering
            maps.append((segment.key_map, _key_map_of(state, state.read(segment, *columns))))
        if stored is not None and not is_whole(storage, stored):
            whole = storage.read_whole(segment.path, segment.size)
            if zlib.crc32(whole) == segment.crc:
                contents = list(_page_maps_of(segment, whole))
                contents.sort(key=lambda content: zlib.crc32(content) != stored.crc)
                maps.append((stored, (contents or [b""])[0]))
    return maps
