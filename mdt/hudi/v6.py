"""Table version 6, which Hudi 0.14 to 1.x, hudi-rs and Trino read. Other versions derive from it
(:data:`mdt.hudi.layout.Layout`).

The payload class determines how rows are merged, regardless of other settings, so it is always
written. Readers hide the log files of a file group while a ``compaction`` is pending. Therefore a
compaction is announced as a ``commit``, which it becomes when it completes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from mdt.errors import Invalid
from mdt.hudi import avro_bodies, avro_schema, commit_metadata, properties
from mdt.hudi.file_names import HUDI, LOG
from mdt.hudi.timeline import (
    ACTIONS,
    COMPLETED,
    INFLIGHT,
    REQUESTED,
    Archive,
    Instant,
    InstantContent,
)
from mdt.schema.names import avro_name
from mdt.schema.time_paths import TEXT, UNITS, TimePath

if TYPE_CHECKING:
    from mdt.hudi.commit_metadata import Cleaned, CommitMetadata
    from mdt.schema.definition import TableDefinition

EVENT_TIME_PAYLOAD = "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
COMMIT_TIME_PAYLOAD = "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"
DATABASE = "default"
NAME_BYTES_MAX = 255

_SERVICES = ("compaction", "replacecommit")
_COMPACTED = "commit"
"""Action of a completed compaction."""

_NAME = re.compile(r"([0-9]{17}|[0-9]{14})\.([a-z]+)(?:\.(requested|inflight))?")


class Version6:
    """The layout of table version 6, and what a layout of another version may override. Paths are
    relative to the table. All names of instants come from :meth:`path_of`.

    In all methods, ``time`` is the time of an instant, 17 digits, and ``completion`` the time of
    its completion, which version 6 ignores. ``action`` is Hudi's name of the pending action:
    commit, deltacommit, compaction or replacecommit.

    Attributes:
        version: Value of ``hoodie.table.version``.
        versions: Values of it with which writers of this layout go on. Hudi 1.1 and newer upgrade
            version 8 with their first write, and change no instant and no data.
        has_completions: True if the names of completed instants have completion times.
        has_positions: True if all readers accept positions of replaced rows in log blocks.
        archive: Directory of Hudi's archive of instants.
        archived_actions: Actions of the completed instants that the archive gets.
        decisive: Properties that determine how the files of a table are read. They never change.
        timeline: Directory of the instants. Names of instants begin with their time, so a listing
            is in order. Other names in that directory begin with a letter or a dot.
    """

    version = 6
    versions: Sequence[int] = (6,)
    has_completions = False
    has_positions = False
    timeline = HUDI
    archive = f"{HUDI}/archived"
    archived_actions: AbstractSet[str] = frozenset(("commit", "deltacommit", "replacecommit"))
    decisive: Sequence[str] = properties.DECISIVE

    def path_of(self, instant: Instant) -> str:
        """Return the path of an instant's file.

        An inflight ``commit`` has the short form ``<time>.inflight``.

        >>> Version6().path_of(Instant("20240229120000123", "compaction", "requested"))
        '.hoodie/20240229120000123.compaction.requested'
        """
        if instant.state == COMPLETED:
            return f"{self.timeline}/{instant.time}.{instant.action}"
        if (instant.action, instant.state) == ("commit", INFLIGHT):
            return f"{self.timeline}/{instant.time}.inflight"
        return f"{self.timeline}/{instant.time}.{instant.action}.{instant.state}"

    def instant_at(self, path: str) -> Instant | None:
        """Return the instant of the file at ``path``, or None. Accepts any path.

        >>> Version6().instant_at(".hoodie/20240229120000123.inflight").action
        'commit'
        >>> print(Version6().instant_at(".hoodie/hoodie.properties"))
        None
        """
        folder, _, name = path.rpartition("/")
        match = _NAME.fullmatch(name)
        if match is None or folder != self.timeline:
            return None
        time, action, state = match.groups()
        if action == INFLIGHT and state is None:
            return Instant(time, "commit", INFLIGHT)
        if action not in ACTIONS or (action, state) == ("commit", INFLIGHT):
            return None
        return Instant(time, action, state or COMPLETED)

    def completed_path(self, time: str, completion: str, action: str) -> str:
        """Return the path of the file whose creation completes an action. A compaction completes as
        a commit.

        ``completion`` is "" for commits from before an upgrade.
        """
        action = _COMPACTED if action == "compaction" else action
        return self.path_of(Instant(time, action, COMPLETED, completion))

    def log_instant(self, base_instant: str, time: str) -> str:
        """Return the instant in the name of a log file: the base file's instant or its own,
        ``time``.
        """
        return base_instant

    def log_version(self, last: int) -> int:
        """Return the number in the name of a log file, after the largest one in its slice, 0 if
        it is the first.
        """
        return last + 1

    def marker(self, path: str) -> str:
        """Return the name of the marker for the data file at ``path``, relative to the
        transaction's marker directory.

        Log files have a marker type of their own, because other writers cancel their blocks instead
        of deleting them.

        >>> Version6().marker("city=x/.6f2c-0_20240229120000123.log.2_3-77-0")
        'city=x/.6f2c-0_20240229120000123.log.2_3-77-0.marker.APPEND'
        """
        is_log = LOG.fullmatch(path.rpartition("/")[2]) is not None
        if is_log:
            return f"{path}.marker.APPEND"
        return f"{path}.marker.CREATE"

    def properties(self, definition: TableDefinition) -> dict[str, str]:
        """Return the content of ``hoodie.properties`` of a new table, including the checksum.

        Raises Invalid for an empty, overlong or unprintable name.
        """
        name = definition.name
        is_text = name.isprintable() and name and name == name.strip()
        if not is_text or len(name.encode()) > NAME_BYTES_MAX:
            raise Invalid(
                f"{name!r} cannot name a table",
                hint=f"use 1 to {NAME_BYTES_MAX} bytes of printable text",
            )
        key, partition_by, ordering = (
            list(map(avro_name, columns))
            for columns in (definition.key, definition.partition_by, definition.ordering)
        )
        entries = {
            "hoodie.archivelog.folder": "archived",
            "hoodie.compaction.payload.class": (
                EVENT_TIME_PAYLOAD if ordering else COMMIT_TIME_PAYLOAD
            ),
            properties.DATABASE: DATABASE,
            "hoodie.datasource.write.drop.partition.columns": "false",
            "hoodie.datasource.write.hive_style_partitioning": str(definition.hive_style).lower(),
            properties.ENCODES_PATHS: "true",
            "hoodie.populate.meta.fields": "true",
            "hoodie.table.base.file.format": "PARQUET",
            properties.CHECKSUM: properties.checksum(DATABASE, name),
            "hoodie.table.create.schema": avro_schema.to_avro(definition.schema, name),
            "hoodie.table.keygenerator.class": key_generator(
                key, partition_by, names_key=definition.names_key
            ),
            properties.NAME: name,
            "hoodie.table.recordkey.fields": ",".join(key),
            properties.TIME_ZONE: "UTC",
            properties.TYPE: definition.table_type,
            properties.VERSION: "6",
            properties.LAYOUT: "1",
        }
        if partition_by:
            entries["hoodie.table.partition.fields"] = ",".join(partition_by)
        if ordering:
            entries["hoodie.table.precombine.field"] = ",".join(ordering)
        if definition.time_path is not None:
            entries |= time_based(definition.time_path)
        return entries

    def completed_body(self, time: str, metadata: CommitMetadata) -> bytes:
        """Return the JSON content of a completed instant."""
        return commit_metadata.encode_commit(metadata)

    def upgraded(self, instant: Instant, body: bytes) -> tuple[str, bytes]:
        """Return (path, content) of an instant of version 6 after an upgrade to this version.

        Raises Corrupt if the content cannot be read.
        """
        return self.path_of(instant), body

    def upgraded_properties(
        self, stored: Mapping[str, str], definition: TableDefinition
    ) -> dict[str, str]:
        """Return the properties of a table of version 6 after an upgrade to this version."""
        return dict(stored)

    def planned_action(self, action: str, operation: str) -> str:
        """Return the action of the pending instants that have the plan of a service.

        Args:
            operation: Hudi's operation type.
        """
        return action

    def extra(self, body: bytes) -> Mapping[str, str]:
        """Return the private entries of any writer's completed instant. Raises Corrupt for invalid
        bytes.
        """
        return commit_metadata.decode_extra(body)

    def announced(
        self, time: str, action: str, profile: bytes = b""
    ) -> Sequence[tuple[str, bytes]]:
        """Return (path, content) of the files to write when a transaction begins, in any order: the
        requested and the inflight instant, or none for a cleaning.

        Args:
            profile: Content of the inflight instant, see
                :func:`mdt.hudi.commit_metadata.encode_profile`.
        """
        if action == "clean":
            return ()
        inflight, requested = self.retracted(time, action)
        return [(requested, b""), (inflight, profile)]

    def retracted(self, time: str, action: str) -> Sequence[str]:
        """Return the paths to delete, in this order, if a transaction will not commit: those of
        both pending instants.
        """
        action = _COMPACTED if action == "compaction" else action
        return [self.path_of(Instant(time, action, state)) for state in (INFLIGHT, REQUESTED)]

    def completed(
        self,
        time: str,
        completion: str,
        action: str,
        metadata: CommitMetadata,
        plan: Sequence[Mapping[str, Any]],
    ) -> Sequence[tuple[str, bytes]]:
        """Return (path, content) of the files to write after a commit, in this order: the completed
        instant, followed by a service's pending instants, which Java readers need.

        The first one is at :meth:`completed_path` and makes the commit visible.

        Args:
            metadata: The metadata of the commit. For log files they contain the slice's base file
                and all its log files so far.
            plan: The plan of a compaction or clustering, see :mod:`mdt.hudi.compaction_plan` and
                :mod:`mdt.hudi.clustering_plan`.
        """
        instant = (
            self.completed_path(time, completion, action),
            self.completed_body(time, metadata),
        )
        if action not in _SERVICES:
            return [instant]
        if action == "compaction":
            requested = avro_bodies.compaction_plan.encode(plan)
        else:
            requested = avro_bodies.clustering_plan.encode(plan, metadata.operation)
        action = self.planned_action(action, metadata.operation)
        return [
            instant,
            (self.path_of(Instant(time, action, REQUESTED)), requested),
            (self.path_of(Instant(time, action, INFLIGHT)), b""),
        ]

    def superseded(self, time: str, action: str, operation: str) -> Sequence[str]:
        """Return the paths to delete when a commit is complete, before the second and later files
        of :meth:`completed`: pending instants that are not those of a service. None in version 6,
        because Hudi's archiving removes all pending instants of a commit.

        Args:
            operation: Hudi's operation type.
        """
        return ()

    def archived(
        self,
        existing: Sequence[str],
        read: Callable[[str], bytes],
        instants: Sequence[InstantContent],
    ) -> Archive:
        """Return the objects that add instants to Hudi's archive: a log file with one Avro block.

        Args:
            existing: Paths of the objects in the folder ``archive``.
            read: Returns the content of such an object.
            instants: Completed instants with ``archived_actions``, oldest first.

        Raises Corrupt if an instant or an object of the archive cannot be read.
        """
        archive = avro_bodies.archived_timeline
        return Archive((), (archive.next_path(existing), archive.encode(instants)))

    def archive_pointer(self, existing: Sequence[str]) -> tuple[str, bytes] | None:
        """Return (path, content) of the object that names the newest part of Hudi's archive, which
        is replaced when there is a new part. None in version 6, where all files of the archive are
        valid.

        Args:
            existing: As in :meth:`archived`.
        """
        return None

    def cleaned(self, cleaning: Cleaned) -> Sequence[tuple[str, bytes]]:
        """Return (path, content) of the files to write after the commit of a cleaning, in this
        order: the completed instant, which makes the cleaning visible, followed by the pending
        instants with the plan, for Java readers.
        """
        plan = avro_bodies.clean_metadata.encode_plan(cleaning)
        metadata = avro_bodies.clean_metadata.encode_metadata(cleaning)
        return [
            (self.completed_path(cleaning.time, cleaning.completion, "clean"), metadata),
            (self.path_of(Instant(cleaning.time, "clean", REQUESTED)), plan),
            (self.path_of(Instant(cleaning.time, "clean", INFLIGHT)), plan),
        ]

    def savepoint(
        self,
        time: str,
        completion: str,
        at_ms: int,
        comment: str,
        files: Mapping[str, Sequence[str]],
    ) -> Sequence[tuple[str, bytes]]:
        """Return (path, content) of a savepoint on the commit ``time``, in the order of writing:
        the inflight and the completed instant, next to those of the commit.

        A savepoint protects the snapshot from Hudi's services.

        Args:
            at_ms: Creation time in milliseconds since 1970.
            files: Partition path -> names of the snapshot's data files.
        """
        content = avro_bodies.savepoint_metadata.encode("mdt", at_ms, comment, files)
        inflight = Instant(time, "savepoint", INFLIGHT)
        completed = Instant(time, "savepoint", COMPLETED, completion)
        return [(self.path_of(inflight), b""), (self.path_of(completed), content)]

    def restored(self, time: str, completion: str, to: str) -> Sequence[tuple[str, bytes]]:
        """Return (path, content) of the files written next to the commit ``time`` of a restore, in
        order: the requested instant with the plan, the inflight and the completed instant. They
        have the time of the commit.

        Args:
            to: Instant of the restored snapshot.
        """
        bodies = avro_bodies.restore_metadata
        plan, metadata = bodies.encode_plan(to), bodies.encode_metadata(time)
        return self._planned(time, completion, "restore", plan, metadata)

    def indexing(
        self, time: str, completion: str, specs: Sequence[str]
    ) -> Sequence[tuple[str, bytes]]:
        """Return (path, content) of the instants of an index build: the requested instant with the
        plan, the inflight and the completed instant.
        """
        plan = avro_bodies.index_plan.encode_plan(specs, time)
        metadata = avro_bodies.index_plan.encode_metadata(specs, time)
        return self._planned(time, completion, "indexing", plan, metadata)

    def _planned(
        self, time: str, completion: str, action: str, plan: bytes, metadata: bytes
    ) -> Sequence[tuple[str, bytes]]:
        """Return the three instants of an action: requested with its plan, inflight, and
        completed.
        """
        contents = ((REQUESTED, plan), (INFLIGHT, b""), (COMPLETED, metadata))
        return [
            (self.path_of(Instant(time, action, state, completion)), body)
            for state, body in contents
        ]


def time_based(time_path: TimePath) -> dict[str, str]:
    """Return the properties that make Hudi derive the same partition paths from a time.

    Slashes in these paths are not escaped.
    """
    entries = {
        "hoodie.table.keygenerator.class": "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
        "hoodie.keygen.timebased.timestamp.type": UNITS[time_path.unit],
        "hoodie.keygen.timebased.output.dateformat": time_path.pattern,
        properties.ENCODES_PATHS: "false",
    }
    if time_path.zone:
        entries["hoodie.keygen.timebased.timezone"] = time_path.zone
    if time_path.input:
        entries["hoodie.keygen.timebased.timestamp.type"] = TEXT
        entries["hoodie.keygen.timebased.input.dateformat"] = time_path.input
    return entries


def key_generator(
    key_fields: Sequence[str], partition_fields: Sequence[str], *, names_key: bool = False
) -> str:
    """Return Hudi's key generator class for our record keys and partition paths.

    One key field with two or more partition fields needs the complex generator. Its record key is
    ``value`` in Hudi 0.14.1 to 1.0.2, and ``field:value`` in other releases, unless their writers
    set ``hoodie.write.complex.keygen.new.encoding=true``.

    Args:
        names_key: True if the record key of a single field has its name.

    >>> key_generator(["id"], ["city"])
    'org.apache.hudi.keygen.SimpleKeyGenerator'
    >>> key_generator(["id", "n"], ["city"])
    'org.apache.hudi.keygen.ComplexKeyGenerator'
    """
    if names_key:
        kind = "Complex"
    elif not partition_fields:
        kind = "Nonpartitioned"
    else:
        kind = "Simple" if len(key_fields) == 1 and len(partition_fields) == 1 else "Complex"
    return f"org.apache.hudi.keygen.{kind}KeyGenerator"
