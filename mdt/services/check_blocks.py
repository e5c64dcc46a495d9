"""Check the blocks of our log files: each must be, byte for byte, what its rows ask for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from mdt.hudi import log_file
from mdt.hudi.log_file import DELETE, PARQUET, Block
from mdt.hudi.schema import RECORD_KEY, avro_schema
from mdt.metadata.keys.locate import base_key_map, positions_in_base
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot


def check_blocks(
    metadata: Metadata, snapshot: Snapshot, i: int, table: pa.Table | None
) -> Iterator[str]:
    """Yield what is wrong with the blocks of log file ``i`` of ``snapshot``, whose rows are
    ``table`` (None: no rows).

    Raises Corrupt if the file is not whole blocks.
    """
    file = snapshot.segment(i)
    data = metadata.storage.read_whole(file.path, file.size)
    blocks = log_file.parse(data, path=file.path)
    rows = [b for b in blocks if b.kind == PARQUET]
    deletes = [b for b in blocks if b.kind == DELETE]
    if len(blocks) != len(rows) + len(deletes) or len(rows) != (1 if file.rows else 0):
        yield f"unexpected log blocks {[b.kind for b in blocks]}"
        return
    if rows and (rows[0].content_offset, rows[0].content_length) != (
        file.block_offset,
        file.block_length,
    ):
        yield "the data block stands elsewhere than the metadata says"
    if rows and table is not None:
        yield from _compare(
            metadata, snapshot, i, data, rows[0], table[RECORD_KEY].combine_chunks()
        )
    deleted = 0
    for block in deletes:
        keys = log_file.decode_delete_block(block.content)["key"].combine_chunks()
        deleted += len(keys)
        if keys.null_count:
            yield "a delete block holds a null key"
        else:
            yield from _compare(metadata, snapshot, i, data, block, keys)
    if deleted != file.deletes:
        yield f"delete blocks hold {deleted} keys, the metadata says {file.deletes}"


def _compare(
    metadata: Metadata, snapshot: Snapshot, i: int, data: bytes, block: Block, keys: pa.Array
) -> Iterator[str]:
    """Yield a sentence if ``block`` differs from the block that we would write for ``keys``:
    string[n].
    """
    file = snapshot.segment(i)
    shared: dict[str, Any] = {
        "instant": file.instant,
        "avro_schema": avro_schema(snapshot.definition.at(file.seq), meta_fields=True),
        "positions": _positions(metadata, snapshot, i, keys),
        "base_instant": file.base_instant,
    }
    if block.kind == PARQUET:
        expected, _ = log_file.data_block(bytes(block.content), **shared)
    else:
        expected = log_file.delete_block(keys, file.partition, **shared)
    found = data[block.offset : block.offset + block.length]
    if found != expected:
        here = next(
            (n for n, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b),
            len(expected),
        )
        yield (
            f"the log block at byte {block.offset} differs from what its rows ask for, first at"
            f" byte {block.offset + here}"
        )


def _positions(metadata: Metadata, snapshot: Snapshot, i: int, keys: pa.Array) -> BitMap | None:
    """Return the positions in the base file of ``keys`` as a block of this table must have them,
    None for none.

    A reader that trusts positions returns wrong rows for wrong ones, so they are found anew from
    the key map.
    """
    if not metadata.options(snapshot.definition).write_record_positions or not len(keys):
        return None
    base = base_key_map(metadata, snapshot, int(snapshot.file_groups.of_files(np.array([i]))[0]))
    found = positions_in_base(base, snapshot.definition.key_hash.hash(keys))
    return (
        BitMap(found.astype(np.uint32))
        if found is not None and bool(np.all(np.diff(found) > 0))
        else None
    )
