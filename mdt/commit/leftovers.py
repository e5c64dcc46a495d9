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
    log = list(records)
    for seq in range(len(records), snapshot.seq + 1):
        log.append(_record(metadata, seq))
    claimed = {claim.instant for claim in found}
    claimed.update(error.path.rpartition("/")[2] for error in aside)
    files = _unclaimed(listing, referred_to(log), claimed, {claim.token for claim in found})
    unknown = set(files.values()) - snapshot.log.tokens - snapshot.log.dead_tokens
    dead = snapshot.log.dead_instants - snapshot.instants - claimed
    known = snapshot.instants | snapshot.log.dead_instants | claimed
    instants = _instants(listing, layout_of(snapshot.definition))
    pending = [path for path, i in instants.items() if i.time in dead and i.state != timeline.COMPLETED]
    foreign = any(instant.time not in known for instant in instants.values())
    return Leftovers(tuple(files), tuple(pending), frozenset(unknown), foreign)


def _record(metadata: Metadata, seq: int) -> CommitRecord:
    record = metadata.record(seq)
    if record is None:
        raise Missing("a commit record is gone", path=paths.commit(seq))
    return record


def _instants(listing: Listing, layout: Layout) -> dict[str, Instant]:
    """Return the instants of Hudi's timeline by their paths."""
    found = {}
    for info in listing:
        instant = layout.instant_at(info.path)
        if instant is not None:
            found[info.path] = instant
    return found


def token_of(path: str) -> int | None:
    """Return the token in the path of a data file or object of summaries, None for anything else."""
    stored = names.stored_of(path)
    if stored is not None:
        return stored[1]
    if paths.is_hudis(path):
        return None
    return names.token_of(path.rpartition("/")[2])


def _unclaimed(listing: Listing, used: set[str], claimed: set[str], tokens: set[int]) -> dict[str, int]:
    """Return the files of our kind that no record refers to (``used``) and no claim speaks for, with their tokens."""
    found = {}
    for info in listing:
        path = info.path
        token = None if path in used else token_of(path)
        if token is None or token in tokens:
            continue
        stored = names.stored_of(path)
        instant = names.instant_of(path.rpartition("/")[2])
        if stored is not None:
            instant = stored[0]
        if instant not in claimed:
            found[path] = token
    return found


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
