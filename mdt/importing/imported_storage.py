"""A storage that shows a table of other Hudi writers as one of ours, without writing to it.

The objects below ``.hoodie/.mdt/`` are in memory, and merged base files in a temporary directory.
The log has records of the states that were read: looking for the next record reads what other
writers have done since.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from copy import copy
from typing import Any, TypeVar

from mdt import logs
from mdt.errors import Corrupt, Unsupported
from mdt.hudi.read.key_indexes import KeyIndexes, load_key_indexes
from mdt.hudi.read.loading import load_properties
from mdt.hudi.read.table_properties import COMPUTED_KEYS, TableProperties
from mdt.importing.imported_log import ImportedLog, write_instants
from mdt.importing.imported_slices import MergedFiles
from mdt.metadata.files import paths
from mdt.metadata.log import commit_log
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.stores.contract import Answers, Data, Listing, Names
from mdt.stores.scratch import temporary_folder
from mdt.stores.storage import MemoryStorage, Storage

T = TypeVar("T")

_WRITABLE = (f"{paths.PRIVATE}/usage/", f"{paths.PRIVATE}/checkpoints/", paths.hint())
"""Derived objects. They are written in memory only."""


class ImportedStorage(Storage):
    """The storage of a table of other writers. Thread-safe.

    It can be read like any table's. Writes raise Unsupported.

    Attributes:
        source: The storage itself.
        instants: Instants of the states, empty to follow the table.
    """

    is_imported = True

    def __init__(
        self,
        source: Storage,
        instants: Sequence[str] = (),
        *,
        base_only: bool = False,
        after: Snapshot | None = None,
    ) -> None:
        """Read the table in ``source``.

        Args:
            instants: Instants of the states to show, ascending. Empty to follow the table.
            base_only: Leave log files out, as in Hudi's read-optimized queries.
            after: A snapshot of the table's own log, which the records in memory follow. None to
                read the whole table anew.

        Raises Missing if there is no table, Corrupt, and Unsupported if it cannot be read.
        """
        self._show(source, has_log=after is not None)
        self.computes_keys = _computes_keys(load_properties(source))
        self.instants = tuple(instants)
        self._has_key_indexes = not (instants or base_only)
        self._merged = MergedFiles(temporary_folder(self))
        self._log: ImportedLog | None = ImportedLog(
            source, self._merged, instants, base_only=base_only, after=after
        )
        self._read_log()

    def _show(self, source: Storage, *, has_log: bool) -> None:
        """Show the objects of ``source``, with those of its own metadata if it ``has_log``."""
        self.url = source.url
        self.public_options = source.public_options
        self.is_remote = source.is_remote
        self.is_durable = source.is_durable
        self.source = source
        self._has_log = has_log
        self._private = MemoryStorage()
        self._lock = threading.Lock()
        self.computes_keys = False
        self._has_key_indexes = False
        self._key_indexes: tuple[int, KeyIndexes | None] = -1, None

    def _read_log(self) -> None:
        """Put the records of what other writers have done into the log."""
        assert self._log is not None, "a copy does not follow the table"
        with self._lock:
            log = copy(self._log)  # the next look tries again if this one fails
            records = [(paths.commit(one.seq), commit_log.encode(one)) for one in log.read()]
            for path, data in reversed(records):  # no reader sees only some of them
                self._private.put_if_absent(path, data)
            self._log = log

    def _of(self, path: str) -> Storage:
        """Return the storage of an object."""
        if path in self._merged.paths:
            return self._merged.storage
        if not _is_private(path):
            return self.source
        if self._has_log and self._private.size(path) is None:
            return self.source
        return self._private

    def _prepare(self, path: str) -> Storage:
        """Return the storage of an object that is read. A new record is made first."""
        if self._log is not None and path == paths.commit(self._log.seq + 1):
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
    def first_seq(self) -> int:
        """Commit number of the first of several states."""
        assert self._log is not None, "a copy does not know its states"
        return self._log.first_seq

    @property
    def merged(self) -> int:
        """Number of files that exist on this machine only, because they merge log files."""
        return len(self._merged.paths)

    def __reduce__(self) -> Any:
        """Pickle the states that were read. The copy does not follow the table, and reads merged
        files on this machine only, while this object exists.
        """
        listed = self._private.list(paths.log_dir())
        records = [(info.path, self._private.read(info.path)) for info in listed]
        folder = self._merged.storage.uri("").removeprefix("file://")
        merged = sorted(self._merged.paths)
        return _from_pickle, (self.source, records, folder, merged, self.instants, self._has_log)

    def key_indexes(self, seq: int) -> KeyIndexes | None:
        """See :class:`Storage`. They describe the newest state, which must still be ``seq``."""
        if not self._has_key_indexes:
            return None
        known, indexes = self._key_indexes
        if known == seq:
            return indexes
        indexes = load_key_indexes(self.source)
        try:
            self._read_log()
        except (Corrupt, Unsupported):
            return None
        if self._log is None or self._log.seq != seq:
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
        hint="mdt.adopt(path) lets mdt write to it, if it has version 6",
    )


def _computes_keys(table: TableProperties) -> bool:
    """Return True if record keys are texts of the key columns."""
    return table.meta_fields and table.key_generator in COMPUTED_KEYS


def _from_pickle(
    source: Storage,
    records: Sequence[tuple[str, bytes]],
    folder: str,
    merged: Sequence[str],
    instants: Sequence[str],
    has_log: bool,
) -> ImportedStorage:
    """Return a storage from its pickle."""
    copy = object.__new__(ImportedStorage)
    copy._show(source, has_log=has_log)
    copy.instants = tuple(instants)
    copy._merged = MergedFiles(folder, merged)
    copy._log = None
    for path, record in records:
        copy._private.put_if_absent(path, record)
    return copy


def _is_private(path: str) -> bool:
    return f"{path}/".startswith(f"{paths.PRIVATE}/")


def of_states(storage: Storage, instants: Sequence[str]) -> ImportedStorage:
    """Return the storage with other states of the same table. See :class:`ImportedStorage`."""
    return ImportedStorage(_imported(storage).source, instants)


def following(source: Storage, snapshot: Snapshot) -> ImportedStorage:
    """Return a table with its own log up to ``snapshot``, and later commits of other writers.

    If they cannot be imported after it, the whole table is read anew.
    """
    try:
        return ImportedStorage(source, after=snapshot)
    except Unsupported as error:
        logs.METADATA.warning("%s is read without its log: %s", source.url, error.message)
    return ImportedStorage(source)


def of_base_files(storage: Storage) -> ImportedStorage:
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
    """Return the instants of the writes after ``after``, up to ``until``, in a table of others."""
    return write_instants(_imported(storage).source, after, until)


def require_meta_columns(storage: Storage) -> None:
    """Raise Unsupported if the rows of a table of others have no commit times."""
    if not load_properties(_imported(storage).source).meta_fields:
        raise Unsupported(
            "the rows have no commit times, because the table has no meta columns"
            " (hoodie.populate.meta.fields=false)",
            hint="compare two scans: t.scan(as_of=...)",
        )
