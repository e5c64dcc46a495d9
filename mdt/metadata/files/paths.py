"""Names of the objects of a table, relative to its root.  :mod:`mdt.hudi.layout` names instants.

Sequence numbers have 20 digits, so names sort like the numbers.
"""

from __future__ import annotations

from mdt.hudi import file_names

HUDI = file_names.HUDI
"""The directory of Hudi's own files."""
PRIVATE = f"{HUDI}/.mdt"
"""The directory of the metadata table.  Hudi's readers ignore it."""

MERGED_MARK = "_merged"
"""Part of the names of merged files, and of no name that Hudi writes."""

LOG_DIR = f"{PRIVATE}/log"
"""The directory of the commit records."""
CHECKPOINTS_DIR = f"{PRIVATE}/checkpoints"
"""The directory of the checkpoints."""
HINT = f"{PRIVATE}/hint"
"""The pointer to the newest checkpoint.  It may be stale or absent."""
RELEASED = f"{PRIVATE}/released"
"""The marker of an adoption that is being ended."""
PENDING_DIR = f"{PRIVATE}/pending"
"""The directory of the claims."""
ARCHIVE_DIR = f"{PRIVATE}/archive"
"""The directory of the archive."""
LEASES_DIR = f"{PRIVATE}/leases"
"""The directory of the leases."""
USAGE_DIR = f"{PRIVATE}/usage"
"""The directory of the reports of index usage."""
ATTACHMENTS_DIR = f"{PRIVATE}/attachments"
"""The directory of the attachments of all transactions."""
MARKERS_DIR = f"{HUDI}/.temp"
"""The directory of Hudi's markers (:mod:`mdt.commit.markers`)."""
HEARTBEATS_DIR = f"{HUDI}/.heartbeat"
"""The directory of Hudi's heartbeats."""
HUDI_LOCK = f"{HUDI}/lock"
"""The default lock file of Hudi's file system lock provider."""
HUDI_STORAGE_LOCK = f"{HUDI}/.locks/table_lock.json"
"""The lock of Hudi's storage-based lock provider."""
PROPERTIES = f"{HUDI}/hoodie.properties"
"""Hudi's table properties."""
PROPERTIES_CHECKSUM = f"{HUDI}/.hoodie.properties.crc"
"""Hadoop's checksum of the properties on a local disk. Without it Hadoop reads them unchecked."""
MERGED_DIR = f"{PRIVATE}/merged"
"""The directory of the merged files."""

_SEQ_DIGITS = 20


def commit(seq: int) -> str:
    """Return the path of the commit record ``seq``.  Creating it is the commit point."""
    return f"{LOG_DIR}/{_digits(seq)}"


def checkpoint_manifest(seq: int) -> str:
    """Return the path of the manifest of checkpoint ``seq``."""
    return f"{CHECKPOINTS_DIR}/{_digits(seq)}.manifest"


def checkpoint_part(seq: int, token: str, partition: str) -> str:
    """Return the path of a part of checkpoint ``seq``, written by the writer ``token``."""
    return f"{CHECKPOINTS_DIR}/{_digits(seq)}-{token}.{partition}"


def checkpoint_of(path: str) -> int | None:
    """Return the seq of the checkpoint that an object belongs to, or None for other names.

    >>> checkpoint_of(checkpoint_manifest(8))
    8
    >>> checkpoint_of(checkpoint_part(9, "0a1b2c3d", "pages-0"))
    9
    >>> checkpoint_of(HINT) is None
    True
    """
    folder, _, name = path.rpartition("/")
    digits = name[:_SEQ_DIGITS]
    is_part = folder == CHECKPOINTS_DIR and name[_SEQ_DIGITS : _SEQ_DIGITS + 1] in ("-", ".")
    if is_part and _is_seq(digits):
        return int(digits)
    return None


def pending(instant: str) -> str:
    """Return the path of the claim of a running transaction."""
    return f"{PENDING_DIR}/{instant}"


def archive(first: int, last: int) -> str:
    """Return the path of the archive object of the commit records ``first`` to ``last``."""
    return f"{ARCHIVE_DIR}/{_digits(first)}-{_digits(last)}"


def archived(path: str) -> tuple[int, int] | None:
    """Return the first and last record of an archive object, or None for other names.

    >>> archived(archive(0, 63)), archived(HINT)
    ((0, 63), None)
    """
    first, _, last = path.rpartition("/")[2].partition("-")
    if not (_is_seq(first) and _is_seq(last)) or int(first) > int(last):
        return None
    if path != archive(int(first), int(last)):
        return None
    return int(first), int(last)


def lease(reader: str) -> str:
    """Return the path of a reader's lease."""
    return f"{LEASES_DIR}/{reader}.json"


def usage(process: str) -> str:
    """Return the path of a process's usage report."""
    return f"{USAGE_DIR}/{process}.json"


def attachment(instant: str, token: str) -> str:
    """Return the path of the attachments of the transaction ``instant`` in its attempt
    ``token``.
    """
    return f"{attachments_of(instant)}/{token}.attached"


def further_attachment(path: str, number: int) -> str:
    """Return the path of the ``number``-th further object of the attachments at ``path``.

    >>> further_attachment(attachment("20240229120000123", "5-1"), 2)
    '.hoodie/.mdt/attachments/20240229120000123/5-1--2.attached'
    """
    return f"{path.removesuffix('.attached')}--{number}.attached"


def attachments_of(instant: str) -> str:
    """Return the directory of the attachments of the transaction ``instant``.

    These are key maps, page maps, key parts and large summaries.
    """
    return f"{ATTACHMENTS_DIR}/{instant}"


def markers_of(instant: str) -> str:
    """Return the directory of the markers of the transaction ``instant``."""
    return f"{MARKERS_DIR}/{instant}"


def heartbeat(instant: str) -> str:
    """Return the path of the heartbeat of the transaction ``instant``."""
    return f"{HEARTBEATS_DIR}/{instant}"


def data_file(partition: str, name: str) -> str:
    """Return the path of a data file. Merged files are in a directory of their own, so that Hudi's
    readers do not see them.

    >>> data_file("city=Oslo", "f-0_1-7-0_20240229120000123.parquet")
    'city=Oslo/f-0_1-7-0_20240229120000123.parquet'
    >>> data_file("city=Oslo", merged_name("f-0", "77-0a1b", "20240229120000123"))
    '.hoodie/.mdt/merged/city=Oslo/f-0_merged2-77-0a1b_20240229120000123.parquet'
    """
    if is_merged(name):
        return f"{MERGED_DIR}/{partition_file(partition, name)}"
    return partition_file(partition, name)


def merged_name(file_id: str, number: str, instant: str) -> str:
    """Return the name of a merged file of a file group.

    Args:
        number: The writer's token and hexadecimal digits that make the name unique.
        instant: No row of the file is newer.
    """
    return f"{file_id}{MERGED_MARK}2-{number}_{instant}.parquet"


def is_merged(name: str) -> bool:
    """Return True for the name of a merged file."""
    return MERGED_MARK in name


def partition_file(partition: str, name: str) -> str:
    """Return the path of a file in a partition.  Tables without partitions have the partition
    "".
    """
    return f"{partition}/{name}" if partition else name


def seq_of(path: str) -> int | None:
    """Return the sequence number of a commit record or manifest, or None for any other name.

    >>> seq_of(commit(7)), seq_of(checkpoint_manifest(8)), seq_of(HINT)
    (7, 8, None)
    """
    name = path.rpartition("/")[2].removesuffix(".manifest")
    if _is_seq(name) and path in (commit(int(name)), checkpoint_manifest(int(name))):
        return int(name)
    return None


def _is_seq(name: str) -> bool:
    return len(name) == _SEQ_DIGITS and name.isascii() and name.isdigit()


def _digits(seq: int) -> str:
    assert seq >= 0, f"sequence numbers start at 0, not {seq}"
    return f"{seq:0{_SEQ_DIGITS}d}"


def is_hudis(path: str) -> bool:
    """Return True if a path is in the directory of Hudi's own files."""
    return path.startswith(f"{HUDI}/")


def partition_metadata(partition: str) -> str:
    """Return the path of Hudi's marker of a partition directory."""
    return partition_file(partition, ".hoodie_partition_metadata")
