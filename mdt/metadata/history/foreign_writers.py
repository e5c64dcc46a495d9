"""Detection of other Hudi writers on our table, which do not update our metadata.

Such a writer completes instants on Hudi's timeline that our log does not have, or it upgrades the
table.  A :class:`Watch` looks for both whenever a snapshot is refreshed.  It lists the directory
only if its stamp or that of the properties has changed, where the storage has stamps.  It lists
only instants that may be new: later than the newest instant of the last look, less a margin for the
other writer's clock, or later than the oldest instant that was pending then.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from mdt.errors import Corrupt, Missing, Unavailable, Unsupported
from mdt.hudi import properties, timeline
from mdt.hudi.commit_metadata import PROFILE_START
from mdt.hudi.layout import LAYOUTS, Layout, layout_of
from mdt.hudi.timeline import COMMITS, Instant
from mdt.limits import (
    FOREIGN_CLOCK_BEHIND_SECONDS,
    FOREIGN_ZONES_BEHIND_SECONDS,
    LATE_SECONDS_MAX,
)
from mdt.metadata.files import paths
from mdt.metadata.files.paths import HUDI
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.stores.contract import ObjectInfo
from mdt.stores.storage import Storage

BACKUP = f"{paths.PROPERTIES}.backup"
"""Copy of the properties that Hudi's writers keep while they replace them."""

_BEFORE = "i"
"""Sorts after all instants and the properties, and before Hudi's directories ``metadata`` and
``timeline``.
"""
_OURS_MIN = 1_024
"""Number of instant paths always kept in memory.  Forgetting paths walks through all."""
_DATA_STAYS = frozenset(("savepoint", "indexing"))
"""Actions of other writers that change no rows and delete no files."""
_COMPACTION = "compaction"
_ROW_WRITES = frozenset(("commit", "deltacommit"))
_TAKE_ROWS_ALONG = (
    "open the table again: it can then be read, but not written; to write, load its rows into a"
    " new table: mdt.create(new_path, schema, key=...)"
)

_MEND_PROPERTIES = (
    "try again; if it fails again, mdt.repair(path) rewrites it from the table's definition"
)


@dataclass(frozen=True, slots=True)
class TimelineListing:
    """A listing of ``.hoodie``.

    - stamps: Of the directory and the properties before the listing, None if storage has no stamps.
    - properties: Content of ``hoodie.properties``, or None if it is missing.
    - instants: The listed instants.
    - begun: Pending instants with content.
    - print: Path, size and modification time of the properties, None if they are missing.
    """

    stamps: tuple[Hashable, Hashable] | None
    properties: Mapping[str, str] | None
    instants: Mapping[Instant, ObjectInfo]
    begun: frozenset[Instant]
    print: tuple[str, int, int] | None

    def foreign_instants(self, snapshot: Snapshot) -> list[Instant]:
        """Return the instants that are not in the log up to ``snapshot``."""
        unknown = snapshot.unknown_instants({instant.time for instant in self.instants})
        instants = []
        for instant in self.instants:
            is_write = snapshot.is_write_of_others(instant.time, instant.action)
            if (instant.time in unknown or is_write) and not snapshot.imports.has(instant):
                instants.append(instant)
        return instants


@dataclass(slots=True)
class Watch:
    """The known state of a table's timeline in one process.

    ``since`` is a lower bound of the instants that other writers can still complete, "" before the
    first look.  ``properties`` are those of the last look.  ``pending`` has the times of all
    pending writes, also of ours, and ``requested`` those that are not in flight yet, with the time
    of their request in microseconds.
    """

    storage: Storage
    since: str = ""
    properties: Mapping[str, str] | None = None
    pending: tuple[str, ...] = ()
    requested: Mapping[str, int] = field(default_factory=dict)
    _begun: tuple[tuple[Instant, ObjectInfo], ...] = ()
    """Pending instants that may be those of another writer at work."""
    _stamps: tuple[Hashable, Hashable] | None = None
    _ours: set[str] = field(default_factory=set)
    """Paths of our own instants.  Paths before ``since`` are dropped when there are
    ``_ours_max``.
    """
    _ours_max: int = _OURS_MIN
    _print: tuple[str, int, int] | None = field(default=None)

    def look(self, layout: Layout) -> TimelineListing | None:
        """List ``.hoodie``, or return None if it has not changed since the last accepted look.

        Read the log afterwards, so that it has everything that our own writers completed before.  A
        caller that reads the log at the same time must use :meth:`is_ahead`.
        """
        stamps = self._stamped(layout)
        if stamps is not None and stamps == self._stamps:
            return None
        listed = self._listed(layout)
        instants = {
            instant: info
            for info in listed
            if (instant := layout.instant_at(info.path)) is not None
        }
        begun = frozenset(
            i for i, info in instants.items() if i.state != timeline.COMPLETED and info.size
        )
        print: tuple[str, int, int] | None = None
        for path in (BACKUP, paths.PROPERTIES):
            for info in listed:
                if info.path == path:
                    print = (path, info.size, info.modified_us)
        if print == self._print and self.storage.is_remote:
            return TimelineListing(stamps, self.properties, instants, begun, print)
        return TimelineListing(stamps, read_properties(self.storage), instants, begun, print)

    def is_ahead(self, listing: TimelineListing, snapshot: Snapshot) -> bool:
        """Return True if ``snapshot`` lacks a completed instant: of another writer, or newer than
        the log read.
        """
        return bool(_changes(listing.foreign_instants(snapshot)))

    def is_late(self, listing: TimelineListing, snapshot: Snapshot) -> bool:
        """Return True if Hudi's timeline has, or may have, a commit of ours whose record is not
        visible yet.
        """
        first = _first_commit(listing.foreign_instants(snapshot))
        if first is None:
            return False
        with suppress(Corrupt):  # :meth:`accept` raises it after its other checks
            seq = _seq_of(
                self.storage, layout_of(snapshot.definition), listing.instants[first].path
            )
            return seq is None or seq > snapshot.seq
        return False

    def has_seen(self, path: str) -> bool:
        """Return True if an instant of ours was listed at ``path``.  False proves nothing."""
        return path in self._ours

    def accept(self, listing: TimelineListing | None, snapshot: Snapshot) -> None:
        """Raise Unsupported if another Hudi writer has changed the table, else remember the look.

        ``snapshot`` is the newest, read after ``listing``.  Raises Corrupt if the properties are
        unreadable.
        """
        if listing is None:
            return
        layout = layout_of(snapshot.definition)
        if listing.properties is not None and not self._is_upgrading(listing, snapshot):
            refuse_version(listing.properties, layout)
        unknown = listing.foreign_instants(snapshot)
        first = _first_commit(unknown)
        if first is not None:
            _refuse_lost_records(self.storage, layout, first, listing.instants[first], snapshot)
        _refuse_instants(unknown)
        pending = [instant.time for instant in unknown if instant.action in COMMITS]
        seconds = FOREIGN_CLOCK_BEHIND_SECONDS
        if snapshot.is_shared:
            seconds = FOREIGN_ZONES_BEHIND_SECONDS
        newest = timeline.instant_us(snapshot.last_instant) - seconds * 1_000_000
        self.since = min([timeline.instant_text(newest), *pending])
        self._begun = tuple(
            (i, listing.instants[i]) for i in unknown if _may_be_at_work(i, listing.begun)
        )
        self.pending = tuple(pending)
        inflight = {i.time for i in listing.instants if i.state == timeline.INFLIGHT}
        self.requested = {
            instant.time: listing.instants[instant].modified_us
            for instant in unknown
            if instant.action in COMMITS and instant.time not in inflight
        }
        ours = listing.instants.keys() - set(unknown)
        self._ours.update(listing.instants[instant].path for instant in ours)
        if len(self._ours) >= self._ours_max:
            self._ours = {path for path in self._ours if path.rpartition("/")[2] > self.since}
            self._ours_max = max(_OURS_MIN, 2 * len(self._ours))
        self.properties, self._print, self._stamps = (
            listing.properties,
            listing.print,
            listing.stamps,
        )

    @property
    def at_work(self) -> tuple[Instant, ...]:
        """The instants that another Hudi writer has begun and not completed.

        Reads the first bytes of pending writes, to leave out those of mdt.
        """
        return tuple(sorted(i for i, info in self._begun if self._is_of_another(i, info)))

    def _is_of_another(self, instant: Instant, info: ObjectInfo) -> bool:
        if instant.action not in COMMITS:
            return True
        size = min(info.size, len(PROFILE_START))
        with suppress(Missing):  # the write has ended
            return self.storage.read(info.path, 0, size) != PROFILE_START[:size]
        return False

    def _is_upgrading(self, listing: TimelineListing, snapshot: Snapshot) -> bool:
        """Return True while the properties have the version from before an upgrade of ours.

        They also have it if a writer that had paused has put them back. Another writer that
        changes the version has instants on the old timeline.
        """
        upgraded_at, stored = snapshot.definition.upgraded_at, listing.properties or {}
        if not upgraded_at or stored.get(properties.VERSION) != "6":
            return False
        if self.storage.size(paths.pending(upgraded_at)) is not None:
            return True
        old = LAYOUTS[6]
        return not any(old.instant_at(info.path) for info in self.storage.list_dir(old.timeline))

    def has_planned_compaction(self, snapshot: Snapshot) -> bool:
        """Return True if another writer has planned a compaction and not completed it.

        It lists the directory if it has changed, and remembers nothing.
        """
        listing = self.look(layout_of(snapshot.definition))
        instants = [instant for instant, _ in self._begun]
        if listing is not None:
            instants = listing.foreign_instants(snapshot)
        times = {instant.time for instant in instants if instant.action == _COMPACTION}
        return not times <= {i.time for i in instants if i.state == timeline.COMPLETED}

    def refuse_to_write(self, *, is_locked: bool = False, has_metadata_table: bool = False) -> None:
        """Raise Unsupported for conditions that forbid writing but not reading.

        They are a Hudi metadata table, which would hide our commits, and a writer that is still at
        work. ``is_locked`` allows its writes, but not its services, because both sides hold a lock
        while they commit. ``has_metadata_table`` means that our commits keep Hudi's metadata table.
        """
        partitions = (self.properties or {}).get(properties.METADATA_PARTITIONS)
        if partitions and not has_metadata_table:
            raise Unsupported(
                "another writer keeps a Hudi metadata table here, which would hide our commits from"
                " readers",
                hint=(
                    "disable hoodie.metadata.enable in that writer and remove"
                    " hoodie.table.metadata.partitions"
                ),
            )
        at_work = [i for i in self.at_work if not (is_locked and i.action in _ROW_WRITES)]
        times = sorted({instant.time for instant in at_work})
        if times:
            hint = (
                "without a lock, only one kind of writer may write to a table at a time"
                " (mdt.lock.provider); reads work until that writer commits"
            )
            if is_locked:
                hint = "try again when its compaction, clustering or clean has ended"
            raise Unsupported(
                "another Hudi writer is running here, or has died: it has pending instants"
                f" {', '.join(times[:3])}",
                hint=hint,
            )

    def _listed(self, layout: Layout) -> list[ObjectInfo]:
        """Return the instants after ``since`` that are not known to be ours, and the properties.

        The layout decides if both are in one directory.
        """
        listed: list[ObjectInfo] = []
        for folder in dict.fromkeys((layout.timeline, HUDI)):
            after = f"{folder}/{self.since}" if self.since else ""
            listed += self.storage.list_dir(
                folder, after=after, before=f"{folder}/{_BEFORE}", skip=self._ours
            )
        return listed

    def _stamped(self, layout: Layout) -> tuple[Hashable, Hashable] | None:
        directory, file = (
            self.storage.stamp(layout.timeline),
            self.storage.stamp(paths.PROPERTIES),
        )
        return None if directory is None or file is None else (directory, file)


def watched_since(header: Mapping[str, Any]) -> str:
    """Return :attr:`Watch.since` in the header of a checkpoint, or "" if it is missing or
    malformed.
    """
    since = header.get("watched_since")
    return since if isinstance(since, str) and timeline.is_time(since) else ""


def read_properties(storage: Storage) -> dict[str, str] | None:
    """Return the content of ``hoodie.properties`` or of its backup, or None if both are missing.

    Raises Corrupt if it cannot be parsed.
    """
    for path in (paths.PROPERTIES, BACKUP):
        data = storage.read_if_exists(path)
        if data is not None:
            try:
                return properties.decode(data)
            except Corrupt as error:
                raise Corrupt(error.message, path=path, hint=_MEND_PROPERTIES) from error
    return None


def refuse_version(stored: Mapping[str, str], layout: Layout) -> None:
    """Raise Corrupt for unusable properties, and Unsupported for another table version.

    Properties without a version are empty, truncated or another text: the version is at their end.
    """
    if properties.VERSION not in stored and properties.LAYOUT not in stored:
        raise Corrupt(
            "the table properties cannot be read: the file is empty, truncated or another text",
            path=paths.PROPERTIES,
            hint=_MEND_PROPERTIES,
        )
    version = stored.get(properties.VERSION, "")
    if version not in map(str, layout.versions):
        raise Unsupported(
            f"hoodie.properties has table version {version or '(none)'}: another Hudi writer has"
            f" changed it from version {layout.version}, and mdt does not know its commits",
            hint=(
                f"{_TAKE_ROWS_ALONG}; to prevent this, set"
                f" hoodie.write.table.version={layout.version} in other writers"
            ),
        ).of_others()


def _first_commit(instants: Iterable[Instant]) -> Instant | None:
    """Return the first completed commit of these instants, or None."""
    return min(
        (i for i in instants if i.state == timeline.COMPLETED and i.action in COMMITS), default=None
    )


def _seq_of(storage: Storage, layout: Layout, path: str) -> int | None:
    """Return the seq of a completed commit of ours, -1 for a commit of another writer.

    None if the listed instant cannot be read yet.
    """
    data = storage.read_if_exists(path)
    if data is None:
        return None
    try:
        seq = layout.extra(data).get("mdt.seq", "")
    except Corrupt as error:
        raise Corrupt(error.message, path=path, offset=0) from error
    return int(seq[:18]) if seq.isascii() and seq.isdigit() else -1


def _refuse_lost_records(
    storage: Storage, layout: Layout, first: Instant, info: ObjectInfo, snapshot: Snapshot
) -> None:
    """Raise Missing if ``first``, the first commit that the log lacks, is ours.

    The instant of our commits has the seq of the record.  Raises Unavailable instead while the
    instant is younger than LATE_SECONDS_MAX, or if it cannot be read: the record may appear yet.
    """
    seq = _seq_of(storage, layout, info.path)
    is_young = storage.now_us() - info.modified_us < LATE_SECONDS_MAX * 1_000_000
    if seq is None or (seq > snapshot.seq and is_young):
        raise Unavailable(
            f"the commit at {first.time} is on Hudi's timeline, but storage does not show its"
            f" record {paths.commit(snapshot.seq + 1)} yet",
            hint=(
                "try again in a few seconds: network file systems show files of other machines"
                " with a delay"
            ),
        )
    if seq > snapshot.seq:
        raise Missing(
            f"a commit record is missing: Hudi's timeline has commit {seq} at {first.time}",
            path=paths.commit(snapshot.seq + 1),
            hint=(
                "restore the missing objects of .hoodie/.mdt/log from a backup; Hudi's readers"
                " still see all rows"
            ),
        )


def _changes(instants: Iterable[Instant]) -> list[Instant]:
    """Return the instants that have changed rows or deleted files.  None of them is in the log."""
    return [
        instant
        for instant in instants
        if instant.state == timeline.COMPLETED and instant.action not in _DATA_STAYS
    ]


def _may_be_at_work(instant: Instant, begun: Container[Instant]) -> bool:
    """Return True for a pending instant that may move or delete files, if it is another writer's.

    Pending writes with an empty file are left out, as a writer of ours may have begun them.
    """
    if instant.state == timeline.COMPLETED or instant.action in _DATA_STAYS:
        return False
    if instant.action in COMMITS:
        return instant in begun
    return True


def _refuse_instants(instants: list[Instant]) -> None:
    """Raise Unsupported if any of these instants of other writers changed rows or deleted files."""
    changes = _changes(instants)
    if changes:
        first = min(changes)
        raise Unsupported(
            f"another Hudi writer has completed {first.action} {first.time} here, and the log does"
            " not contain it yet",
            hint="t.refresh() imports it, and so does the next write",
        ).of_others()
