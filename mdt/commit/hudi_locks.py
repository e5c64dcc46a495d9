"""Hudi's lock providers, which let writers of Hudi and of mdt work on a table at the same time.

A Hudi writer holds a lock while it checks for conflicts and completes its instant. With the option
``mdt.lock.provider``, so does a transaction of mdt, from its last look at Hudi's timeline until its
own instant is completed.

The two providers whose locks are files are supported. Their formats are those of
``FileSystemBasedLockProvider`` and ``StorageBasedLockProvider`` in Hudi 1.2.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager

from mdt import logs
from mdt.commit import claims
from mdt.config import Options
from mdt.errors import Conflict, MdtError, Unavailable, Unsupported
from mdt.hudi import timeline
from mdt.limits import (
    HEARTBEAT_AGE_SECONDS_MAX,
    HEARTBEAT_SECONDS,
    LOCK_BYTES_MAX,
    LOCK_CLOCK_SKEW_SECONDS,
    LOCK_POLL_SECONDS,
    LOCK_VALID_SECONDS,
)
from mdt.metadata.files import paths
from mdt.metadata.metadata import Metadata
from mdt.schema.definition import TableDefinition
from mdt.stores.storage import Storage, open_storage


class CommitLock(ABC):
    """A lock that one transaction holds while it commits. Not reentrant."""

    is_shared: bool = True
    """False if no lock provider is configured, so that nothing is locked."""

    @abstractmethod
    def acquire(self) -> None:
        """Wait for the lock. Raises Conflict if another writer holds it for too long."""

    @abstractmethod
    def is_held(self) -> bool:
        """Return True if no other writer has broken the lock."""

    @abstractmethod
    def close(self) -> None:
        """Release the lock if it is held. Errors are logged, because the commit is final."""


class NoLock(CommitLock):
    """The lock of tables without a lock provider: writers of Hudi and of mdt take turns."""

    is_shared = False

    def acquire(self) -> None:
        """Do nothing."""

    def is_held(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Do nothing."""


class _FileLock(CommitLock):
    """A lock in a file of Hudi's.

    Attributes:
        owner: Random text that only this lock has.
    """

    def __init__(self, storage: Storage, path: str, wait_ms: int) -> None:
        self.owner = storage.random_hex(16)
        self._storage = storage
        self._path = path
        self._wait_us = wait_ms * 1000

    def acquire(self) -> None:
        """See :class:`CommitLock`."""
        storage = self._storage
        until = storage.now_us() + self._wait_us
        while not self._try():
            if storage.now_us() > until:
                raise Conflict(
                    f"another writer holds the lock {storage.url}/{self._path} for more than"
                    f" {self._wait_us // 1000} ms",
                    hint=self._hint,
                )
            storage.sleep(LOCK_POLL_SECONDS)

    _hint: str
    """Hint for a lock that stays locked."""

    @abstractmethod
    def _try(self) -> bool:
        """Try to lock once. Return True if the lock is held now."""

    @abstractmethod
    def _release(self) -> None:
        """Release the lock if it is held."""

    def close(self) -> None:
        """See :class:`CommitLock`."""
        try:
            self._release()
        except MdtError as error:
            text = "the lock %s/%s could not be released: %s"
            logs.COMMIT.warning(text, self._storage.url, self._path, error)


class FileSystemLock(_FileLock):
    """The lock of Hudi's ``FileSystemBasedLockProvider``: whoever creates the file has the lock."""

    _hint = (
        "if the writer that created the file is dead, delete it; mdt.lock.expire.minutes breaks old"
        " locks"
    )

    def __init__(self, storage: Storage, path: str, wait_ms: int, expire_minutes: int) -> None:
        super().__init__(storage, path, wait_ms)
        self._content = json.dumps({"lockThreadName": f"mdt {self.owner}"}).encode()
        self._expire_us = expire_minutes * 60_000_000
        self._is_taken = False

    def _try(self) -> bool:
        if self._is_expired():
            logs.COMMIT.warning("%s/%s: broke an old lock", self._storage.url, self._path)
            self._storage.delete(self._path)
        self._is_taken = self._storage.put_passing(self._path, self._content)
        return self._is_taken

    def _is_expired(self) -> bool:
        if not self._expire_us:
            return False
        folder = self._path.rpartition("/")[0]
        created = [i.modified_us for i in self._storage.list_dir(folder) if i.path == self._path]
        return bool(created) and self._storage.now_us() - created[0] > self._expire_us

    def is_held(self) -> bool:
        """See :class:`CommitLock`."""
        content = self._storage.read_if_exists(self._path, LOCK_BYTES_MAX)
        return self._is_taken and content == self._content

    def _release(self) -> None:
        if self.is_held():
            self._storage.delete(self._path)
        self._is_taken = False


class ObjectStoreLock(_FileLock):
    """The lock of Hudi's ``StorageBasedLockProvider``: an object with an owner and a time of
    expiry, which is replaced only if nobody else has replaced it.
    """

    _hint = f"a lock of a dead writer expires, by default after {LOCK_VALID_SECONDS} s"

    def __init__(self, storage: Storage, wait_ms: int) -> None:
        super().__init__(storage, paths.hudi_storage_lock(), wait_ms)
        self._version: str | None = None
        self._valid_until_ms = 0

    def _try(self) -> bool:
        stored = self._storage.read_with_version(self._path)
        if stored is None:
            content = self._content(is_expired=False)
            if not self._storage.put_if_absent(self._path, content):
                return False
            stored = self._storage.read_with_version(self._path)
            if stored is None or stored[0] != content:
                return False
            self._version = stored[1]
            return True
        if self._is_locked(stored[0]):
            return False
        return self._replace(stored[1])

    def _is_locked(self, content: bytes) -> bool:
        """Return True if another writer holds the lock. A malformed lock is locked."""
        try:
            lock = json.loads(content)
            now_ms = self._storage.now_us() // 1000 - int(LOCK_CLOCK_SKEW_SECONDS * 1000)
            return not lock["expired"] and int(lock["validUntil"]) >= now_ms
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return True

    def _replace(self, version: str) -> bool:
        """Take or renew the lock whose object has ``version``."""
        content = self._content(is_expired=False)
        self._version = self._storage.replace_version(self._path, content, version)
        return self._version is not None

    def _content(self, *, is_expired: bool) -> bytes:
        if not is_expired:
            self._valid_until_ms = self._storage.now_us() // 1000 + LOCK_VALID_SECONDS * 1000
        fields = {"expired": is_expired, "validUntil": self._valid_until_ms, "owner": self.owner}
        return json.dumps(fields).encode()

    def is_held(self) -> bool:
        """See :class:`CommitLock`. A lock that expires soon is renewed."""
        if self._version is None:
            return False
        left_ms = self._valid_until_ms - self._storage.now_us() // 1000
        return left_ms > LOCK_VALID_SECONDS * 500 or self._replace(self._version)

    def _release(self) -> None:
        version, self._version = self._version, None
        if version is not None:
            content = self._content(is_expired=True)
            self._storage.replace_version(self._path, content, version)


def lock_of(storage: Storage, options: Options) -> CommitLock:
    """Return the lock that the options name. It is not acquired yet.

    Raises Unsupported if Hudi has no such lock on this storage.
    """
    provider, wait_ms = options.lock_provider, options.lock_wait_ms
    if not provider:
        return NoLock()
    if provider == "storage":
        storage.require_versions()
        return ObjectStoreLock(storage, wait_ms)
    if storage.is_remote:
        raise Unsupported(
            f"Hudi has no file system lock on {storage.url}",
            hint="use mdt.lock.provider=storage, and StorageBasedLockProvider in Hudi's writers",
        )
    place, path = storage, paths.hudi_lock()
    if options.lock_path:
        place, path = open_storage(options.lock_path, durable=False), "lock"
    return FileSystemLock(place, path, wait_ms, options.lock_expire_minutes)


@contextmanager
def locked(metadata: Metadata, definition: TableDefinition) -> Iterator[None]:
    """Context that holds the lock of a table.

    Raises Conflict if another writer holds it for too long.
    """
    with closing(lock_of(metadata.storage, metadata.options(definition))) as lock:
        lock.acquire()
        yield


def require_no_writers(metadata: Metadata) -> None:
    """Raise Unsupported if a Hudi writer has begun or committed a write. It is only certain while
    the caller holds the lock.

    Unlike the usual check, this sees writes whose pending instants have no content yet.
    """
    metadata.newest()
    pending = set(metadata.watch.pending)
    if pending:
        pending -= {claim.instant for claim in claims.read_all(metadata.storage)[0]}
    if pending:
        raise Unsupported(
            f"another Hudi writer is running, or has died: it has the pending instant"
            f" {min(pending)}",
            hint="try again when it has ended",
        )


def starting_writers(metadata: Metadata) -> list[str]:
    """Return the instants of Hudi writers that may not have looked at the timeline yet, ascending.

    Such a writer has an instant, and reads the timeline a little later. If it then sees a commit of
    ours with a later instant, it takes this commit for older than itself: it keeps our rows, but
    writes them under its own instant. Readers of version 6 order file slices by instant, and take
    ours for the newer one. Therefore no commit of ours may have a later instant.

    A writer is in flight when it has read the timeline, and dead without a young heartbeat.
    """
    requested = metadata.watch.requested
    if not requested:
        return []
    storage = metadata.storage
    claimed = {claim.instant for claim in claims.read_all(storage)[0]}
    limit = storage.now_us() - HEARTBEAT_AGE_SECONDS_MAX * 1_000_000
    beats = storage.list_dir(paths.heartbeats_dir())
    alive = {info.path.rpartition("/")[2] for info in beats if info.modified_us > limit}
    return sorted((requested - claimed) & alive)


def time_before_writers(metadata: Metadata, last: str, at_us: int) -> int:
    """Return the time of an instant after ``last``, which is the newest one, and before those of
    all :func:`starting_writers`. ``at_us`` if there are none, or no such time.
    """
    starting, next_us = starting_writers(metadata), timeline.instant_us(last) + 1000
    if starting and next_us < timeline.instant_us(starting[0]):
        return min(at_us, next_us)
    return at_us


def require_room(metadata: Metadata, instant: str) -> None:
    """Raise Unsupported if one of :func:`starting_writers` has an instant before ``instant``."""
    starting = starting_writers(metadata)
    if starting and starting[0] < instant:
        raise Unsupported(
            f"another Hudi writer is starting: it has requested the instant {starting[0]}",
            hint="try again in a moment",
        )


@contextmanager
def heartbeats(storage: Storage, instant: str, lock: CommitLock) -> Iterator[None]:
    """Context that renews the heartbeat of a transaction if it shares a lock with Hudi's writers,
    which roll back transactions without one.
    """
    if not lock.is_shared:
        yield
        return
    has_ended = threading.Event()

    def beat() -> None:
        while not has_ended.wait(HEARTBEAT_SECONDS):
            try:
                storage.replace(paths.heartbeat(instant), b"")
            except Unavailable as error:
                logs.COMMIT.warning("%s: no heartbeat of %s: %s", storage.url, instant, error)

    thread = threading.Thread(target=beat, name="mdt-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()
