"""The columns of a checkpoint on storage: pages of Arrow IPC, read, checked and decoded on first
use.

A damaged page costs time, never rows: its columns are made again from the log.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes.arrays import numbers, run_starts
from mdt.errors import Corrupt
from mdt.forking import OwnLock
from mdt.limits import BASE_OBJECT_BYTES, FAR_OBJECT_WHOLE_BYTES_MAX, FRAME_BYTES_MAX
from mdt.metadata.files import paths
from mdt.metadata.files.deletion_vectors import StoredVectors, first_vector
from mdt.metadata.log import codec
from mdt.metadata.log.checkpoint_columns import (
    ALWAYS,
    HISTORY_ADDED,
    MAPPED_BYTES,
    PAGES,
    Column,
    Columns,
    Ints,
    members_of,
    no_rows,
    schema_of,
)
from mdt.session import Recent, session
from mdt.stores.contract import Buffer
from mdt.stores.mappings import Mappings
from mdt.stores.storage import Storage

if TYPE_CHECKING:
    from mdt.stores.storage import PageCache

_REMOTE_THREADS = 16
_CHUNKS_BYTES_MAX = 16 * FAR_OBJECT_WHOLE_BYTES_MAX
_WHOLE = -1
"""The page number of a whole column in the cache."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The pages of a column: number of the first page and count.  ``every`` as in
    :class:`Column`.
    """

    name: str
    every: int
    first: int
    count: int


class StoredColumns(Columns):
    """Columns in the objects of a checkpoint.  Thread-safe.

    For a damaged page, ``damaged`` is called, and ``rebuild`` makes the columns again from the log.
    :meth:`optional` columns are not rebuilt.
    """

    def __init__(
        self,
        storage: Storage,
        mappings: Mappings,
        layout: Layout,
        *,
        cache: PageCache | None,
        damaged: Callable[[Corrupt], None],
        rebuild: Callable[[], Columns],
    ) -> None:
        super().__init__(layout.seq, layout.rows)
        self.hits = self.misses = 0
        self._storage = storage
        self._mappings = mappings
        self._layout = layout
        self.cache = cache
        self._damaged = damaged
        self._rebuild = rebuild
        self._rebuilt: Columns | None = None
        self._damage: Corrupt | None = None
        self._is_mapped = storage.local_path("") is not None
        self._files: dict[str, pa.NativeFile] = {}
        self._chunks: Recent[tuple[str, int], bytes] = Recent(_CHUNKS_BYTES_MAX, session().memory)
        self._lock = OwnLock()

    def __contains__(self, name: object) -> bool:
        return name in self._layout.columns

    def names(self, family: str) -> list[str]:
        return members_of(self._layout.columns, family)

    def every(self, name: str) -> int:
        return (
            self._layout.columns[name].every if self._rebuilt is None else self._rebuilt.every(name)
        )

    def table(self, name: str) -> pa.Table:
        cached: pa.Table | None = self._recent.get((name, _WHOLE))
        if cached is not None:
            self.hits += 1
            return cached
        if self._rebuilt is not None:
            return self._rebuilt.table(name)
        try:
            return self._read_whole(name)
        except Corrupt as error:
            return self._fall_back(error).table(name)

    def optional(self, name: str) -> pa.Table:
        if self._damage is not None:
            raise self._damage
        try:
            cached: pa.Table | None = self._recent.get((name, _WHOLE))
            return self._read_whole(name) if cached is None else cached
        except Corrupt as error:
            self._damage = error
            self._damaged(error)
            raise

    def _read_whole(self, name: str) -> pa.Table:
        place = self._layout.columns[name]
        pages = self._read_pages([(place, n) for n in range(place.count)])
        schema = schema_of(name)
        assert schema is not None, f"a column of this version, not {name}"
        table = pa.concat_tables(pages or [no_rows(schema)])
        length = int(self._layout.pages["length"][place.first : place.first + place.count].sum())
        return self._recent.put(
            (name, _WHOLE), table, MAPPED_BYTES * (1 + place.count) if self._is_mapped else length
        )

    def page(self, name: str, row: int) -> tuple[pa.Table, int]:
        if self._rebuilt is not None:
            return self._rebuilt.page(name, row)
        place = self._layout.columns[name]
        number = row // place.every if place.every else 0
        try:
            return self._page(place, number), number * place.every
        except Corrupt as error:
            return self._fall_back(error).page(name, row)

    def vectors(self, files: npt.NDArray[np.int64]) -> StoredVectors | None:
        if any(paths.checkpoint_of(path) is None for path in self._layout.objects):
            return None  # a manifest must not make us read other objects
        place = self._layout.columns["vector"]
        self.load(["vector_range"], files[:: max(1, place.every // 2)].tolist())
        ranges_of_pages: list[Ints] = []
        for number in np.unique(files // place.every).tolist():
            table, first = self.page("vector_range", number * place.every)
            in_page = (
                files[np.searchsorted(files, first) : np.searchsorted(files, first + place.every)]
                - first
            )
            ranges = self._layout.vectors_of_page(
                place, number, *(numbers(table[name].fill_null(0)) for name in table.column_names)
            )
            if ranges is None or self._rebuilt is not None:
                return None
            ranges_of_pages.append(ranges[:, in_page])
        columns = (
            np.concatenate(ranges_of_pages, axis=1)
            if ranges_of_pages
            else np.zeros((5, 0), np.int64)
        )
        objects = [(path, self._layout.end(path)) for path in self._layout.objects]
        return StoredVectors(objects, *columns)

    def load(self, names: Sequence[str], rows: Sequence[int] | None = None) -> None:
        places = [self._layout.columns[name] for name in names]
        try:
            if rows is None:
                self._read_pages([(place, n) for place in places for n in range(place.count)])
            else:
                self._read_pages(
                    [
                        (p, n)
                        for p in places
                        for n in sorted({row // p.every if p.every else 0 for row in rows})
                    ]
                )
        except Corrupt as error:
            self._fall_back(error)

    def _read_pages(self, requests: Sequence[tuple[Placed, int]]) -> list[pa.Table]:
        if not self._storage.is_remote or len(requests) < 2 or self._are_near(requests):
            return [self._page(place, n) for place, n in requests]
        with ThreadPoolExecutor(_REMOTE_THREADS) as pool:
            return list(pool.map(lambda request: self._page(*request), requests))

    def check(self) -> None:
        """Read every page.  Raises Corrupt at the first damaged page."""
        for place in self._layout.columns.values():
            for n in range(place.count):
                self._page(place, n)

    def _fall_back(self, error: Corrupt) -> Columns:
        with self._lock:
            if self._rebuilt is None:
                # raises Missing if the checkpoint was cleaned, which is not damage
                self._rebuilt = self._rebuild()
                self._damage = error
                self._damaged(error)
            return self._rebuilt

    def _page(self, place: Placed, n: int) -> pa.Table:
        number = place.first + n
        table: pa.Table | None = self._recent.get((place.name, n))
        if table is not None:
            self.hits += 1
            return table
        self.misses += 1
        path, offset, length, crc = self._layout.page(number)
        schema = schema_of(place.name)
        assert schema is not None, f"a column of this version, not {place.name}"
        added = HISTORY_ADDED if place.name == "history" else 0
        data = self._verified(number, path, offset, length, crc)
        table = codec.decode_ipc(data, schema, path=path, added=added)
        if (
            place.every
            and place.name != "row_groups"
            and len(table) != self._layout.page_rows(place, n, len(table))
        ):
            raise Corrupt(f"a page of {place.name} has {len(table)} rows", path=path, offset=offset)
        return self._recent.put((place.name, n), table, MAPPED_BYTES if self._is_mapped else length)

    def _verified(self, number: int, path: str, offset: int, length: int, crc: int) -> Buffer:
        """Return the bytes of a page after checking its CRC.  Raises Corrupt."""
        key = b"%s/%d/%d/%d/%d" % (self._layout.owner.encode(), self.seq, number, length, crc)
        if self.cache is not None:
            cached = self.cache.get(key)
            if cached is not None and len(cached) == length and zlib.crc32(cached) == crc:
                return cached
        data = self._read(path, offset, length)
        actual = zlib.crc32(data)
        if actual != crc:
            raise Corrupt(
                "a checkpoint page is damaged",
                path=path,
                offset=offset,
                expected=f"{crc:08x}",
                got=f"{actual:08x}",
            )
        if self.cache is not None:
            self.cache.put(key, data)
        return data

    def _read(self, path: str, offset: int, length: int) -> Buffer:
        if self._storage.is_remote:
            return self._read_of_chunk(path, offset, length)
        if not self._is_mapped:
            return self._storage.read(path, offset, length)
        with self._lock:
            file = self._files.get(path)
            if file is None:
                file = self._files[path] = self._mappings.open(path)
            if offset + length > file.size():
                raise Corrupt("a checkpoint object is too short", path=path, offset=file.size())
            file.seek(offset)
            return file.read_buffer(length)

    def _are_near(self, requests: Sequence[tuple[Placed, int]]) -> bool:
        """Return True if all pages are in the same chunk, which is read once."""
        where = {self._layout.page(place.first + n)[:2] for place, n in requests}
        return len({(path, offset // FAR_OBJECT_WHOLE_BYTES_MAX) for path, offset in where}) == 1

    def _read_of_chunk(self, path: str, offset: int, length: int) -> Buffer:
        """Return bytes of an object on remote storage, which is read in chunks.

        Most pages are small, and the next page to be read is usually nearby.
        """
        number = offset // FAR_OBJECT_WHOLE_BYTES_MAX
        start = number * FAR_OBJECT_WHOLE_BYTES_MAX
        if offset + length > start + FAR_OBJECT_WHOLE_BYTES_MAX:
            return self._storage.read(path, offset, length)
        chunk = self._chunks.get((path, number))
        if chunk is None:
            end = min(start + FAR_OBJECT_WHOLE_BYTES_MAX, self._layout.end(path))
            chunk = self._storage.read(path, start, end - start)
            self._chunks.put((path, number), chunk, len(chunk))
        return chunk[offset - start : offset - start + length]


@dataclass(frozen=True, slots=True)
class Layout:
    """The content of a manifest.

    ``owner`` is the table's id.  ``pages`` has the columns of PAGES as arrays.  ``vector_starts``
    has the offset of the first vector in each page of ``vector``.
    """

    owner: str
    seq: int
    rows: int
    groups: int
    shards: int
    objects: Sequence[str]
    columns: Mapping[str, Placed]
    pages: Mapping[str, Ints]
    vector_starts: Sequence[int]

    def page(self, number: int) -> tuple[str, int, int, int]:
        """Return path, offset, length and CRC-32 of a page."""
        at = [int(self.pages[name][number]) for name in PAGES.names]
        return self.objects[at[0]], at[1], at[2], at[3]

    def end(self, path: str) -> int:
        """Return the end of the last page in an object."""
        in_object = self.pages["object"] == self.objects.index(path)
        return int((self.pages["offset"] + self.pages["length"])[in_object].max())

    def vectors_of_page(self, place: Placed, n: int, lengths: Ints, crcs: Ints) -> Ints | None:
        """Return object, offset, length, crc and page bytes of each vector of page ``n`` ->
        int64[5, n].

        None if the vectors would not be within the page.
        """
        start, (path, offset, size, _) = self.vector_starts[n], self.page(place.first + n)
        if start < 0 or start + int(lengths.sum()) > size or bool((lengths < 0).any()):
            return None
        begin = offset + start + run_starts(lengths)
        same = np.ones(len(lengths), np.int64)
        return np.stack([same * self.objects.index(path), begin, lengths, crcs, same * size])

    def total(self, name: str) -> int:
        """Return the number of values of a column, which is the number of file groups, shards or
        files.
        """
        if name == "group_name":
            return self.groups
        return self.shards if name.startswith("summaries/") else self.rows

    def page_rows(self, place: Placed, n: int, default: int) -> int:
        """Return the required number of rows of page ``n`` of a column."""
        total = self.total(place.name)
        return min(place.every, total - n * place.every) if place.every else default


def parse_layout(header: Mapping[str, Any], pages: pa.Table, *, path: str) -> Layout:
    """Return the layout in the header and the page table of a manifest.

    Raises Corrupt if they are inconsistent.
    """
    if any(column.null_count for column in pages.columns):
        raise Corrupt("the page table of a checkpoint has nulls", path=path)
    places = {name: numbers(pages[name]) for name in PAGES.names}
    objects = [str(name) for name in header["objects"]]
    columns, first = {}, 0
    for name, every, count in header["columns"]:
        if min(every, count) < 0:
            raise Corrupt(f"column {name!r} of a checkpoint has an invalid size", path=path)
        if schema_of(name) is not None:
            columns[name] = Placed(name, every, first, count)
        first += count
    bad = (places["object"] < 0) | (places["object"] >= len(objects)) | (places["offset"] < 0)
    bad |= (places["length"] < 0) | (places["length"] > FRAME_BYTES_MAX)
    if first != len(pages) or bool(bad.any()):
        raise Corrupt(
            "the page table of a checkpoint is invalid",
            path=path,
            expected=f"{first} pages",
            got=str(len(pages)),
        )
    owner = str(header["definition"]["table_id"])
    if not columns.keys() >= ALWAYS:
        missing = ", ".join(sorted(ALWAYS - columns.keys()))
        raise Corrupt(f"a checkpoint lacks the columns {missing}", path=path)
    starts = header["vector_starts"]
    if len(starts) != columns["vector"].count or any(type(start) is not int for start in starts):
        raise Corrupt("a checkpoint has vector starts that do not match its pages", path=path)
    layout = Layout(
        owner,
        header["seq"],
        header["rows"],
        header["groups"],
        header["shards"],
        objects,
        columns,
        places,
        starts,
    )
    for place in columns.values():
        total = layout.total(place.name)
        if place.count != (-(-total // place.every) if place.every else 1):
            raise Corrupt(
                f"column {place.name!r} of a checkpoint has {place.count} pages", path=path
            )
    return layout


def write_pages(
    storage: Storage, columns: Mapping[str, Column], name_of: Callable[[int], str]
) -> tuple[list[str], list[tuple[str, int, int]], list[int], pa.Table]:
    """Write columns as pages into as few objects as their size allows.

    ``name_of`` returns the path of the n-th object.  Return the paths, the (name, files per page,
    pages) of each column, the offset of the first vector in each page of deletion vectors, and the
    page table (PAGES).
    """
    objects: list[str] = []
    parts: list[pa.Buffer] = []
    size = 0
    rows: list[tuple[int, int, int, int]] = []

    def flush() -> None:
        nonlocal parts, size
        if parts:
            objects.append(name_of(len(objects)))
            storage.create(objects[-1], parts)
            parts, size = [], 0

    entries, starts = [], []
    for name, column in columns.items():
        pages = column.pages()
        entries.append((name, column.every, len(pages)))
        for page in pages:
            data = codec.encode_ipc(page)
            if name == "vector":
                starts.append(first_vector(data))
            if size + data.size > BASE_OBJECT_BYTES:
                flush()
            rows.append((len(objects), size, data.size, zlib.crc32(data)))
            parts.append(data)
            size += data.size
    flush()
    table = pa.table(
        [pa.array(list(c), t) for c, t in zip(zip(*rows, strict=True), PAGES.types, strict=True)],
        schema=PAGES,
    )
    return objects, entries, starts, table
