"""The names of the objects of a table, all relative to its root; those of instants are made by
:mod:`mdt.hudi.layout`.

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
    """Return the name of one partition of the metadata compacted up to ``seq`` by the writer
    ``token``.
    """
    return f"{checkpoints_dir()}/{_digits(seq)}-{token}.{partition}"


def checkpoint_of(path: str) -> int | None:
    """Return the seq of the checkpoint that an object is the manifest or a part of, None for any
    other name.

    >>> (
    ...     checkpoint_of(checkpoint_manifest(8)),
    ...     checkpoint_of(checkpoint_part(9, "0a1b2c3d", "pages-0")),
    ...     checkpoint_of(hint()),
    ... )
    (8, 9, None)
    """
    folder, _, name = path.rpartition("/")
    digits = name[:_SEQ_DIGITS]
    is_part = folder == checkpoints_dir() and name[_SEQ_DIGITS : _SEQ_DIGITS + 1] in ("-", ".")
    if is_part and _is_seq(digits):
        return int(digits)
    return None


def checkpoints_dir() -> str:
    """Return the directory of the compacted metadata."""
    return f"{PRIVATE}/checkpoints"


def hint() -> str:
    """Return the name of the pointer to the newest compacted metadata; it may be stale or
    absent.
    """
    return f"{PRIVATE}/hint"


def pending(instant: str) -> str:
    """Return the name of the claim of a transaction that is under way."""
    return f"{pending_dir()}/{instant}"


def pending_dir() -> str:
    """Return the directory of the claims."""
    return f"{PRIVATE}/pending"


def archive(first: int, last: int) -> str:
    """Return the name of what the archive keeps of the commit records ``first`` to ``last``."""
    return f"{archive_dir()}/{_digits(first)}-{_digits(last)}"


def archive_dir() -> str:
    """Return the directory of what is kept of commit records that have left the log."""
    return f"{PRIVATE}/archive"


def archived(path: str) -> tuple[int, int] | None:
    """Return the first and the last record of an object of the archive, None for any other name.

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
    """Return the directory of what readers say who need a past state for a while."""
    return f"{PRIVATE}/leases"


def lease(reader: str) -> str:
    """Return the name of the lease of one reader."""
    return f"{leases_dir()}/{reader}.json"


def usage_dir() -> str:
    """Return the directory of what processes report about the use of indexes."""
    return f"{PRIVATE}/usage"


def usage(process: str) -> str:
    """Return the name of the report of one process."""
    return f"{usage_dir()}/{process}.json"


def attachment(instant: str, token: str) -> str:
    """Return the name of the attachments that the transaction ``instant`` wrote in its attempt
    ``token``.
    """
    return f"{attachments_of(instant)}/{token}.attached"


def further_attachment(path: str, number: int) -> str:
    """Return the name of the ``number``-th object beside the attachments at ``path``.

    >>> further_attachment(attachment("20240229120000123", "5-1"), 2)
    '.hoodie/.mdt/attachments/20240229120000123/5-1--2.attached'
    """
    return f"{path.removesuffix('.attached')}--{number}.attached"


def attachments_of(instant: str) -> str:
    """Return the directory of what the transaction ``instant`` wrote beside data files: key maps,
    key parts, summaries.
    """
    return f"{attachments_dir()}/{instant}"


def attachments_dir() -> str:
    """Return the directory of what all transactions wrote beside data files."""
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
    """Return the name of the heartbeat of the transaction ``instant``."""
    return f"{heartbeats_dir()}/{instant}"


def properties() -> str:
    """Return the path of Hudi's table properties."""
    return f"{HUDI}/hoodie.properties"


def partition_file(partition: str, name: str) -> str:
    """Return the path of a file in a partition; "" is the partition of a table without
    partitions.
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
    """Return whether a path is below the directory of Hudi's own files."""
    return path.startswith(f"{HUDI}/")


def partition_metadata(partition: str) -> str:
    """Return the path of Hudi's marker of a partition directory."""
    return partition_file(partition, ".hoodie_partition_metadata")
