"""The names of the objects of a table, all relative to its root; those of instants are made by :mod:`mdt.hudi.layout`.

Sequence numbers have 20 digits, so that names sort as numbers do.
"""

from __future__ import annotations

from mdt.hudi import file_names

HUDI = file_names.HUDI
"""The directory of Hudi's own files."""
PRIVATE = f"{HUDI}/.mdt"
"""The directory of the metadata table; Hudi's readers ignore it."""

_SEQ_DIGITS = 20


def commit(seq: int) -> str:
    """Return the name of the commit record ``seq``: the one commit point."""
    return f"{log_dir()}/{_digits(seq)}"


def log_dir() -> str:
    """Return the directory of the commit records."""
    return f"{PRIVATE}/log"


def checkpoint_manifest(seq: int) -> str:
    """Return the name of the list of parts of the metadata compacted up to ``seq``."""
    return f"{checkpoints_dir()}/{_digits(seq)}.manifest"


def checkpoint_part(seq: int, token: str, partition: str) -> str:
    """Return the name of one partition of the metadata compacted up to ``seq`` by the writer ``token``."""
    return f"{checkpoints_dir()}/{_digits(seq)}-{token}.{partition}"


def checkpoints_dir() -> str:
    """Return the directory of the compacted metadata."""
    return f"{PRIVATE}/checkpoints"


def hint() -> str:
    """Return the name of the pointer to the newest compacted metadata; it may be stale or absent."""
    return f"{PRIVATE}/hint"


def pending(instant: str) -> str:
    """Return the name of the claim of a transaction that is under way."""
    return f"{pending_dir()}/{instant}"


def pending_dir() -> str:
    """Return the directory of the claims."""
    return f"{PRIVATE}/pending"


def usage_dir() -> str:
    """Return the directory of what processes report about the use of indexes."""
    return f"{PRIVATE}/usage"


def usage(process: str) -> str:
    """Return the name of the report of one process."""
    return f"{usage_dir()}/{process}.json"


def attachment(instant: str, token: str) -> str:
    """Return the name of the attachments that the transaction ``instant`` wrote in its attempt ``token``."""
    return f"{attachments_of(instant)}/{token}.attached"


def attachments_of(instant: str) -> str:
    """Return the directory of what the transaction ``instant`` wrote beside data files: key maps, key parts, summaries."""
    return f"{attachments_dir()}/{instant}"


def attachments_dir() -> str:
    """Return the directory of what all transactions wrote beside data files."""
    return f"{PRIVATE}/attachments"


def properties() -> str:
    """Return the path of Hudi's table properties."""
    return f"{HUDI}/hoodie.properties"


def partition_file(partition: str, name: str) -> str:
    """Return the path of a file in a partition; "" is the partition of a table without partitions."""
    return f"{partition}/{name}" if partition else name


def seq_of(path: str) -> int | None:
    """Return the sequence number of a commit record or manifest, or None for any other name.

    >>> seq_of(commit(7)), seq_of(checkpoint_manifest(8)), seq_of(hint())
    (7, 8, None)
    """
    name = path.rpartition("/")[2].removesuffix(".manifest")
    digits = len(name) == _SEQ_DIGITS and name.isascii() and name.isdigit()
    return int(name) if digits and path in (commit(int(name)), checkpoint_manifest(int(name))) else None


def _digits(seq: int) -> str:
    assert seq >= 0, f"sequence numbers start at 0, not {seq}"
    return f"{seq:0{_SEQ_DIGITS}d}"


def is_hudis(path: str) -> bool:
    """Return whether a path is below the directory of Hudi's own files."""
    return path.startswith(f"{HUDI}/")


def partition_metadata(partition: str) -> str:
    """Return the path of Hudi's marker of a partition directory."""
    return partition_file(partition, ".hoodie_partition_metadata")
