"""The objects of an Iceberg table: versions, what they name, and the pointer to the newest version.

They have the layout of Iceberg's Hadoop tables. Version n is commit n, and its readers begin with
the version in ``version-hint.text``. Some go on to later versions.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyroaring import BitMap

from mdt.errors import Corrupt, Missing
from mdt.formats.data_files import DataFile
from mdt.formats.derivation import Derivation
from mdt.formats.earlier import Earlier
from mdt.formats.format import FilesOf, Format, Objects, Strays
from mdt.formats.iceberg import metadata as versions
from mdt.formats.iceberg import tree
from mdt.formats.iceberg.columns import name_mapping
from mdt.formats.iceberg.manifests import (
    DATA,
    DELETES,
    FOLDER,
    Entry,
    Leaf,
    Table,
    damaged,
    decode_list,
    decode_manifest,
    encode_list,
    files_in,
    key_of,
    reading,
)
from mdt.formats.iceberg.vectors import puffin
from mdt.formats.positions import framed, position_bytes
from mdt.formats.types import Refusal, type_refusals
from mdt.limits import (
    DERIVED_CACHE_BYTES_MAX,
    FAR_RANGE_BYTES,
    FRAME_BYTES_MAX,
    HINT_BYTES_MAX,
    ICEBERG_MANIFEST_BYTES_MAX,
    ICEBERG_METADATA_BYTES_MAX,
)
from mdt.metadata.log.trusted_names import IMPORT
from mdt.schema.definition import TableDefinition
from mdt.session import Recent
from mdt.stores.storage import Storage

HINT = f"{FOLDER}/version-hint.text"

_VERSION = re.compile(r"v([0-9]{1,18})\.metadata\.json")
_NUMBER = re.compile(rb"[0-9]{1,18}")
_OBJECT = re.compile(r"(?:snap-)?([0-9]{1,18})-[a-z0-9-]+\.(?:avro|puffin)")
_MANIFESTS_PER_COMMIT = 8
"""Manifests that cleanings read for each expired commit, to find unused deletion vectors."""
_NAME_MAPPING = "schema.name-mapping.default"
_ENGINE = re.compile(rb'"engine-name"\s*:\s*"([^"]{1,80})"')


class IcebergMetadata(Format):
    """The format Iceberg."""

    name = "iceberg"
    title = "Iceberg"
    folder = FOLDER
    stays_at_start = True

    def refusals(self, definition: TableDefinition) -> Iterator[Refusal]:
        """Yield the columns whose type Iceberg does not have, or not in Parquet."""
        yield from type_refusals(definition.declared)
        for path, column in definition.version.all_paths():
            if pa.types.is_timestamp(column.type) and column.type.unit != "us":
                yield path, "has milliseconds, which its readers take for microseconds in filters"

    def path(self, seq: int) -> str:
        """Return the path of a version.

        >>> IcebergMetadata().path(7)
        'metadata/v7.metadata.json'
        """
        return versions.version_path(seq)

    def objects(self, derivation: Derivation, earlier: Earlier) -> Objects:
        """Return the manifests, deletion vectors, manifest list and metadata file of a commit."""
        seq = derivation.record.seq
        if not derivation.is_first:
            return _following(_read(seq - 1, earlier), derivation, earlier)
        location = derivation.record.header.get("location")
        if earlier.mends or not isinstance(location, str):
            location = _location_now(seq, earlier)
        before = _without_files(derivation, location)
        if not seq:
            return [(self.path(seq), versions.encode(before.metadata))]
        return _following(before, derivation, earlier)

    def foreign_writer(self, content: bytes) -> str:
        """Return the name of the engine of the last snapshot in a version, or ""."""
        names: list[bytes] = _ENGINE.findall(content)
        return names[-1].decode(errors="replace") if names else ""

    def is_same(self, path: str, stored: bytes | None, expected: bytes) -> bool:
        """Return True if a stored object has the expected bytes."""
        return stored == expected

    def is_start(self, seq: int) -> bool:
        """Return True: readers can begin with each version."""
        return True

    def put_start(self, storage: Storage, seq: int, definition: TableDefinition) -> None:
        """Point to a version, unless readers begin with a later one.

        A slow publisher would point to an old version, so later ones are looked for.
        """
        pointed = self.newest_start(storage)
        if pointed >= seq and storage.size(self.path(pointed)) is not None:
            return
        storage.replace(HINT, str(seq).encode())
        newest = _newest(storage, seq)
        if newest > seq:
            storage.replace(HINT, str(newest).encode())

    def newest_start(self, storage: Storage) -> int:
        """Return the version in the hint, or -1."""
        try:
            stored = storage.read_if_exists(HINT, HINT_BYTES_MAX) or b""
        except Corrupt:  # it is too large
            return -1
        return int(stored) if _NUMBER.fullmatch(stored) else -1

    def starts(self, storage: Storage, horizon: int) -> Sequence[int]:
        """Return the oldest version that readers may need, from which the others are derived."""
        return [horizon] if horizon else []

    def start_objects(self, derivation: Derivation, files: FilesOf, earlier: Earlier) -> Objects:
        """Return the metadata file of a version if it leads to all of its files. Otherwise return
        all objects of the version with new manifests.
        """
        seq = derivation.record.seq
        state = list(files())
        try:
            stored = earlier.read(self.path(seq), ICEBERG_METADATA_BYTES_MAX)
            if stored is not None and _has_files(_read(seq, earlier), state, earlier):
                return [(self.path(seq), stored)]
        except (Corrupt, Missing, ValueError):
            pass  # it is made again
        change = replace(derivation.change, added=state)
        before = _without_files(derivation, _location_now(seq, earlier))
        return _following(before, replace(derivation, change=change), earlier)

    def strays(self, storage: Storage, newest: Callable[[], int]) -> Strays:
        """Return the versions after the newest commit, which are to be deleted, and the hint with
        the newest version if the stored one leads nowhere.
        """
        hint, listed, last = self.newest_start(storage), _versions(storage), newest()
        strays = list[tuple[str, bytes | None]]((path, None) for n, path in listed if n > last)
        if not 0 <= hint <= last or storage.size(self.path(hint)) is None:
            known = (number for number, _ in listed if number <= last)
            strays.append((HINT, str(max(known, default=last)).encode()))
        return strays

    def remove(self, storage: Storage, end: int) -> None:
        """Delete all versions before ``end``, the newest first, and then what they name. Versions
        of a later begin stay.
        """
        if self.newest_start(storage) < end:
            storage.delete(HINT)
        ended = [(number, path) for number, path in _versions(storage) if number < end]
        storage.delete_many([path for _, path in sorted(ended, reverse=True)])
        storage.delete_many([path for number, path in _objects(storage) if number < end])

    def expire(self, storage: Storage, oldest: int, table_id: str) -> None:
        """Delete the versions before ``oldest``, and then what neither it nor a later one names.

        All delete manifests are read to find unused vectors, so large tables keep these for some
        commits.
        """
        ended = sorted((n, path) for n, path in _versions(storage) if n < oldest)
        old_objects = [path for number, path in _objects(storage) if number <= oldest]
        earlier = Earlier(storage, Recent(DERIVED_CACHE_BYTES_MAX))
        try:
            state = _read(oldest, earlier)
            needed = _manifests(state)
            leaves = [leaf for leaf in state.leaves if leaf.content == DELETES and leaf.live]
            period = len(leaves) // _MANIFESTS_PER_COMMIT
            if period <= 1 or any(number % period == 0 for number, _ in ended):
                needed |= _puffins(state, earlier)
            else:
                old_objects = [path for path in old_objects if not path.endswith(".puffin")]
        except (Corrupt, Missing, ValueError):
            return  # a repair makes the version again
        storage.delete_many([path for _, path in ended])
        storage.delete_many([path for path in old_objects if path not in needed])

    def delete_unused(self, storage: Storage, end: int, table_id: str) -> None:
        """Delete nothing: all objects are in its directory."""


@dataclass(frozen=True, slots=True)
class _State:
    """A version of an Iceberg table.

    Attributes:
        metadata: Its metadata file.
        leaves: Its manifests, ordered by content and lowest key.
        decoded: Key of the metadata file among the decoded objects, and path of the manifest list,
            if there is one.
    """

    metadata: versions.Json
    leaves: Sequence[Leaf]
    decoded: Sequence[str] = ()


def _without_files(derivation: Derivation, location: str) -> _State:
    """Return the state of a table without files, with which the format begins."""
    definition = derivation.definition
    metadata = versions.empty(definition.table_id, location, derivation.at_ms, definition)
    if definition.begin_of_format(IcebergMetadata.name):  # older files have no field ids
        metadata = _with_names(metadata, definition)
    return _State(metadata, ())


def _with_names(metadata: versions.Json, definition: TableDefinition) -> versions.Json:
    """Return metadata for files without field ids, whose columns are known by their names."""
    mapping = json.dumps(name_mapping(definition), separators=(",", ":"))
    properties = {**metadata["properties"], _NAME_MAPPING: mapping}
    return {**metadata, "properties": properties}


def _location_now(seq: int, earlier: Earlier) -> str:
    """Return the location in a version, or that of the storage if the table has moved."""
    try:
        stored = earlier.read(versions.version_path(seq), ICEBERG_METADATA_BYTES_MAX)
    except Corrupt:  # it is too large
        stored = None
    metadata = versions.decode(stored or b"")
    if metadata is not None and earlier.storage.is_at(metadata["location"]):
        return str(metadata["location"])
    return earlier.storage.location


def _read(seq: int, earlier: Earlier) -> _State:
    """Return a version with its manifest list. Raises Corrupt or Missing."""
    path = versions.version_path(seq)
    data = earlier.read(path, ICEBERG_METADATA_BYTES_MAX)
    if data is None:
        raise Missing("a version of Iceberg is missing", path=path, hint="t.repair() makes it")
    key = f"{path}#{zlib.crc32(data):08x}"
    metadata: versions.Json | None = earlier.decoded.get(key)
    if metadata is None:
        metadata = versions.decode(data)
        if metadata is None:
            raise damaged(path)
        earlier.decoded.put(key, metadata, len(data))
    if earlier.mends and not earlier.storage.is_at(metadata["location"]):
        raise damaged(path)
    snapshot = versions.current(metadata)
    if snapshot is None:
        return _State(metadata, (), [key])
    with reading(path):
        table = Table.from_metadata(metadata)
        listed = table.relative(snapshot["manifest-list"])
    decode = partial(decode_list, table=table)
    leaves = earlier.decode(listed, decode, ICEBERG_MANIFEST_BYTES_MAX)
    return _State(metadata, leaves, [key, listed])


def _following(before: _State, derivation: Derivation, earlier: Earlier) -> Objects:
    """Return the objects of the version that a commit makes after the version ``before``."""
    seq, definition = derivation.record.seq, derivation.definition
    table = Table.at(before.metadata["location"], definition)
    files = _FileChanges.from_derivation(derivation)
    next_row_id = before.metadata["next-row-id"]
    data, row_id = list[Entry](), next_row_id
    for file in files.new:
        data.append(table.data_entry(file, seq, row_id, definition))
        row_id += file.rows
    vectors, objects = list[Entry](), list[tuple[str, bytes]]()
    if files.vectors:
        content, blobs = puffin(files.vectors, table.location)
        path = f"{FOLDER}/{seq}-vectors-{zlib.crc32(content):08x}.puffin"
        objects.append((path, content))
        vectors = [
            table.vector_entry(blob, (path, len(content)), seq, definition) for blob in blobs
        ]
    leaves, ended = list[Leaf](), set(before.decoded)
    for kind, removed, added in (
        (DATA, files.removed.keys(), data),
        (DELETES, files.old_vectors.keys(), vectors),
    ):
        old_leaves = [leaf for leaf in before.leaves if leaf.content == kind]
        read = partial(_entries, table=table, earlier=earlier)
        changed = tree.changed(old_leaves, removed, added, read, kind)
        new = list(changed.unchanged)
        ended |= {leaf.path for leaf in old_leaves} - {leaf.path for leaf in new}
        for manifest in changed.manifests:
            leaf, content = manifest.encode(table, kind, seq, next_row_id)
            earlier.decoded.put(leaf.path, manifest.live, len(content))
            objects.append((leaf.path, content))
            new.append(leaf)
        leaves += sorted(new, key=lambda leaf: leaf.low)
    path, content = encode_list(leaves, seq)
    earlier.decoded.put(path, leaves, len(content))
    objects.append((path, content))
    summary = files.summary(before.metadata, derivation)
    rows = next_row_id, row_id - next_row_id
    snapshot = versions.snapshot_json(before.metadata, derivation, table.uri(path), summary, rows)
    after = versions.followed(before.metadata, derivation, snapshot, row_id)
    # Our files have field ids, and a name may mean another column in the files of older snapshots.
    if derivation.record.action == IMPORT:
        after = _with_names(after, definition)
    content, path = versions.encode(after), versions.version_path(seq)
    earlier.decoded.put(f"{path}#{zlib.crc32(content):08x}", after, len(content))
    for key in ended:  # no later version is derived from it
        earlier.decoded.drop(key)
    return [*objects, (path, content)]


def _entries(leaf: Leaf, table: Table, earlier: Earlier) -> Sequence[Entry]:
    decode = partial(decode_manifest, table=table)
    return earlier.decode(leaf.path, decode, ICEBERG_MANIFEST_BYTES_MAX)


@dataclass(frozen=True, slots=True)
class _FileChanges:
    """What a commit changes for Iceberg, where a deletion vector is not a part of its data file.

    Attributes:
        removed: Path -> data file that it removes.
        new: Data files that it adds.
        old_vectors: Path of the data file -> deletion vector that it removes or replaces.
        vectors: Data files with new deletion vectors.
    """

    removed: Mapping[str, DataFile]
    new: Sequence[DataFile]
    old_vectors: Mapping[str, BitMap]
    vectors: Sequence[DataFile]

    @classmethod
    def from_derivation(cls, derivation: Derivation) -> _FileChanges:
        """Return the changes of a commit.

        If deleted rows become live again, all vectors are written anew, because pyiceberg 0.12
        applies all vectors in a Puffin file, also those that a later version has replaced. Vectors
        are in the order of manifests, because DuckDB 1.5 takes some for others otherwise.
        """
        change = derivation.change
        removed = {file.path: file for file in (*change.removed, *change.still_dead)}
        added = {file.path: file for file in (*change.added, *change.still_dead)}
        return cls(
            {path: file for path, file in removed.items() if path not in added},
            [file for path, file in added.items() if path not in removed],
            {path: file.dead for path, file in removed.items() if file.dead},
            [added[path] for path in sorted(sorted(added), key=key_of) if added[path].dead],
        )

    def summary(self, before: versions.Json, derivation: Derivation) -> dict[str, str]:
        """Return the summary of the snapshot."""
        changes = (
            len(self.new) - len(self.removed),
            len(self.vectors) - len(self.old_vectors),
            sum(file.rows for file in self.new) - sum(file.rows for file in self.removed.values()),
            sum(len(file.dead) for file in self.vectors) - sum(map(len, self.old_vectors.values())),
        )
        totals = versions.totals(before).items()
        after = {name: str(n + change) for (name, n), change in zip(totals, changes, strict=True)}
        return {"operation": self._operation(derivation), **after}

    def _operation(self, derivation: Derivation) -> str:
        is_less = bool(self.removed or self.vectors)
        if not derivation.changes_rows or not (is_less or self.new):
            return "replace"
        if not is_less:
            return "append"
        return "overwrite" if self.new else "delete"


def _has_files(state: _State, expected: Sequence[DataFile], earlier: Earlier) -> bool:
    """Return True if a version has exactly these files with their deleted rows. O(files)."""
    location = str(state.metadata["location"])
    data, vectors = dict[str, Any](), dict[str, Any]()
    for content, found in ((DATA, data), (DELETES, vectors)):
        for fields in _files(state, content, earlier):
            path = fields["referenced_data_file"] or fields["file_path"]
            found[path.removeprefix(f"{location}/")] = fields
    with_dead = [file for file in expected if file.dead]
    if data.keys() != {file.path for file in expected}:
        return False
    if vectors.keys() != {file.path for file in with_dead}:
        return False
    sizes = ((data[file.path], file) for file in expected)
    if any((f["record_count"], f["file_size_in_bytes"]) != (d.rows, d.size) for f, d in sizes):
        return False
    puffins = {fields["file_path"].removeprefix(f"{location}/") for fields in vectors.values()}
    if not all(_is_intact(path, earlier) for path in puffins):
        return False
    return all(_has_vector(vectors[file.path], file, location, earlier) for file in with_dead)


def _is_intact(path: str, earlier: Earlier) -> bool:
    """Return True if a Puffin file matches its checksum. It may have the vectors of many files, so
    it is read in parts.
    """
    content = earlier.derived.get(path)
    size = earlier.storage.size(path) if content is None else len(content)
    if size is None or size > FRAME_BYTES_MAX:
        return False
    crc = 0
    for start in range(0, size, FAR_RANGE_BYTES):
        part = earlier.read_range(path, start, min(FAR_RANGE_BYTES, size - start))
        crc = zlib.crc32(part, crc)
    return path.endswith(f"-{crc:08x}.puffin")


def _has_vector(fields: Mapping[str, Any], file: DataFile, location: str, earlier: Earlier) -> bool:
    path = fields["file_path"].removeprefix(f"{location}/")
    expected, start = framed(position_bytes(file.dead)), fields["content_offset"]
    if fields["content_size_in_bytes"] != len(expected) or start is None or start < 0:
        return False
    return earlier.read_range(path, start, len(expected)) == expected


def _files(state: _State, content: int, earlier: Earlier) -> Iterator[Mapping[str, Any]]:
    """Yield the fields of the data files or deletion vectors of a version."""
    table = Table.from_metadata(state.metadata)
    for leaf in state.leaves:
        if leaf.content == content:
            yield from files_in(_entries(leaf, table, earlier), table)


def _manifests(state: _State) -> set[str]:
    """Return the manifests of a version, and its manifest list."""
    _, *listed = state.decoded
    return {*listed, *(leaf.path for leaf in state.leaves)}


def _puffins(state: _State, earlier: Earlier) -> set[str]:
    """Return the files with the deletion vectors of a version. Raises Corrupt or Missing."""
    table = Table.from_metadata(state.metadata)
    return {table.relative(fields["file_path"]) for fields in _files(state, DELETES, earlier)}


def _versions(storage: Storage) -> list[tuple[int, str]]:
    """Return (seq, path) of the versions."""
    return _matching(storage, _VERSION)


def _objects(storage: Storage) -> list[tuple[int, str]]:
    """Return (seq, path) of the objects that versions name."""
    return _matching(storage, _OBJECT)


def _matching(storage: Storage, pattern: re.Pattern[str]) -> list[tuple[int, str]]:
    matches = ((pattern.fullmatch(i.path.rpartition("/")[2]), i) for i in storage.list_dir(FOLDER))
    return [(int(match[1]), info.path) for match, info in matches if match is not None]


def _newest(storage: Storage, seq: int) -> int:
    """Return the newest version, which is mostly ``seq``. Older versions are deleted first, so
    ``seq`` is not the newest if it is missing after the next one was.
    """
    last = seq
    while storage.size(versions.version_path(last + 1)) is not None:
        last += 1
    if last > seq or storage.size(versions.version_path(seq)) is not None:
        return last
    return max((number for number, _ in _versions(storage)), default=seq)
