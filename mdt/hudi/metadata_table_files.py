"""The files of Hudi's metadata table, which :mod:`mdt.commit.hudi_metadata` puts.

The metadata table is a merge-on-read table of HFiles in ``.hoodie/metadata``. Its partition
``files`` has a record for each partition of the data table, with the names and sizes of its files,
and one with the names of all partitions. :mod:`mdt.hudi.column_stats_records` has those of
``column_stats``, and :mod:`mdt.hudi.record_index_records` those of ``record_index``. Each partition
has a single file group, but a record index of each partition has one for each partition of the
table. A deltacommit with the instant of a commit adds a log file with the changed records to each
file group that changes, and base files of new ones. All bytes depend on the arguments only.

Instants and the names of log files depend on the table version: see :class:`Layout1`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Corrupt, Unsupported
from mdt.hudi import (
    avro_bodies,
    column_stats_records,
    commit_metadata,
    hfile_writing,
    log_file,
    properties,
    timeline,
)
from mdt.hudi.avro import NAMESPACE, field, mapping, optional, record
from mdt.hudi.commit_metadata import NO_PREVIOUS, CommitMetadata
from mdt.hudi.file_names import ANY_LOG, parse_log
from mdt.hudi.layout import LAYOUTS as TABLE_LAYOUTS
from mdt.hudi.metadata_record_schema import (
    BLOOM,
    FILE,
    LOCATION,
    SECONDARY,
    TABLE_SCHEMA,
    TEXT,
)
from mdt.hudi.partitions import escape
from mdt.hudi.read.hfile_format import ENTRIES
from mdt.hudi.read.metadata_state import FOLDER
from mdt.hudi.read.untrusted_avro import write_values
from mdt.hudi.timeline import COMPLETED, INFLIGHT, REQUESTED, Instant

FILES, COLUMN_STATS, RECORD_INDEX = "files", "column_stats", "record_index"
PARTITION_STATS, BLOOM_FILTERS = "partition_stats", "bloom_filters"
"""Partitions of the metadata table."""
_INITIAL = "0" * 14
"""First digits of the instant that initializes an empty table, which readers expect."""
_INITIALIZED, _INITIALIZED_END = 10, 1000
"""Numbers of three digits at the end of the instant of an initialization in version 6."""

_ESCAPED_BYTES_MAX = 160
"""Length of an escaped path of a partition in names of files, which have at most 255 bytes."""
_PLAIN_BYTES_MAX = 1 << 16
"""Size of entries up to which those of a log file are not compressed."""
_PARTITIONS = "__all_partitions__"
_NO_PARTITION = "."
_TYPE_PARTITIONS, _TYPE_FILES = 1, 2
_INITIAL_CREATED_MS = 0

_NAMES = {**mapping(FILE), "avro.java.string": "String"}


def _schema(*fields: Mapping[str, Any]) -> str:
    """Return an Avro schema of records. Hudi fills in the fields of other partitions."""
    head = field("key", TEXT), field("type", "int"), optional("filesystemMetadata", _NAMES)
    schema = record("HoodieMetadataRecord", *head, *fields, namespace=NAMESPACE)
    return json.dumps(schema, separators=(",", ":"))


SCHEMA = _schema()
"""Avro schema of the records of ``files``."""
STATS_SCHEMA = _schema(column_stats_records.FIELD)
"""Avro schema of the records of ``column_stats``."""
INDEX_SCHEMA = _schema(LOCATION)
"""Avro schema of the records of ``record_index``."""
BLOOM_SCHEMA = _schema(BLOOM)
"""Avro schema of the records of ``bloom_filters``."""
SECONDARY_SCHEMA = _schema(SECONDARY)
"""Avro schema of the records of ``secondary_index_<name>``."""

Names = Mapping[str, int | None]
"""Name of a file -> its size in bytes, or None if it is deleted."""
Listing = Mapping[str, Names]
"""Path of a partition -> its names."""


class Layout1:
    """What depends on the table version: the metadata table of a table of version 6.

    Attributes:
        table: Layout of the data table.
    """

    table = TABLE_LAYOUTS[6]

    _NAME = re.compile(r"([0-9]{17}|[0-9]{20})\.([a-z]+)(?:\.(requested|inflight))?")

    @property
    def timeline(self) -> str:
        """Directory of the instants."""
        return f"{FOLDER}/{self.table.timeline}"

    def path_of(self, instant: Instant) -> str:
        """Return the path of an instant.

        >>> Layout1().path_of(Instant("20240229120000123", "deltacommit", "completed"))
        '.hoodie/metadata/.hoodie/20240229120000123.deltacommit'
        """
        return f"{FOLDER}/{self.table.path_of(instant)}"

    def instant_at(self, path: str) -> Instant | None:
        """Return the instant of the file at ``path``, or None.

        >>> Layout1().instant_at(".hoodie/metadata/.hoodie/20240229120000123001.commit").time
        '20240229120000123001'
        """
        match = self._NAME.fullmatch(path.rpartition("/")[2])
        if match is None or match[2] not in timeline.ACTIONS:
            return None
        return Instant(match[1], match[2], match[3] or COMPLETED)

    def initialization(self, newest: str, seq: int, completion: str) -> Instant:
        """Return the completed instant at which the commits before record ``seq`` initialize the
        metadata table. It differs for each record.

        Args:
            newest: The largest instant of these commits, or "" if there are none.
            completion: Completion of the record.

        >>> Layout1().initialization("20240229120000123", 7, "").time
        '20240229120000123017'
        """
        number = _INITIALIZED + seq % (_INITIALIZED_END - _INITIALIZED)
        time = f"{newest[: timeline.INSTANT_DIGITS] or _INITIAL}{number:03}"
        return Instant(time, "deltacommit", COMPLETED)

    def is_initial(self, instant: Instant) -> bool:
        """Return True for the completed instant of an initialization."""
        if instant.state != COMPLETED or instant.action != "deltacommit":
            return False
        return len(instant.time) > timeline.INSTANT_DIGITS or instant.time.startswith(_INITIAL)

    def compaction(self, newest: Instant) -> Instant:
        """Return the completed instant of the compaction after the newest deltacommit."""
        return Instant(f"{newest.time[: timeline.INSTANT_DIGITS]}001", "commit", COMPLETED)

    def base_of(self, log_instant: str, completion: str | None, bases: Iterable[str]) -> str:
        """Return the instant of the base file to which a log file belongs, which may be missing.

        Args:
            log_instant: The instant in the name of the log file.
            completion: When it was completed, None if it is pending.
            bases: Instants of the base files.
        """
        return log_instant

    def properties(self, table: str) -> dict[str, str]:
        """Return ``hoodie.properties`` of the metadata table of the table with the name
        ``table``.
        """
        name = f"{table}_metadata"
        return {
            properties.NAME: name,
            properties.TYPE: "MERGE_ON_READ",
            properties.VERSION: str(self.table.version),
            properties.LAYOUT: "1",
            properties.CHECKSUM: properties.checksum("", name),
            "hoodie.archivelog.folder": "archived",
            "hoodie.compaction.payload.class": "org.apache.hudi.metadata.HoodieMetadataPayload",
            "hoodie.datasource.write.drop.partition.columns": "false",
            "hoodie.populate.meta.fields": "false",
            "hoodie.record.merge.strategy.id": "00000000-0000-0000-0000-000000000000",
            "hoodie.table.base.file.format": "HFILE",
            "hoodie.table.keygenerator.type": "HOODIE_TABLE_METADATA",
            "hoodie.table.recordkey.fields": "key",
        }


class Layout2(Layout1):
    """The metadata table of a table of version 9.

    A deltacommit has the completion time of its data commit. Other readers accept 17 digits only,
    so a compaction has the millisecond after the newest completion.
    """

    table = TABLE_LAYOUTS[9]

    def instant_at(self, path: str) -> Instant | None:
        """Return the instant of the file at ``path``, or None.

        >>> name = "20240229120000123_20240229120000456.deltacommit"
        >>> Layout2().instant_at(f".hoodie/metadata/.hoodie/timeline/{name}").completion
        '20240229120000456'
        """
        return self.table.instant_at(path.removeprefix(f"{FOLDER}/"))

    def initialization(self, newest: str, seq: int, completion: str) -> Instant:
        """Return the completed instant, which is not older than earlier commits of the table."""
        time = f"{_INITIAL}{seq % _INITIALIZED_END:03}"
        return Instant(time, "deltacommit", COMPLETED, shifted(completion, -1))

    def compaction(self, newest: Instant) -> Instant:
        """Return the completed instant. It may have the time of a later deltacommit."""
        time = shifted(newest.completion, 1)
        return Instant(time, "commit", COMPLETED, time)

    def base_of(self, log_instant: str, completion: str | None, bases: Iterable[str]) -> str:
        """Return the newest instant that is not after the completion, "" if there is none."""
        return max((base for base in bases if base <= (completion or "")), default="")

    def properties(self, table: str) -> dict[str, str]:
        """Return ``hoodie.properties`` of the metadata table."""
        return super().properties(table) | {
            properties.LAYOUT: "2",
            "hoodie.archivelog.folder": "history",
            "hoodie.record.merge.mode": "CUSTOM",
            "hoodie.table.initial.version": str(self.table.version),
            "hoodie.timeline.history.path": "history",
            "hoodie.timeline.path": "timeline",
        }


def shifted(time: str, ms: int) -> str:
    """Return an instant some milliseconds later."""
    return timeline.instant_text(timeline.instant_us(time) + 1000 * ms)


LAYOUTS: Mapping[int, Layout1] = {6: Layout1(), 9: Layout2()}
"""Version of a table -> layout of its metadata table."""


@dataclass(frozen=True, slots=True)
class Group:
    """A file group of a partition.

    Attributes:
        partition: The partition.
        file_id: Name of the file group.
        schema: Avro schema of the records.
    """

    partition: str
    file_id: str
    schema: str

    def path(self, name: str) -> str:
        """Return the path of a file."""
        return f"{FOLDER}/{self.partition}/{name}"

    def base_name(self, instant: str, seq: int) -> str:
        """Return the name of the base file with the commits before record ``seq``.

        >>> GROUPS[FILES].base_name("00000000000000010", 1)
        'files-0000-0_0-1-0_00000000000000010.hfile'
        """
        return f"{self.file_id}_0-{seq}-0_{instant}.hfile"

    def log_name(self, instant: str, version: int, seq: int) -> str:
        """Return the name of the log file of commit record ``seq``.

        Args:
            instant: See :meth:`mdt.hudi.layout.Layout.log_instant`.

        >>> GROUPS[FILES].log_name("00000000000000010", 2, 7)
        '.files-0000-0_00000000000000010.log.2_0-7-0'
        """
        return f".{self.file_id}_{instant}.log.{version}_0-{seq}-0"

    def base_file(self, entries: pa.RecordBatch, instant: str) -> bytes:
        """Return a base file with sorted entries."""
        created_ms = _created_ms(instant)
        return hfile_writing.encode(
            entries, schema=self.schema, created_ms=created_ms, is_compressed=True
        )

    def log_file(self, entries: pa.RecordBatch, instant: str) -> bytes:
        """Return a log file with sorted entries. Those without a value delete their keys."""
        blocks, is_kept = [], entries["value"].is_valid()
        kept, deleted = entries.filter(is_kept), entries["key"].filter(pc.invert(is_kept))
        if len(kept) or not len(deleted):
            created_ms = _created_ms(instant)
            content = hfile_writing.encode(
                kept,
                schema=self.schema,
                created_ms=created_ms,
                is_compressed=kept.nbytes > _PLAIN_BYTES_MAX,
            )
            blocks.append(log_file.hfile_block(content, instant=instant, avro_schema=self.schema))
        if len(deleted):
            blocks.append(
                log_file.delete_block(
                    deleted.cast(pa.large_string()),
                    self.partition,
                    instant=instant,
                    avro_schema=self.schema,
                    positions=None,
                    base_instant=None,
                )
            )
        return b"".join(blocks)


GROUPS = {
    FILES: Group(FILES, "files-0000-0", SCHEMA),
    COLUMN_STATS: Group(COLUMN_STATS, "col-stats-0000-0", STATS_SCHEMA),
    PARTITION_STATS: Group(PARTITION_STATS, "partition-stats-0000-0", STATS_SCHEMA),
    RECORD_INDEX: Group(RECORD_INDEX, "record-index-0000-0", INDEX_SCHEMA),
    BLOOM_FILTERS: Group(BLOOM_FILTERS, "bloom-filters-0000-0", BLOOM_SCHEMA),
}
"""Partition -> its file group."""


def group_of(partition: str) -> Group:
    """Return the only file group of a partition that our commits keep.

    >>> group_of("secondary_index_city_name").file_id
    'secondary-index-city-name-0000-0'
    """
    if partition in GROUPS:
        return GROUPS[partition]
    return Group(partition, f"{partition.replace('_', '-')}-0000-0", SECONDARY_SCHEMA)


def index_group(partition: str) -> Group:
    """Return the first file group of a partition of the table in a partitioned record index. The
    parts of its name are separated by ``-``, and the parts of file names by ``_``.

    Raises Unsupported for a path that is too long.

    >>> index_group("day=2024-01-15").file_id
    'record-index-day%3D2024%2D01%2D15-0000-0'
    """
    path = escape(partition).replace("-", "%2D").replace("_", "%5F")
    if len(path.encode()) > _ESCAPED_BYTES_MAX:
        raise Unsupported(f"the path {partition[:100]!r}... is too long for names of files")
    return Group(RECORD_INDEX, f"record-index-{path}-0000-0", INDEX_SCHEMA)


@dataclass(frozen=True, slots=True)
class Slice:
    """The newest slice of a file group.

    Attributes:
        group: The file group.
        base_instant: Instant of its base file.
        base_name: Name of its base file.
        log_names: Names of its log files, oldest first.
    """

    group: Group
    base_instant: str
    base_name: str
    log_names: tuple[str, ...]

    def log_paths(self) -> list[str]:
        """Return the paths of its log files, oldest first."""
        return [self.group.path(name) for name in self.log_names]


def next_log_file(layout: Layout1, slice_: Slice, token: int, instant: str) -> tuple[Slice, str]:
    """Return a slice without a log file with ``token``, and the name of that log file.

    Args:
        token: Seq of the commit record, or the token of its writer.
        instant: Instant of the commit.

    Raises Corrupt if a log file has too large a number.
    """
    logs = {name: parse_log(name, ANY_LOG) for name in slice_.log_names}
    others = {name: log for name, log in logs.items() if log and log.token != f"0-{token}-0"}
    version = layout.table.log_version(max((log.version for log in others.values()), default=0))
    log_instant = layout.table.log_instant(slice_.base_instant, instant)
    name = slice_.group.log_name(log_instant, version, token)
    if parse_log(name, ANY_LOG) is None:
        raise Corrupt(f"the log file {name} has too large a number", path=FOLDER)
    return replace(slice_, log_names=tuple(others)), name


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file of the metadata table that a write adds.

    Attributes:
        name: Its name.
        size: Its size in bytes.
        count: Number of its records.
    """

    name: str
    size: int
    count: int


def records(
    changes: Listing, partitions: Iterable[str] | None, schema: str = SCHEMA
) -> pa.RecordBatch:
    """Return the entries for changed names, sorted by key.

    Args:
        partitions: Paths of partitions, with those that may be new. A base file needs all. None
            for a log file without new ones.
        schema: Avro schema of the records, which may be that of another writer.

    Raises Corrupt for a schema without the fields of a record.
    """
    rows: dict[str, tuple[int, Names]] = {}
    for path, names in changes.items():
        rows[path or _NO_PARTITION] = (_TYPE_FILES, names)
    if partitions is not None:
        paths = {path or _NO_PARTITION: 0 for path in partitions}
        rows[_PARTITIONS] = (_TYPE_PARTITIONS, paths)
    ordered = sorted(rows, key=str.encode)
    values = write_values((_record(*rows[key]) for key in ordered), schema, f"{FOLDER}/{FILES}")
    columns = [key.encode() for key in ordered], values
    return pa.record_batch([pa.array(c, pa.large_binary()) for c in columns], schema=ENTRIES)


def _record(kind: int, names: Names) -> dict[str, Any]:
    """Return a record. The key in it is empty, because the entry has the key."""
    infos = {
        name: {"size": names[name] or 0, "isDeleted": names[name] is None} for name in sorted(names)
    }
    return {"key": "", "type": kind, "filesystemMetadata": infos}


def _created_ms(instant: str) -> int:
    if instant.startswith(_INITIAL):
        return _INITIAL_CREATED_MS
    return timeline.instant_us(instant[: timeline.INSTANT_DIGITS]) // 1000


def initial_instants(
    layout: Layout1, completed: Instant, files: Sequence[tuple[Group, NewFile]]
) -> list[tuple[str, bytes]]:
    """Return (path, content) of the instants that initialize all partitions, the completed one
    last.

    Args:
        file: Its base file.
    """
    written = [_written(group, file, NO_PREVIOUS) for group, file in files]
    return _delta_instants(layout, completed, written, "BULK_INSERT")


def delta_instants(
    layout: Layout1,
    completed: Instant,
    files: Sequence[tuple[Slice, NewFile]],
    new: Sequence[tuple[Group, NewFile]] = (),
) -> list[tuple[str, bytes]]:
    """Return (path, content) of the instants of a deltacommit, the completed one last.

    Args:
        files: Slices without its log files, and the log files.
        new: File groups that it adds, and their base files.
    """
    written = [
        _written(slice_.group, file, slice_.base_instant)
        | {
            "log_version": int(file.name.rpartition(".log.")[2].partition("_")[0]),
            "base_name": slice_.base_name,
            "log_names": [*slice_.log_names, file.name],
        }
        for slice_, file in files
    ]
    written += [_written(group, file, NO_PREVIOUS) for group, file in new]
    return _delta_instants(layout, completed, written, "UPSERT")


def compaction_instants(
    layout: Layout1, completed: Instant, files: Sequence[tuple[Slice, NewFile]]
) -> list[tuple[str, bytes]]:
    """Return (path, content) of a compaction: requested, inflight, and completed.

    Args:
        files: Slices, and the base files into which they are merged.
    """
    plans = [
        {
            "baseInstantTime": slice_.base_instant,
            "fileId": slice_.group.file_id,
            "partitionPath": slice_.group.partition,
            "dataFilePath": slice_.base_name,
            "deltaFilePaths": list(slice_.log_names),
        }
        for slice_, _ in files
    ]
    time = completed.time
    written = [_written(slice_.group, file, slice_.base_instant) for slice_, file in files]
    return [
        (
            layout.path_of(Instant(time, "compaction", REQUESTED)),
            avro_bodies.compaction_plan.encode(plans),
        ),
        (layout.path_of(Instant(time, "compaction", INFLIGHT)), b""),
        (layout.path_of(completed), _body(layout, time, written, "COMPACT", compacted=True)),
    ]


def _written(group: Group, file: NewFile, previous: str) -> dict[str, Any]:
    """Return a row of :data:`mdt.hudi.commit_metadata.WRITTEN`."""
    return {
        "partition": group.partition,
        "file_id": group.file_id,
        "name": file.name,
        "log_version": 0,
        "size": file.size,
        "rows": file.count,
        "inserts": file.count,
        "updates": 0,
        "deletes": 0,
        "previous_instant": previous,
        "base_name": "",
        "log_names": [],
    }


def _delta_instants(
    layout: Layout1, completed: Instant, written: list[dict[str, Any]], operation: str
) -> list[tuple[str, bytes]]:
    """Return (path, content) of the requested, the inflight and the completed instant."""
    profile = b""
    if not layout.table.has_completions:
        # rollbacks of Hudi cancel the blocks of the log files that it names
        logs = [row for row in written if row["log_version"]]
        groups = [(row["partition"], row["file_id"], row["previous_instant"]) for row in logs]
        profile = commit_metadata.encode_profile("", operation, groups)
    requested, inflight = (replace(completed, state=state) for state in (REQUESTED, INFLIGHT))
    return [
        (layout.path_of(requested), b""),
        (layout.path_of(inflight), profile),
        (
            layout.path_of(completed),
            _body(layout, completed.time, written, operation, compacted=False),
        ),
    ]


def _body(
    layout: Layout1, time: str, written: list[dict[str, Any]], operation: str, *, compacted: bool
) -> bytes:
    files = pa.Table.from_pylist(written, schema=commit_metadata.WRITTEN)
    metadata = CommitMetadata(files, TABLE_SCHEMA, operation, compacted)
    return layout.table.completed_body(time, metadata)
