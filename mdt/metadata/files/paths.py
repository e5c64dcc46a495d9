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

_SEQ_DIGITS = 20


def commit(seq: int) -> str:
    """Return the path of the commit record ``seq``.  Creating it is the commit point."""
    return f"{log_dir()}/{_digits(seq)}"


def log_dir() -> str:
    """Return the directory of the commit records."""
    return f"{PRIVATE}/log"


def checkpoint_manifest(seq: int) -> str:
    """Return the path of the manifest of checkpoint ``seq``."""
    return f"{checkpoints_dir()}/{_digits(seq)}.manifest"


def checkpoint_part(seq: int, token: str, partition: str) -> str:
    """Return the path of a part of checkpoint ``seq``, written by the writer ``token``."""
    return f"{checkpoints_dir()}/{_digits(seq)}-{token}.{partition}"


def checkpoint_of(path: str) -> int | None:
    """Return the seq of the checkpoint that an object belongs to, or None for other names.

    >>> checkpoint_of(checkpoint_manifest(8))
    8
    >>> checkpoint_of(checkpoint_part(9, "0a1b2c3d", "pages-0"))
    9
    >>> checkpoint_of(hint()) is None
    True
    """
    folder, _, name = path.rpartition("/")
    digits = name[:_SEQ_DIGITS]
    is_part = folder == checkpoints_dir() and name[_SEQ_DIGITS : _SEQ_DIGITS + 1] in ("-", ".")
    if is_part and _is_seq(digits):
        return int(digits)
    return None


def checkpoints_dir() -> str:
    """Return the directory of the checkpoints."""
    return f"{PRIVATE}/checkpoints"


def hint() -> str:
    """Return the path of the pointer to the newest checkpoint.  It may be stale or absent."""
    return f"{PRIVATE}/hint"


def released() -> str:
    """Return the path of the marker of an adoption that is being ended."""
    return f"{PRIVATE}/released"


def pending(instant: str) -> str:
    """Return the path of the claim of a running transaction."""
    return f"{pending_dir()}/{instant}"


def pending_dir() -> str:
    """Return the directory of the claims."""
    return f"{PRIVATE}/pending"


def archive(first: int, last: int) -> str:
    """Return the path of the archive object of the commit records ``first`` to ``last``."""
    return f"{archive_dir()}/{_digits(first)}-{_digits(last)}"


def archive_dir() -> str:
    """Return the directory of the archive."""
    return f"{PRIVATE}/archive"


def archived(path: str) -> tuple[int, int] | None:
    """Return the first and last record of an archive object, or None for other names.

    >>> archived(archive(0, 63)), archived(hint())
    ((0, 63), None)
    """
    first, _, last = path.rpartition("/")[2].partition("-")
    if not (_is_seq(first) and _is_seq(last)) or int(first) > int(last):
        return None
    if path != archive(int(first), int(last)):
        return None
    return int(first), int(last)


def leases_dir() -> str:
    """Return the directory of the leases."""
    return f"{PRIVATE}/leases"


def lease(reader: str) -> str:
    """Return the path of a reader's lease."""
    return f"{leases_dir()}/{reader}.json"


def usage_dir() -> str:
    """Return the directory of the reports of index usage."""
    return f"{PRIVATE}/usage"


def usage(process: str) -> str:
    """Return the path of a process's usage report."""
    return f"{usage_dir()}/{process}.json"


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
    return f"{attachments_dir()}/{instant}"


def attachments_dir() -> str:
    """Return the directory of the attachments of all transactions."""
    return f"{PRIVATE}/attachments"


def markers_dir() -> str:
    """Return the directory of Hudi's markers (:mod:`mdt.commit.markers`)."""
    return f"{HUDI}/.temp"


def markers_of(instant: str) -> str:
    """Return the directory of the markers of the transaction ``instant``."""
    return f"{markers_dir()}/{instant}"


def heartbeats_dir() -> str:
    """Return the directory of Hudi's heartbeats."""
    return f"{HUDI}/.heartbeat"


def heartbeat(instant: str) -> str:
    """Return the path of the heartbeat of the transaction ``instant``."""
    return f"{heartbeats_dir()}/{instant}"


def hudi_lock() -> str:
    """Return the default path of the lock of Hudi's file system lock provider."""
    return f"{HUDI}/lock"


def hudi_storage_lock() -> str:
    """Return the path of the lock of Hudi's storage-based lock provider."""
    return f"{HUDI}/.locks/table_lock.json"


def properties() -> str:
    """Return the path of Hudi's table properties."""
    return f"{HUDI}/hoodie.properties"


def properties_checksum() -> str:
    """Return the path of Hadoop's checksum of the properties on a local disk. Without it Hadoop
    reads them unchecked.
    """
    return f"{HUDI}/.hoodie.properties.crc"


def data_file(partition: str, name: str) -> str:
    """Return the path of a data file. Merged files are in a directory of their own, so that Hudi's
    readers do not see them.

    >>> data_file("city=Oslo", "f-0_1-7-0_20240229120000123.parquet")
    'city=Oslo/f-0_1-7-0_20240229120000123.parquet'
    >>> data_file("city=Oslo", merged_name("f-0", "77-0a1b", "20240229120000123"))
    '.hoodie/.mdt/merged/city=Oslo/f-0_merged2-77-0a1b_20240229120000123.parquet'
    """
    if is_merged(name):
        return f"{merged_dir()}/{partition_file(partition, name)}"
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


def merged_dir() -> str:
    """Return the directory of the merged files."""
    return f"{PRIVATE}/merged"


def partition_file(partition: str, name: str) -> str:
    """Return the path of a file in a partition.  Tables without partitions have the partition
    "".
    """
    return f"{partition}/{name}" if partition else name


def seq_of(path: str) -> int | None:
    """Return the sequence number of a commit record or manifest, or None for any other name.

    >>> seq_of(commit(7)), seq_of(checkpoint_manifest(8)), seq_of(hint())
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
