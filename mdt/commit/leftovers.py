"""Files that nobody will ever refer to: what transactions leave behind that were declared dead, or lost their claim.

A writer that is paused, taken for dead, rolled back and goes on cannot commit any more, but it goes on writing; if it is then
killed, its files stay, without a claim.  They are found by a listing of the whole table.

Law: a file is left over only if no record of the log refers to it and nobody can still commit it.  The listing comes first,
then the claims, then the log.  Who wrote a listed file had a claim before; if it has none now, it has committed, and the
log says so, or it has given up, or it was declared dead.  A token of which none of this is known is declared dead before
its files go: see :class:`mdt.commit.recovery.Rollback`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mdt.commit import claims
from mdt.errors import Missing
from mdt.hudi import timeline
from mdt.hudi.layout import Layout, layout_of
from mdt.hudi.timeline import Instant
from mdt.metadata import paths
from mdt.metadata import trusted_names as names
from mdt.metadata.commit_log import CommitRecord
from mdt.metadata.metadata import Metadata
from mdt.stores.contract import Listing


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What was found.  ``files``: paths of data files and objects of summaries; ``instants``: paths of pending instants.

    ``unknown``: tokens of ``files`` whose transactions neither committed nor were declared dead.  ``foreign``: whether
    another writer has been here, so that files of unknown tokens may be its own.
    """

    files: tuple[str, ...]
    instants: tuple[str, ...]
    unknown: frozenset[int]
    foreign: bool


def find(metadata: Metadata, records: Sequence[CommitRecord] = ()) -> Leftovers:
    """Find what is left over.  ``records``: the log from record 0 on, as far as it was read already.  O(table).

    Raises Missing if a record of the log is gone: then nobody knows what it referred to.
    """
    storage = metadata.storage
    listing = storage.list("")
    found, aside = claims.read_all(storage)
    snapshot = metadata.newest(watched=False)
    log = [*records, *(_record(metadata, seq) for seq in range(len(records), snapshot.seq + 1))]
    claimed = {claim.instant for claim in found} | {error.path.rpartition("/")[2] for error in aside}
    tokens = {claim.token for claim in found}
    used = referred_to(log)
    files = [info.path for info in listing if info.path not in used and _is_unclaimed(info.path, claimed, tokens)]
    unknown = (
        {token for path in files if (token := token_of(path)) is not None}
        - snapshot.log.tokens
        - snapshot.log.dead_tokens
    )
    instants = _instants(listing, layout_of(snapshot.definition))
    dead = snapshot.log.dead_instants - snapshot.instants - claimed
    pending = [path for path, i in instants.items() if i.time in dead and i.state != timeline.COMPLETED]
    foreign = {instant.time for instant in instants.values()} - snapshot.instants - snapshot.log.dead_instants - claimed
    return Leftovers(tuple(files), tuple(pending), frozenset(unknown), bool(foreign))


def _record(metadata: Metadata, seq: int) -> CommitRecord:
    record = metadata.record(seq)
    if record is None:
        raise Missing("a commit record is gone", path=paths.commit(seq))
    return record


def _instants(listing: Listing, layout: Layout) -> dict[str, Instant]:
    """Return the instants of Hudi's timeline by their paths."""
    found = ((info.path, layout.instant_at(info.path)) for info in listing)
    return {path: instant for path, instant in found if instant is not None}


def token_of(path: str) -> int | None:
    """Return the token in the path of a data file or object of summaries, None for anything else."""
    stored = names.stored_of(path)
    if stored is not None:
        return stored[1]
    return None if paths.is_hudis(path) else names.token_of(path.rpartition("/")[2])


def _is_unclaimed(path: str, claimed: set[str], tokens: set[int]) -> bool:
    """Return whether a file that no record refers to is of our kind, and no claim speaks for it."""
    token = token_of(path)
    if token is None or token in tokens:
        return False
    stored, instant = names.stored_of(path), names.instant_of(path.rpartition("/")[2])
    return (instant if stored is None else stored[0]) not in claimed


def referred_to(records: Iterable[CommitRecord]) -> set[str]:
    """Return the paths of all data files and objects of summaries that any of ``records`` refers to."""
    used: set[str] = set()
    for record in records:
        files = record.table("files")
        used.update(map(paths.partition_file, files["partition"].to_pylist(), files["name"].to_pylist()))
        for section, column in (
            ("files", "key_map_path"),
            ("key_parts", "path"),
            ("summaries", "path"),
            ("covers", "path"),
        ):
            used.update(record.table(section)[column].unique().drop_null().to_pylist())
    return used
