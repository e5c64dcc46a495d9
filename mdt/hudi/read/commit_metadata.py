"""The content of completed write instants, as readers need it.

Version 6 stores JSON, versions 8 and 9 store Avro, with the same field names. The first bytes
decide. Field lists: Apache Hudi, ``HoodieCommitMetadata.avsc``,
``HoodieReplaceCommitMetadata.avsc``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mdt.errors import Corrupt
from mdt.hudi.read.fields import Fields, parse_json
from mdt.hudi.read.untrusted_avro import MAGIC, read_record

_FILES = "partitionToWriteStats"


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A base file or log file that a commit wrote.

    Attributes:
        partition: Partition path.
        file_id: Id of the file group.
        path: Path in the table.
        size: Size in bytes.
        rows: Number of rows in the file.
        inserts, updates, deletes: Rows by kind of change, 0 if the writer does not count them.
    """

    partition: str
    file_id: str
    path: str
    size: int
    rows: int
    inserts: int
    updates: int
    deletes: int


@dataclass(frozen=True, slots=True)
class CommitContent:
    """The content of a completed commit, deltacommit or replacecommit.

    Attributes:
        files: The new files.
        replaced: Partition path -> ids of the file groups that the commit replaces.
        schema_json: Avro schema without meta columns, or "".
        operation: Hudi's operation type, such as ``UPSERT``, or "".
        extra: All entries of ``extraMetadata``, including the schema.
    """

    files: tuple[WrittenFile, ...]
    replaced: Mapping[str, tuple[str, ...]]
    schema_json: str
    operation: str
    extra: Mapping[str, str]


def decode(data: bytes, path: str, *, with_files: bool = True) -> CommitContent:
    """Return the content of a completed write instant, in any table version.

    Args:
        with_files: False leaves the new files out, which may be 100,000.

    Raises Corrupt, with ``path``, for damaged bytes, and for an empty object.

    >>> content = decode(b'{"operationType": "INSERT", "partitionToWriteStats": {}}', "1.commit")
    >>> content.operation, content.files
    ('INSERT', ())
    """
    if not data:
        raise Corrupt("a completed instant is empty", path=path)
    if data.startswith(MAGIC):
        fields = Fields(read_record(data, path, "" if with_files else _FILES), path)
    else:
        fields = parse_json(data, path)
    extra_fields = fields.map("extraMetadata")
    extra = {name: extra_fields.text(name) for name in extra_fields.names()}
    replaced_ids = fields.map("partitionToReplaceFileIds")
    replaced = {name: tuple(replaced_ids.texts(name)) for name in replaced_ids.names()}
    files = _written_files(fields.map(_FILES)) if with_files else []
    return CommitContent(
        files=tuple(files),
        replaced=replaced,
        schema_json=extra.get("schema", ""),
        operation=fields.text("operationType"),
        extra=extra,
    )


def _written_files(stats_of_partitions: Fields) -> list[WrittenFile]:
    files = []
    for partition in stats_of_partitions.names():
        for stat in stats_of_partitions.records(partition):
            if not stat.text("path"):
                continue  # a task without rows
            files.append(
                WrittenFile(
                    partition=partition,
                    file_id=stat.text("fileId"),
                    path=stat.file_path("path"),
                    size=stat.number("fileSizeInBytes"),
                    rows=stat.number("numWrites"),
                    inserts=stat.number("numInserts"),
                    updates=stat.number("numUpdateWrites"),
                    deletes=stat.number("numDeletes"),
                )
            )
    return files
