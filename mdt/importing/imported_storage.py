"""A storage that shows a table of other Hudi writers as one of ours, without writing to it.

The objects below ``.hoodie/.mdt/`` are in memory, and merged base files in a temporary directory.
Those of a large table are in a folder of the user's cache directory. The log has records of the
states that were read: looking for the next record reads what other writers have done since.
"""

from __future__ import annotations

import hashlib
import platform
import threading
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa

from indexes.predicate import Predicate
from mdt import logs
from mdt.config import Options
from mdt.errors import Corrupt, MdtError, Missing, Unavailable, Unsupported
from mdt.hudi import properties
from mdt.hudi.read.file_slices import Files
from mdt.hudi.read.instants import Timeline
from mdt.hudi.read.key_indexes import KeyIndexes, load_key_indexes
from mdt.hudi.read.loading import (
    TableState,
    load_files,
    load_properties,
    load_timeline,
    state_of,
)
from mdt.hudi.read.schema_history import are_same
from mdt.hudi.read.table_properties import COMPUTED_KEYS, TableProperties, refuse
from mdt.hudi.read.table_schema import TableSchema, load_schema
from mdt.hudi.read.table_state import load_names, load_state
from mdt.importing.imported_log import import_records
from mdt.importing.imported_slices import MergedFiles
from mdt.importing.known_timeline import KnownTimeline, load_known, put_known
from mdt.importing.past_states import require_state
from mdt.importing.unread_files import UnreadFiles, has_groups, load_unread, log_bytes
from mdt.limits import IMPORT_FOLDER_RECORDS_MAX, IMPORT_FOLDER_SLICES_MIN
from mdt.metadata.files import paths
from mdt.metadata.history.tolerate_missing import retry_missing
from mdt.metadata.log import commit_log
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.stores.contract import Answers, Data, Listing, Names
from mdt.stores.own_directory import NotOurs
from mdt.stores.scratch import temporary_folder
from mdt.stores.storage import MemoryStorage, Storage
from mdt.stores.table_folder import TableFolder, open_folder

T = TypeVar("T")

_WRITABLE = (f"{paths.PRIVATE}/usage/", f"{paths.PRIVATE}/checkpoints/", paths.HINT)
"""Derived objects."""
_FOLDER_VERSION = "2"
"""Is raised when tables are imported differently."""
_OF_SERVICES = (
    properties.CHECKSUM,
    properties.METADATA_PARTITIONS,
    properties.PENDING_METADATA_PARTITIONS,
)
"""Properties that services of Hudi change, and on which no row depends."""
_WAIT_SECONDS = 0.1


class ImportedStorage(Storage):
    """The storage of a table of other writers. Thread-safe.

    It can be read like any table's. Writes raise Unsupported.

    Attributes:
        source: The storage itself.
        instants: Instants of the states, empty to follow the table.
        seq: Number of the newest record, -1 at first.
        first_seq: Number of the last record of the first of several states.
    """

    is_imported = True

    def __init__(
        self,
        source: Storage,
        instants: Sequence[str] = (),
        *,
        base_only: bool = False,
        has_log: bool = False,
        options: Options | None = None,
    ) -> None:
        """Read the table in ``source``.

        Args:
            instants: Instants of the states to show, ascending. Empty to follow the table.
            base_only: Leave log files out, as in Hudi's read-optimized queries.
            has_log: Begin with the table's own log. The records in memory follow it.
            options: Options of this machine for the folder of a large table. Its files may then be
                left unread (:attr:`is_unread`), and :meth:`follow` is called at the end of its
                opening. None for memory and a temporary directory.

        Raises Missing if there is no table, Corrupt, and Unsupported if it cannot be read.
        """
        table = load_properties(source)
        refuse(table)
        self._show(source, has_log=has_log)
        self.instants = tuple(instants)
        self.computes_keys = _computes_keys(table)
        self._has_key_indexes = not (instants or base_only)
        self._base_only = base_only
        self._options = options
        self._identity = _identity(table)
        self._name = _folder_name(source, table)
        self._merged = MergedFiles(temporary_folder(self))
        self._use_folder(create=False)
        self._follows = options is None
        try:
            self._read_log()
        except MdtError as error:
            if not self.leave_folder(is_damaged=isinstance(error, (Corrupt, Unsupported))):
                raise

    def _show(self, source: Storage, *, has_log: bool) -> None:
        """Show the objects of ``source``, with those of its own metadata if it ``has_log``."""
        self.url = source.url
        self.public_options = source.public_options
        self.is_remote = source.is_remote
        self.is_durable = source.is_durable
        self.source = source
        self.seq, self.first_seq = -1, 0
        self.computes_keys = self._base_only = False
        self.instants = ()
        self._has_log = has_log
        self._follows = False
        self._private: Storage = MemoryStorage()
        self._folder: TableFolder | None = None
        self._metadata: Metadata | None = None
        self._lock = threading.Lock()
        self._timeline = ""
        self._numbers: Mapping[str, int] = {}
        self._unread: UnreadFiles | None = None
        self._has_key_indexes = False
        self._key_indexes: tuple[int, KeyIndexes | None] = -1, None

    def _copy(self) -> ImportedStorage:
        """Return a storage with the same objects that does not follow the table."""
        copy = object.__new__(ImportedStorage)
        copy._show(self.source, has_log=self._has_log)
        copy.instants = self.instants
        copy._private, copy._merged, copy._folder = self._private, self._merged, self._folder
        copy._base_only = self._base_only
        return copy

    def _use_folder(self, *, create: bool) -> None:
        """Use the folder that stays, if there is one or if it can be created."""
        folder = None
        if self._options is not None and self._name:
            directory, bytes_max = self._options.cache_dir, self._options.cache_bytes_max
            try:
                folder = open_folder(directory, bytes_max, self._name, create=create)
            except NotOurs as error:
                text = "%s is imported each time that it is opened: %s"
                logs.METADATA.warning(text, self.url, error)
        if folder is not None:
            self._folder, self._private = folder, folder.storage
            self._merged = MergedFiles(folder.path, durable=True)

    def leave_folder(self, *, is_damaged: bool = True) -> bool:
        """Import the table into memory instead of its folder. Return False if there is no folder.

        Args:
            is_damaged: Remove the folder, unless others use it.
        """
        folder = self._folder
        if folder is None:
            return False
        if is_damaged:
            folder.remove()
        self._options = None
        self._use_memory()
        self._read_log()
        return True

    def _use_memory(self) -> None:
        self._folder, self._private, self._metadata = None, MemoryStorage(), None
        self._merged = MergedFiles(temporary_folder(self))
        self.seq, self._timeline, self._numbers = -1, "", {}

    def _read_log(self) -> None:
        """Put the records of what other writers have done into the log."""
        act = self._import_states if self.instants else self._import_newest
        with self._lock:
            try:
                act()
            except Missing:  # a writer cleans files
                self.source.sleep(_WAIT_SECONDS)
                retry_missing(act)

    def _import_newest(self) -> None:
        table, active = self._look()
        digest = _digest(active)
        if digest != self._timeline:
            files = self._known_files(table, active, digest)
            if files is not None and self._leave_unread(table, active, files, digest):
                return
            with self._locked():
                if self._folder is not None:  # others may have imported later commits meanwhile
                    listed = active
                    table, active = self._look()
                    files = files if active.files == listed.files else None
                digest = _digest(active)
                if not self._has_imported(digest):
                    state = load_state(self.source, table, timeline=active, files=files)
                    self._put_state(state)
                    put_known(self._private, KnownTimeline(digest, self.seq, self._numbers))
            self._timeline, self._unread = digest, None
        while self._folder is not None and self._private.size(paths.commit(self.seq + 1)):
            self.seq += 1  # another process has imported it

    def _known_files(self, table: TableProperties, active: Timeline, digest: str) -> Files | None:
        """Return the names of all files if they were loaded."""
        if self._unread is not None:
            return self._unread.files if self._unread.digest == digest else None
        return self._choose_folder(table, active) if self.seq < 0 else None

    def _choose_folder(self, table: TableProperties, active: Timeline) -> Files | None:
        """Begin a folder for a large table that has none, or whose log is too long. Return the
        names of its files if they were loaded.
        """
        if self._options is None:
            return None
        if self._folder is not None:
            known = load_known(self._private)
            if known.digest:
                if known.seq <= IMPORT_FOLDER_RECORDS_MAX or not self._folder.remove():
                    return None
                self._use_memory()
        files = load_names(self.source, table, active)
        if self._folder is None and has_groups(files, IMPORT_FOLDER_SLICES_MIN):
            size = log_bytes(self.source, table, active, files)
            if size <= self._options.cache_bytes_max:
                self._use_folder(create=True)
        return files

    def _leave_unread(
        self, table: TableProperties, active: Timeline, files: Files, digest: str
    ) -> bool:
        """Put only the definition of a large table into the log, if filters can do without its
        other files. Return True in that case.
        """
        if self._follows or not has_groups(files, IMPORT_FOLDER_SLICES_MIN):
            return False
        unread = load_unread(self.source, table, active, files, digest)
        if unread is None:
            return False
        state = TableState(table, active, [])
        records = import_records(self.source, self._merged, state, None, schema=unread.schema)
        first = next(records)
        if not self._private.put_if_absent(paths.commit(0), commit_log.encode(first)):
            stored = commit_log.read(self._private, 0)
            if stored is None or _columns(stored) != _columns(first):
                return False  # of a process that opened the table before its columns changed
        self.seq, self._unread = 0, unread
        return True

    @property
    def is_unread(self) -> bool:  # type: ignore[override]
        """True if the log has only the definition of the table."""
        return self._unread is not None

    def is_as_opened(self) -> bool:
        """Return True if the files were not opened, and no other writer has committed since."""
        unread = self._unread
        return unread is not None and _digest(self._look()[1]) == unread.digest

    def follow(self) -> None:
        """End the opening of the table. Readers of the log then see all commits."""
        self._follows = True

    def part(self, predicate: Predicate, schema: pa.Schema) -> ImportedStorage | None:
        """Return a storage with the file groups that may have rows of a filter.

        None if the whole table should be read, or if it has changed since it was opened.

        Args:
            schema: The table's columns, with Hudi's meta columns.
        """
        with self._lock:
            unread = self._unread
            if unread is None or not self.is_as_opened():
                return None
            matching = unread.matching(self.source, predicate, schema)
            if matching is None:
                return None
            try:
                return self._with(*matching, unread.schema)
            except Missing:  # a writer cleans files
                return None

    def _with(self, state: TableState, left_out: int, schema: TableSchema) -> ImportedStorage:
        """Return a storage with a part of a state, in memory."""
        part = object.__new__(ImportedStorage)
        part._show(self.source, has_log=False)
        part._merged = MergedFiles(temporary_folder(part))
        part.computes_keys = self.computes_keys
        part.left_out = left_out
        part._put_state(state, schema)
        return part

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Context in which no other process changes the folder."""
        if self._folder is None:
            yield
            return
        try:
            with self._folder.locked():
                yield
        except OSError as error:
            raise Unavailable(
                f"the folder {self._folder.path} cannot be used: {error}",
                hint="mdt.cache.bytes.max=0 reads tables of other writers without such folders",
            ) from error

    def _has_imported(self, digest: str) -> bool:
        """Return True if the log contains the timeline with this digest."""
        known = load_known(self._private)
        self._numbers = known.numbers
        if known.digest == digest:
            self.seq = known.seq
        return known.digest == digest

    def _import_states(self) -> None:
        """Import the states at the given instants. All come from a single listing."""
        if self.seq >= 0:
            return
        table, active = self._look()
        files = load_files(self.source)
        for at in self.instants:
            state = state_of(self.source, table, active, files, at)
            require_state(self.source, state, files)
            self._put_state(state)
            self.first_seq = self.first_seq or self.seq

    def _look(self) -> tuple[TableProperties, Timeline]:
        table = load_properties(self.source)
        refuse(table)
        if _identity(table) != self._identity:
            raise Unsupported(
                "another writer has changed the table's properties", hint="open the table again"
            )
        return table, load_timeline(self.source, table)

    def _put_state(self, state: TableState, schema: TableSchema | None = None) -> None:
        """Put the records of a state into the log. No reader sees only some of them.

        Args:
            schema: Its columns, if they were loaded.
        """
        if self._base_only:
            slices = [
                replace(file_slice, logs=())
                for file_slice in state.slices
                if file_slice.base is not None
            ]
            state = replace(state, slices=slices)
        if self._metadata is None:
            self._metadata = Metadata(self._copy())
        snapshot = None
        if self._has_log or self._private.size(paths.commit(0)) is not None:
            snapshot = self._metadata.newest(watched=False)
            if self.seq < 0:
                self._remove_unused(snapshot)
            self.seq = snapshot.seq
        is_past = bool(self.instants)
        if schema is None:
            schema = load_schema(self.source, state)
        numbers = schema.history.numbers if schema.history is not None else {}
        if snapshot is not None and not are_same(self._numbers, numbers):
            hint = "mdt.open(path) reads the table anew"
            if is_past:
                hint = "compare two scans: t.scan(as_of=...)"
            raise Unsupported(
                "another writer has renamed columns, or added a dropped name again", hint=hint
            )
        records = import_records(
            self.source, self._merged, state, snapshot, schema=schema, is_past=is_past
        )
        encoded = [(record.seq, commit_log.encode(record)) for record in records]
        for info in self._private.list_dir(paths.LOG_DIR):
            if (paths.seq_of(info.path) or 0) > self.seq:
                self._private.delete(info.path)  # of a process that was killed
        for seq, data in reversed(encoded):
            if not self._private.put_if_absent(paths.commit(seq), data):
                raise Corrupt("another process has written this record", path=paths.commit(seq))
            self.seq = max(self.seq, seq)
        self._numbers = numbers
        if self._folder is not None and encoded:
            newest = self._metadata.newest(watched=False)
            is_first = snapshot is None or not snapshot.seq
            if is_first or self._metadata.compaction_is_due(newest):
                self._metadata.compact()

    def _remove_unused(self, snapshot: Snapshot) -> None:
        """Remove merged files in the folder that ``snapshot`` does not have, if nobody else uses
        the folder.
        """
        if self._folder is None or not self._merged.count():
            return
        if self._folder.is_alone():
            live = snapshot.files.take(("name",), snapshot.live_numbers)
            self._merged.remove_others(set(live["name"].to_pylist()))

    def _of(self, path: str) -> Storage:
        """Return the storage of an object."""
        if not _is_private(path):
            return self.source
        is_merged = path.startswith(f"{paths.MERGED_DIR}/")
        storage = self._merged.storage if is_merged else self._private
        if self._has_log and storage.size(path) is None:
            return self.source
        return storage

    def _prepare(self, path: str) -> Storage:
        """Return the storage of an object that is read. A new record is made first."""
        if self._follows and path == paths.commit(self.seq + 1):
            self._read_log()
        return self._of(path)

    def _writable(self, path: str) -> Storage:
        if not path.startswith(_WRITABLE):
            raise read_only(self.url)
        return self._private

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """See :class:`Storage`."""
        return self._prepare(path).read(path, offset, length)

    def read_whole(self, path: str, bytes_max: int) -> bytes:
        """See :class:`Storage`."""
        return self._prepare(path).read_whole(path, bytes_max)

    def open(self, path: str) -> Any:
        """See :class:`Storage`."""
        return self._of(path).open(path)

    def size(self, path: str) -> int | None:
        """See :class:`Storage`."""
        return self._of(path).size(path)

    def list(self, prefix: str) -> Listing:
        """See :class:`Storage`. Merged files are not listed."""
        return self._with_private(prefix, lambda storage: storage.list(prefix))

    def list_dir(
        self, prefix: str, *, after: str = "", before: str = "", skip: Container[str] = frozenset()
    ) -> Listing:
        """See :class:`Storage`. Merged files are not listed."""
        return self._with_private(
            prefix,
            lambda storage: storage.list_dir(prefix, after=after, before=before, skip=skip),
        )

    def _with_private(self, prefix: str, listing: Callable[[Storage], Listing]) -> Listing:
        """Return a listing of the objects in memory, of the table, or of both."""
        if not _is_private(prefix):
            return listing(self.source)
        if not self._has_log:
            return listing(self._private)
        infos = {info.path: info for info in (*listing(self.source), *listing(self._private))}
        return [infos[path] for path in sorted(infos)]

    def children(self, prefix: str) -> Names:
        """See :class:`Storage`."""
        return self._of(prefix).children(prefix)

    def stamp(self, path: str) -> Hashable | None:
        """See :class:`Storage`."""
        return self._of(path).stamp(path)

    def create(self, path: str, data: Data) -> None:
        """See :class:`Storage`. Raises Unsupported for an object of the table."""
        self._writable(path).create(path, data)

    def put_if_absent(self, path: str, data: Data) -> bool:
        """See :class:`Storage`. Raises Unsupported for an object of the table."""
        return self._writable(path).put_if_absent(path, data)

    def replace(self, path: str, data: Data) -> None:
        """See :class:`Storage`. Raises Unsupported for an object of the table."""
        self._writable(path).replace(path, data)

    def delete(self, path: str) -> None:
        """See :class:`Storage`. Raises Unsupported for an object of the table."""
        self._writable(path).delete(path)

    def begin(self, act: Callable[[], T]) -> Callable[[], T]:
        """See :class:`Storage`."""
        return self.source.begin(act)

    def together(self, *acts: Callable[[], Any]) -> Answers:
        """See :class:`Storage`."""
        return self.source.together(*acts)

    def each(self, acts: Iterable[Callable[[], T]]) -> Iterator[T]:
        """See :class:`Storage`."""
        return self.source.each(acts)

    def uri(self, path: str) -> str:
        """See :class:`Storage`."""
        return self._of(path).uri(path)

    def local_path(self, path: str) -> str | None:
        """See :class:`Storage`."""
        return self._of(path).local_path(path)

    @property
    def knows_changes(self) -> bool:  # type: ignore[override]
        """True for given states, whose records contain the rows that changed."""
        return bool(self.instants)

    @property
    def merged(self) -> int:
        """Number of files that exist on this machine only, because they merge log files."""
        return self._merged.count()

    def __reduce__(self) -> Any:
        """Pickle the states that were read. The copy does not follow the table, and reads merged
        files on this machine only, while this object exists.
        """
        if self.is_unread:
            self._read_log()
        objects = []
        for folder in (paths.LOG_DIR, f"{paths.PRIVATE}/checkpoints", paths.HINT):
            for info in self._private.list(folder):
                objects.append((info.path, self._private.read(info.path)))
        folder = self._merged.folder
        return _from_pickle, (self.source, objects, folder, self.instants, self._has_log)

    def key_indexes(self, seq: int) -> KeyIndexes | None:
        """See :class:`Storage`. They describe the newest state, which must still be ``seq``."""
        if not self._has_key_indexes or self._numbers:
            return None
        known, indexes = self._key_indexes
        if known == seq:
            return indexes
        indexes = load_key_indexes(self.source)
        try:
            self._read_log()
        except (Corrupt, Unsupported):
            return None
        if self.seq != seq:
            return None
        self._key_indexes = seq, indexes
        return indexes

    def require_conditional_put(self) -> None:
        """Raise Unsupported, because the table is only read."""
        raise read_only(self.url)


def read_only(url: str) -> Unsupported:
    """Return the error for a write to a table of other writers."""
    return Unsupported(
        f"another Hudi writer has written {url}; mdt reads such tables and does not write to them",
        hint="mdt.adopt(path), in SQL CALL mdt.adopt('path'), lets mdt write to it",
    )


def _computes_keys(table: TableProperties) -> bool:
    """Return True if record keys are texts of the key columns."""
    return table.meta_fields and table.key_generator in COMPUTED_KEYS


def _identity(table: TableProperties) -> tuple[object, ...]:
    """Return the properties that stay the same while a table is written and upgraded."""
    columns = table.key_fields, table.partition_fields, table.ordering_fields
    return table.name, table.table_type, *columns, table.merge_mode, table.hive_style


def _folder_name(source: Storage, table: TableProperties) -> str:
    """Return the name of the folder of a table, "" for a table that only this process has.

    If the properties change, another folder is used.
    """
    if not source.is_remote and source.local_path("") is None:
        return ""
    options = sorted(source.public_options.items())
    machine = "" if source.is_remote else platform.node()  # cache directories may be shared
    lasting = sorted(pair for pair in table.stored.items() if pair[0] not in _OF_SERVICES)
    text = repr((_FOLDER_VERSION, machine, source.url, options, lasting))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def _columns(first: CommitRecord) -> Any:
    """Return the columns in the record that defines a table."""
    return first.header["definition"]["schema"]


def _digest(active: Timeline) -> str:
    """Return a digest of the names and sizes of all instants."""
    return hashlib.sha256(repr(active.files).encode("utf-8", "surrogatepass")).hexdigest()


def _from_pickle(
    source: Storage,
    objects: Sequence[tuple[str, bytes]],
    folder: str,
    instants: Sequence[str],
    has_log: bool,
) -> ImportedStorage:
    """Return a storage from its pickle."""
    copy = object.__new__(ImportedStorage)
    copy._show(source, has_log=has_log)
    copy.instants = tuple(instants)
    copy._merged = MergedFiles(folder)
    for path, data in objects:
        copy._private.put_if_absent(path, data)
    return copy


def _is_private(path: str) -> bool:
    return f"{path}/".startswith(f"{paths.PRIVATE}/")


def at_instants(storage: Storage, instants: Sequence[str]) -> ImportedStorage:
    """Return the storage with other states of the same table. See :class:`ImportedStorage`."""
    return ImportedStorage(_imported(storage).source, instants)


def following(source: Storage) -> ImportedStorage:
    """Return a table with its own log, and later commits of other writers.

    If they cannot be imported after it, the whole table is read anew.
    """
    try:
        return ImportedStorage(source, has_log=True)
    except Unsupported as error:
        logs.METADATA.warning("%s is read without its log: %s", source.url, error.message)
    return ImportedStorage(source)


def is_as_opened(storage: Storage) -> bool:
    """See :meth:`ImportedStorage.is_as_opened`."""
    return _imported(storage).is_as_opened()


def part_of(storage: Storage, predicate: Predicate, schema: pa.Schema) -> ImportedStorage | None:
    """Return the part of a table for a filter. See :meth:`ImportedStorage.part`."""
    return _imported(storage).part(predicate, schema)


def without_log_files(storage: Storage) -> ImportedStorage:
    """Return the storage with the same states, without log files."""
    imported = _imported(storage)
    return ImportedStorage(imported.source, imported.instants, base_only=True)


def _imported(storage: Storage) -> ImportedStorage:
    assert isinstance(storage, ImportedStorage), "only tables of other writers have such states"
    return storage


def first_seq(storage: Storage) -> int:
    """Return the commit number of the first of several states of a table of others."""
    return _imported(storage).first_seq


def instants_between(storage: Storage, after: str, until: str) -> list[str]:
    """Return the instants of the writes after ``after``, up to ``until``, in a table of others.

    Raises Missing if there is no table, Corrupt, and Unsupported if it cannot be read.
    """
    source = _imported(storage).source
    writes = load_timeline(source, load_properties(source)).writes()
    return sorted(write.time for write in writes if after < write.time <= until)


def require_meta_columns(storage: Storage) -> None:
    """Raise Unsupported if the rows of a table of others have no commit times."""
    if not load_properties(_imported(storage).source).meta_fields:
        raise Unsupported(
            "the rows have no commit times, because the table has no meta columns"
            " (hoodie.populate.meta.fields=false)",
            hint="compare two scans: t.scan(as_of=...)",
        )
