"""The records of a partition of Hudi's metadata table by key, in its base files and log files.

The keys are distributed over the file groups of the partition by their hash. The number of file
groups never changes, so an absent one is damage. A file group is an HFile, and log files whose
blocks are small HFiles and lists of deleted keys. Later records replace earlier ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Corrupt, Unsupported
from mdt.hudi.delete_records import decode_delete_block
from mdt.hudi.log_file import DELETE, HFILE, SCHEMA, Block
from mdt.hudi.plain_arrays import plain
from mdt.hudi.read import hfile
from mdt.hudi.read.file_slices import FileSlice
from mdt.hudi.read.hfile import HFile
from mdt.hudi.read.instants import Timeline
from mdt.hudi.read.loading import TableState
from mdt.hudi.read.metadata_records import decode_records
from mdt.hudi.read.metadata_state import (
    FOLDER,
    MetadataTable,
    load_live_blocks,
    pending_instants,
    require_completed_base,
)
from mdt.stores.storage import Storage

T = TypeVar("T")
Int64s = npt.NDArray[np.int64]

_FILE_ID = re.compile(r"(.+)-([0-9]{4,9})-[0-9]+")
"""Prefix and number of a file group, as in ``record-index-0003-0``."""
_IS_DELETED = "is_deleted"

_NO_RECORDS = pa.table({"key": pa.nulls(0, pa.string()), _IS_DELETED: pa.nulls(0, pa.bool_())})

Select = Callable[[HFile], pa.RecordBatch]
"""Returns the entries of a file that are needed."""


@dataclass(frozen=True, slots=True)
class Decode:
    """The decoding of the records of an index.

    Attributes:
        field: Name of the field with the content of a record.
        table: Returns ``key``, ``is_deleted`` and columns of its own for keys and contents, which
            are not null.
    """

    field: str
    table: Callable[[pa.Array, pa.StructArray], pa.Table]


@dataclass(frozen=True, slots=True)
class IndexGroup:
    """A file group of a partition, opened.

    Attributes:
        path: Path of its folder, for messages.
        base: Its base file, or None.
        blocks: HFiles in its log files with their schemas, and deleted keys, in order.
    """

    path: str
    base: HFile | None
    blocks: tuple[tuple[HFile, str] | pa.Array, ...]

    def records(self, select: Select, decode: Decode, *, base: bool = True) -> pa.Table:
        """Return the records of :meth:`parts` as one table. Raises the errors of :meth:`parts`."""
        parts = list(self.parts(select, decode, base=base))
        return pa.concat_tables([_NO_RECORDS, *parts], promote_options="default")

    def parts(self, select: Select, decode: Decode, *, base: bool = True) -> Iterator[pa.Table]:
        """Yield the selected records of each file in order, and all deletes of log files.

        Args:
            base: Include the records of the base file.

        Raises Corrupt, Missing, and Unsupported if they take too much memory.
        """
        if self.base is not None and base:
            yield _decoded(self.base, schema_of(self.base), select, decode)
        for block in self.blocks:
            if isinstance(block, pa.Array):
                yield pa.table({"key": block, _IS_DELETED: pa.repeat(True, len(block))})
            else:
                file, schema = block
                yield _decoded(file, schema, select, decode)

    def count(self, decode: Decode, changes_max: int) -> int:
        """Return the number of records.

        Reads only the blocks of the base file with keys that are in log files, too.

        Raises the errors of :meth:`records`, and Unsupported for more than ``changes_max`` of
        these.
        """
        in_base = 0 if self.base is None else self.base.count
        if not self.blocks:
            return in_base
        sizes = (
            len(block) if isinstance(block, pa.Array) else block[0].count for block in self.blocks
        )
        if sum(sizes) > changes_max:
            raise Unsupported(f"the log files in {self.path} have more than {changes_max} records")
        changed = self.records(HFile.all, decode, base=False)
        changed = changed.take(newest_rows(changed))
        keys = [key.encode() for key in changed["key"].to_pylist()]
        replaced = pa.array([], pa.large_binary())
        if self.base is not None and keys:
            replaced = self.base.lookup(keys)["key"]
        is_live = pc.invert(changed[_IS_DELETED])
        return in_base - len(replaced.unique()) + int(pc.sum(is_live, min_count=0).as_py())


class IndexPartition:
    """A partition of the metadata table. Its file groups are opened when they are needed."""

    def __init__(
        self, objects: Storage, metadata: MetadataTable, data: Timeline, name: str
    ) -> None:
        """List the file groups of the partition ``name``.

        Args:
            data: The timeline of the data table, with which ``metadata`` is in step.

        Raises Corrupt and Missing.
        """
        self._objects = objects
        self._data = data
        self._pending = pending_instants(data)
        self._state = metadata.state(objects, name)
        self._path = f"{FOLDER}/{name}"
        self._open: dict[FileSlice, IndexGroup] = {}
        self._slices = numbered_slices(self._state, self._path)

    def prefixes(self) -> list[str]:
        """Return the beginnings of the names of file groups. The keys of each are distributed."""
        return list(self._slices)

    def size(self, prefix: str) -> int:
        """Return the number of file groups with ``prefix``."""
        return len(self._slices[prefix])

    def group(self, prefix: str, number: int) -> IndexGroup:
        """Return a file group, which stays open. Raises Corrupt, Missing, and Unsupported."""
        file_slice = self._slices[prefix][number]
        if file_slice not in self._open:
            self._open[file_slice] = self._load(file_slice)
        return self._open[file_slice]

    def each(self, act: Callable[[IndexGroup], T]) -> Iterator[T]:
        """Yield the result of ``act`` for each file group, which is then closed.

        Several are read at once. Raises Corrupt, Missing, and Unsupported.
        """
        slices = chain.from_iterable(self._slices.values())
        return self._objects.each(
            partial(self._act, act, slices_of_group) for slices_of_group in slices
        )

    def _act(self, act: Callable[[IndexGroup], T], file_slice: FileSlice) -> T:
        return act(self._load(file_slice))

    def numbers(self, prefix: str, texts: list[str]) -> Int64s:
        """Return the number of the file group for each of ``texts``, int64[n]."""
        return group_numbers(texts, len(self._slices[prefix]))

    def _load(self, file_slice: FileSlice) -> IndexGroup:
        state: TableState = self._state
        require_completed_base(state, file_slice, self._data)
        base = None
        if file_slice.base is not None:
            path = f"{FOLDER}/{file_slice.path(file_slice.base)}"
            base = hfile.open_object(self._objects, path, file_slice.base.size)
        blocks = load_live_blocks(self._objects, state, file_slice, self._pending, all_known=True)
        return IndexGroup(
            self._path, base, tuple(open_block(block.block, block.path) for block in blocks)
        )


def numbered_slices(state: TableState, path: str) -> dict[str, list[FileSlice]]:
    """Return the slices of a partition by the beginning of the names of their file groups, in the
    order of their numbers.

    Args:
        path: Path of its folder, for messages.

    Raises Corrupt if a file group is missing, is there twice, or has an unknown name.
    """
    numbered: dict[str, dict[int, FileSlice]] = {}
    for file_slice in state.slices:
        match = _FILE_ID.fullmatch(file_slice.file_id)
        if match is None:
            raise Corrupt(f"unknown file group {file_slice.file_id[:200]!r}", path=path)
        numbered.setdefault(match[1], {})[int(match[2])] = file_slice
    if sum(map(len, numbered.values())) < len(state.slices):
        raise Corrupt("two file groups have the same number", path=path)
    for prefix, slices in numbered.items():
        if sorted(slices) != list(range(len(slices))):
            raise Corrupt(f"a file group of {prefix!r} is missing", path=path)
    return {
        prefix: [slices[number] for number in range(len(slices))]
        for prefix, slices in numbered.items()
    }


def newest_rows(records: pa.Table) -> pa.Array:
    """Return the row of the last record of each key, ascending. It may delete the key."""
    rows = records.select(["key"]).append_column("row", pa.array(np.arange(len(records))))
    last = rows.group_by("key", use_threads=False).aggregate([("row", "max")])["row_max"]
    return plain(last.take(pc.sort_indices(last)))


def group_numbers(texts: list[str], groups: int) -> Int64s:
    """Return the number of the file group of each text, of so many groups, int64[n].

    >>> group_numbers(["k000", "é"], 10).tolist()
    [1, 3]
    """
    return np.abs(java_hashes(texts)) % groups


def java_hashes(texts: list[str]) -> Int64s:
    """Return Java's hash code of each text, int64[n].

    >>> java_hashes(["", "k000", "é", "😀", "a long text"]).tolist()
    [0, 3235301, 233, 1772899, -134153390]
    """
    lengths = np.array([len(text.encode("utf-16-le")) // 2 for text in texts], np.int64)
    ends = np.cumsum(lengths)
    units = np.frombuffer("".join(texts).encode("utf-16-le"), "<u2").astype(np.uint32)
    powers = np.full(max(lengths, default=0) + 1, 31, np.uint32)
    powers[0] = 1
    powers = np.cumprod(powers, dtype=np.uint32)
    places = np.repeat(ends, lengths) - 1 - np.arange(len(units))
    # differences of sums are right modulo 2^32, and empty texts have the hash 0
    sums = np.concatenate([[0], np.cumsum(units * powers[places], dtype=np.uint32)])
    hashes = (sums.astype(np.uint32)[ends] - sums.astype(np.uint32)[ends - lengths]).view(np.int32)
    return hashes.astype(np.int64)


def open_block(block: Block, path: str) -> tuple[HFile, str] | pa.Array:
    """Return the HFile in a block with the Avro schema of its values, or the keys that it deletes.

    Raises Corrupt, and Unsupported for other blocks.
    """
    if block.kind == HFILE:
        file = hfile.open_bytes(block.content, path)
        return file, block.header.get(SCHEMA) or schema_of(file)
    if block.kind != DELETE:
        raise Unsupported(f"{path} has a block of type {block.kind}")
    try:
        keys = plain(decode_delete_block(block.content)["key"])
        if keys.null_count:
            raise Corrupt("a deleted key is null")
        return keys
    except Corrupt as error:
        raise Corrupt(error.message, path=path, offset=block.offset) from error


def schema_of(file: HFile) -> str:
    """Return the Avro schema of the values in a file, "" if it has none."""
    return file.info.get("schema", b"").decode(errors="replace")


def _decoded(file: HFile, schema: str, select: Select, decode: Decode) -> pa.Table:
    """Return the selected records of a file. Entries without a value delete their keys."""
    entries = select(file)
    if not len(entries):
        return _NO_RECORDS
    if pc.any(pc.equal(pc.binary_length(entries["value"]), 0)).as_py():
        raise Unsupported(f"{file.path} has records without a value")
    try:
        records = decode_records(entries, schema, file.path, [decode.field])
        values = plain(records[decode.field])
        if values.null_count:  # Arrow would abort the process if a field is a union
            raise ValueError(f"a record has no {decode.field}")
        return decode.table(plain(records["key"]), values)
    except (KeyError, pa.ArrowException, ValueError) as error:
        raise Corrupt(f"unknown records: {str(error)[:200]}", path=file.path) from error
