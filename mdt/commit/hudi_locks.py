"""Hudi's lock providers, which let writers of Hudi and of mdt work on a table at the same time.

A Hudi writer holds a lock while it takes its instant, and while it checks for conflicts and
completes the instant. With the option ``mdt.lock.provider``, so does a transaction of mdt: while it
claims its instant, and from its last look at Hudi's timeline until its own instant is completed.

The two providers whose locks are files are supported. Their formats are those of
``FileSystemBasedLockProvider`` and ``StorageBasedLockProvider`` in Hudi 1.2.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager

from mdt import logs
from mdt.config import Options
from mdt.errors import Conflict, Invalid, MdtError, Unsupported
from mdt.hudi import timeline
from mdt.limits import (
    COUNT_MAX,
    HEARTBEAT_AGE_SECONDS_MAX,
    HEARTBEAT_SECONDS,
    LOCK_BYTES_MAX,
    LOCK_CLOCK_SKEW_SECONDS,
    LOCK_POLL_SECONDS,
    LOCK_POLL_SECONDS_MAX,
    LOCK_VALID_SECONDS,
    STARTING_SECONDS_MAX,
)
from mdt.metadata.files import paths
from mdt.metadata.metadata import Metadata
from mdt.schema.definition import TableDefinition
from mdt.stores.storage import Storage, open_storage


class CommitLock:
    """A lock that one transaction holds while it commits, and its heartbeat. Not reentrant.

    This is the one of tables without a lock provider, where writers of Hudi and of mdt take turns.
    It locks nothing.
    """

    is_configured: bool = False
    """True if a lock provider is configured."""

    def acquire(self) -> None:
        """Wait for the lock. Raises Conflict if another writer holds it for too long."""

    def is_held(self) -> bool:
        """Return True if no other writer has broken the lock."""
        return True

    def release(self) -> None:
        """Release the lock if it is held. Errors are logged, because a commit is final."""

    def begin_heartbeat(self, instant: str) -> None:
        """Renew the heartbeat of a transaction in a thread, because Hudi's writers roll back
        transactions without one.
        """

    def end_heartbeat(self) -> None:
        """Stop renewing the heartbeat, before its file is removed."""

    def close(self) -> None:
        """Stop the heartbeat, and release the lock if it is held."""
        self.end_heartbeat()
        self.release()


class _FileLock(CommitLock, ABC):
    """A lock in a file of Hudi's.

    Attributes:
        owner: Random text that only this lock has.
    """

    is_configured = True

    def __init__(self, storage: Storage, path: str, wait_ms: int, table: Storage) -> None:
        """Prepare a lock.

        Args:
            storage: The storage of the lock.
            table: The storage of the table, for heartbeats.
        """
        self.owner = storage.random_hex(16)
        self._storage = storage
        self._path = path
        self._wait_us = wait_ms * 1000
        self._was_tried = False
        self._table = table
        self._heartbeat: Heartbeat | None = None

    def acquire(self) -> None:
        """See :class:`CommitLock`."""
        storage, pause = self._storage, LOCK_POLL_SECONDS
        until = storage.now_us() + self._wait_us
        self._was_tried = True  # a try whose reply is lost may have locked
        while not self._try():
            if storage.now_us() > until:
                raise Conflict(
                    f"another writer holds the lock {storage.url}/{self._path} for more than"
                    f" {self._wait_us // 1000} ms",
                    hint=self._hint,
                )
            storage.sleep(pause)
            pause = min(2 * pause, LOCK_POLL_SECONDS_MAX)

    _hint: str
    """Hint for a lock that stays locked."""

    @abstractmethod
    def _try(self) -> bool:
        """Try to lock once. Return True if the lock is held now."""

    @abstractmethod
    def _release(self) -> None:
        """Release the lock if it is held."""

    def begin_heartbeat(self, instant: str) -> None:
        """See :class:`CommitLock`."""
        self._heartbeat = Heartbeat(self._table, instant)

    def end_heartbeat(self) -> None:
        """See :class:`CommitLock`."""
        if self._heartbeat is not None:
            self._heartbeat.close()
            self._heartbeat = None

    def release(self) -> None:
        """See :class:`CommitLock`."""
        try:
            if self._was_tried:
                self._release()
            self._was_tried = False
        except MdtError as error:
            text = "the lock %s/%s could not be released: %s"
            logs.COMMIT.warning(text, self._storage.url, self._path, error)


class Heartbeat:
    """A thread that renews the heartbeat of a transaction."""

    def __init__(self, storage: Storage, instant: str) -> None:
        self._has_ended = threading.Event()
        self._thread = threading.Thread(
            target=self._beat, args=(storage, instant), name="mdt-heartbeat", daemon=True
        )
        self._thread.start()

    def _beat(self, storage: Storage, instant: str) -> None:
        while not self._has_ended.wait(HEARTBEAT_SECONDS):
            try:
                storage.replace(paths.heartbeat(instant), b"")
            except Exception as error:  # noqa: BLE001 - the next one may succeed
                logs.COMMIT.warning("%s: no heartbeat of %s: %s", storage.url, instant, error)

    def close(self) -> None:
        """End the thread, after a beat that is under way."""
        self._has_ended.set()
        self._thread.join()


class FileSystemLock(_FileLock):
    """The lock of Hudi's ``FileSystemBasedLockProvider``: the writer that creates a file has it."""

    _hint = (
        "if the writer that created the file is dead, delete it; mdt.lock.expire.minutes breaks old"
        " locks"
    )

    def __init__(
        self, storage: Storage, path: str, wait_ms: int, expire_minutes: int, table: Storage
    ) -> None:
        super().__init__(storage, path, wait_ms, table)
        self._content = json.dumps({"lockThreadName": f"mdt {self.owner}"}).encode()
        self._expire_us = expire_minutes * 60_000_000

    def _try(self) -> bool:
        if self._storage.put_passing(self._path, self._content) or self.is_held():
            return True
        if self._expire_us:
            self._break_if_expired()
        return False

    def _break_if_expired(self) -> None:
        """Delete the lock of a dead writer.

        Another writer may do the same, and lock again. Therefore the right to delete this lock is a
        file of its own. The times of both files give the age of the lock by the server's clock.
        """
        created_us = self._modified_us(self._path)
        if created_us is None or self._storage.now_us() - created_us <= self._expire_us:
            return
        right = f"{self._path}.{created_us}"
        if self._storage.put_passing(right, b""):
            now_us = self._modified_us(right) or 0
            if self._modified_us(self._path) == created_us < now_us - self._expire_us:
                logs.COMMIT.warning("%s/%s: broke an old lock", self._storage.url, self._path)
                self._storage.delete(self._path)
            self._storage.delete(right)
            return
        taken_us = self._modified_us(right)
        if taken_us is not None and self._storage.now_us() - taken_us > self._expire_us:
            self._storage.delete(right)  # its writer died; the next try takes the right

    def _modified_us(self, path: str) -> int | None:
        folder = path.rpartition("/")[0]
        listed = self._storage.list_dir(folder, after=path[:-1], before=f"{path}~")
        return next((info.modified_us for info in listed if info.path == path), None)

    def is_held(self) -> bool:
        """See :class:`CommitLock`."""
        return self._storage.read_if_exists(self._path, LOCK_BYTES_MAX) == self._content

    def _release(self) -> None:
        if self.is_held():
            self._storage.delete(self._path)


class ObjectStoreLock(_FileLock):
    """The lock of Hudi's ``StorageBasedLockProvider``: an object with an owner and a time of
    expiry, which is replaced only if nobody else has replaced it.
    """

    _hint = f"a lock of a dead writer expires, by default after {LOCK_VALID_SECONDS} s"

    def __init__(self, storage: Storage, wait_ms: int) -> None:
        super().__init__(storage, paths.HUDI_STORAGE_LOCK, wait_ms, storage)
        self._valid_until_ms = 0

    def _try(self) -> bool:
        stored = self._storage.read_with_version(self._path, LOCK_BYTES_MAX)
        if stored is None:
            self._storage.put_if_absent(self._path, self._content(is_expired=False))
            stored = self._storage.read_with_version(self._path, LOCK_BYTES_MAX)
            return stored is not None and self._recognize(stored[0])
        return self._recognize(stored[0]) or self._take(*stored)

    def _recognize(self, content: bytes) -> bool:
        """Return True if the object is our lock, perhaps from a put whose reply was lost."""
        owner, until_ms = _holder(content)
        if owner == self.owner:
            self._valid_until_ms = until_ms
        return owner == self.owner

    def _take(self, content: bytes, version: str) -> bool:
        """Take the lock from a writer that has released it, or is dead."""
        owner, until_ms = _holder(content)
        now_ms = self._storage.now_us() // 1000 - int(LOCK_CLOCK_SKEW_SECONDS * 1000)
        return (owner is None or until_ms < now_ms) and self._replace(version)

    def _replace(self, version: str) -> bool:
        """Take or renew the lock whose object has ``version``."""
        content = self._content(is_expired=False)
        if self._storage.replace_version(self._path, content, version) is not None:
            return True
        stored = self._storage.read_with_version(self._path, LOCK_BYTES_MAX)
        return stored is not None and self._recognize(stored[0])

    def _content(self, *, is_expired: bool) -> bytes:
        if not is_expired:
            self._valid_until_ms = self._storage.now_us() // 1000 + LOCK_VALID_SECONDS * 1000
        fields = {"expired": is_expired, "validUntil": self._valid_until_ms, "owner": self.owner}
        return json.dumps(fields).encode()

    def is_held(self) -> bool:
        """See :class:`CommitLock`. A lock that expires soon is renewed."""
        stored = self._storage.read_with_version(self._path, LOCK_BYTES_MAX)
        if stored is None or not self._recognize(stored[0]):
            return False
        left_ms = self._valid_until_ms - self._storage.now_us() // 1000
        return left_ms > LOCK_VALID_SECONDS * 500 or self._replace(stored[1])

    def _release(self) -> None:
        stored = self._storage.read_with_version(self._path, LOCK_BYTES_MAX)
        if stored is not None and self._recognize(stored[0]):
            self._storage.replace_version(self._path, self._content(is_expired=True), stored[1])


def _holder(content: bytes) -> tuple[str | None, int]:
    """Return the owner of a lock object and the end of its time in milliseconds. The owner is None
    for a lock that was released. A malformed lock is locked by nobody, for ever.
    """
    try:
        lock = json.loads(content)
        owner, is_expired = str(lock["owner"]), lock["expired"]
        until_ms = int(lock["validUntil"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return "", COUNT_MAX
    if not isinstance(is_expired, bool):
        return "", COUNT_MAX
    return (None if is_expired else owner), until_ms


def lock_of(storage: Storage, options: Options) -> CommitLock:
    """Return the lock that the options name. It is not acquired yet.

    Raises Unsupported if Hudi has no such lock on this storage, and Invalid for a relative path.
    """
    provider, wait_ms = options.lock_provider, options.lock_wait_ms
    if not provider:
        return CommitLock()
    if provider == "storage":
        storage.require_versions()
        return ObjectStoreLock(storage, wait_ms)
    if storage.is_remote:
        raise Unsupported(
            f"Hudi has no file system lock on {storage.url}",
            hint="use mdt.lock.provider=storage, and StorageBasedLockProvider in Hudi's writers",
        )
    place, path = storage, paths.HUDI_LOCK
    if options.lock_path:
        if not options.lock_path.startswith(("/", "file:/")):
            raise Invalid(f"mdt.lock.path must be an absolute path, not {options.lock_path!r}")
        place, path = open_storage(options.lock_path, durable=False), "lock"
    return FileSystemLock(place, path, wait_ms, options.lock_expire_minutes, storage)


@contextmanager
def locked(metadata: Metadata, definition: TableDefinition) -> Iterator[None]:
    """Context that holds the lock of a table.

    Raises Conflict if another writer holds it for too long.
    """
    with closing(lock_of(metadata.storage, metadata.options(definition))) as lock:
        lock.acquire()
        yield


def require_no_pending_writes(metadata: Metadata) -> None:
    """Raise Unsupported if a Hudi writer has begun a write and not completed it, dead or alive.

    By default, Hudi's next writer rolls back the writes of dead ones. It refuses to roll back a
    write, and thus to write at all, if a later instant than that of the write has completed.

    Unlike :meth:`Watch.refuse_to_write`, this sees writes whose pending instants have no content.
    """
    if not metadata.watch.pending:
        return
    unclaimed = _pending_of_others(metadata)
    pending = sorted(unclaimed - metadata.cached_snapshot().log.dead_instants)
    if pending:
        raise Unsupported(
            "another Hudi writer is running here, or has died: it has pending instants"
            f" {', '.join(pending[:3])}",
            hint="try again when it has ended; if it has died, Hudi's next write rolls it back",
        )


def require_no_writers(metadata: Metadata) -> None:
    """Raise Unsupported if a living Hudi writer has begun a write, or has committed one. It is only
    certain while the caller holds the lock.

    Unlike the usual check, this sees writes whose pending instants have no content yet.
    """
    pending = _living(metadata, _pending_of_others(metadata))
    if pending:
        raise Unsupported(
            f"another Hudi writer is running, or has died: it has the pending instant {pending[0]}",
            hint="try again when it has ended",
        )


def starting_writers(metadata: Metadata, instant: str = "") -> list[str]:
    """Return the instants of Hudi writers that may not have looked at the timeline yet, ascending.

    Such a writer has an instant, and reads the timeline a little later. If it then sees a commit of
    ours with a later instant, it takes this commit for older than itself: it keeps our rows, but
    writes them under its own instant. Readers of version 6 order file slices by instant, and take
    ours for the newer one. Therefore no commit of ours may have a later instant.

    A writer is in flight when it has read the timeline, and dead without a young heartbeat.

    Args:
        instant: An instant of ours that has a heartbeat, if there is one yet.
    """
    requested = metadata.watch.requested
    if not requested:
        return []
    return _living(metadata, requested.keys() - _claimed(metadata), instant)


def _claimed(metadata: Metadata) -> set[str]:
    """Return the instants of our own writers."""
    claims = metadata.storage.list_dir(paths.PENDING_DIR)
    return {info.path.rpartition("/")[2] for info in claims}


def _pending_of_others(metadata: Metadata) -> set[str]:
    """Return the instants of pending writes that no writer of ours has claimed.

    A claim outlives its instants, so claims are listed before the timeline. A writer of ours that
    begins in between has a claim, or nothing pending, when both are listed again.
    """
    pending = _unclaimed(metadata)
    return pending & _unclaimed(metadata) if pending else pending


def _unclaimed(metadata: Metadata) -> set[str]:
    """Return the instants of pending writes without the claims that were listed before."""
    claimed = _claimed(metadata)
    metadata.newest()
    return set(metadata.watch.pending) - claimed


def _living(metadata: Metadata, instants: AbstractSet[str], ours: str = "") -> list[str]:
    """Return the instants with a young heartbeat, ascending.

    Leaves out writes that have been starting for too long: a program of Hudi may keep the heartbeat
    of a write that failed.

    Args:
        ours: Our own instant. The time of its heartbeat is that of the storage's clock.
    """
    if not instants:
        return []
    beats = {
        info.path.rpartition("/")[2]: info.modified_us
        for info in metadata.storage.list_dir(paths.HEARTBEATS_DIR)
    }
    limit = beats.get(ours, metadata.storage.now_us()) - HEARTBEAT_AGE_SECONDS_MAX * 1_000_000
    requested, starting_max = metadata.watch.requested, STARTING_SECONDS_MAX * 1_000_000
    return sorted(
        instant
        for instant in instants
        if (beat := beats.get(instant, 0)) > limit
        and beat - requested.get(instant, beat) <= starting_max
    )


def time_before_writers(metadata: Metadata, last: str, at_us: int) -> int:
    """Return the time of an instant after ``last``, which is the newest one, and before those of
    all :func:`starting_writers`, at most ``at_us``.

    It is shortly before them, so that there is room for other commits.

    Raises Unsupported if there is no such time.
    """
    starting, next_us = starting_writers(metadata), timeline.instant_us(last) + 1000
    if not starting:
        return at_us
    first_us = timeline.date_us(starting[0])
    if next_us >= first_us:
        raise _no_room(starting[0])
    return min(at_us, max(next_us, first_us - _ROOM_US))


_ROOM_US = 1_000_000
"""Time between our first instant and that of a writer that starts."""


def require_room(metadata: Metadata, instant: str) -> None:
    """Raise Unsupported if one of :func:`starting_writers` has an instant up to ``instant``.

    Args:
        instant: An instant of ours that has a heartbeat.
    """
    starting = starting_writers(metadata, instant)
    if starting and starting[0] <= instant:
        raise _no_room(starting[0])


def _no_room(instant: str) -> Unsupported:
    return Unsupported(
        f"another Hudi writer is starting: it has requested the instant {instant}",
        hint="try again in a moment",
    )
