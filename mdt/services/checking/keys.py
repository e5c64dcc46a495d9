"""Check and rebuild keys: uniqueness, look-up by the key index, and placement for Hudi's writers.

The key index is derived from the keys of each file group, including deleted rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import flags, in_batches
from indexes.base import TABLE, Int64Array, KeyHashes
from mdt.commit.conflicts import Footprint
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.config import Options
from mdt.errors import Corrupt, Invalid
from mdt.hudi.avro_schema import RECORD_KEY
from mdt.hudi.record_keys import sort_keys
from mdt.limits import INDEX_COMMIT_ROWS
from mdt.metadata.files import paths
from mdt.metadata.files.attachments import AttachmentWriter
from mdt.metadata.key_indexes import keys_for
from mdt.metadata.keys.buckets import id_prefixes as bucket_names
from mdt.metadata.keys.buckets import key_placeholders
from mdt.metadata.keys.locate import propose
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.key_part_merge import can_be_read
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.parquet.segment_rows import live_mask
from mdt.services.checking.attachments import is_whole, read_verified
from mdt.services.checking.problems import Kind, Problem
from mdt.services.checking.state import Repair, TableState
from mdt.services.indexing.rekeying import keys_of_group, merge_key_parts

_NAMED_MAX = 10
"""Maximum number of keys in a problem."""


@dataclass(frozen=True, slots=True)
class LiveKeys:
    """Keys of n live rows.

    Attributes:
        file: File number of each row, ascending (int64[n]).
        hashes: Hashes of the record keys.
        keys: Keys in the form of the key index. Equal only if the record keys are equal.
    """

    file: Int64Array
    hashes: KeyHashes
    keys: pa.Array


def live_keys(state: TableState, file: int, table: pa.Table) -> LiveKeys:
    """Return the live keys of a file. ``table`` has all of its rows."""
    definition, live = state.definition, _live_rows(state, file, table)
    texts = live[RECORD_KEY].combine_chunks()
    keys = keys_for(definition.key_index, texts, sort_keys(live, definition.key))
    files = np.broadcast_to(np.int64(file), len(live))  # uses no memory
    return LiveKeys(files, definition.key_hash.hash(texts), keys)


def _live_rows(state: TableState, file: int, table: pa.Table) -> pa.Table:
    mask = live_mask(len(table), state.snapshot.vector(file))
    return table if mask is None else table.filter(pa.array(mask))


def check(state: TableState, files: Sequence[LiveKeys]) -> Iterator[Problem]:
    """Check that keys are unique in their scope, and that the key index finds them.

    If keys may repeat, they must be unique in each file group. ``files`` has the live rows of each
    file.
    """
    for part in state.snapshot.key_parts:
        if part.stored is not None:
            try:
                read_verified(state.storage, part.stored)
            except Corrupt as error:
                yield Problem.from_error(error, kind=Kind.ATTACHMENT)
    if not files:
        return
    rows = LiveKeys(
        np.concatenate([file.file for file in files]),
        KeyHashes.concat([file.hashes for file in files]),
        pa.concat_arrays([file.keys for file in files]),
    )
    if len(rows.file):
        group = state.snapshot.file_groups.of_files(rows.file)
        yield from _check_unique(state, rows, group)
        yield from _check_index(state, rows, group)


def _check_unique(state: TableState, rows: LiveKeys, group: Int64Array) -> Iterator[Problem]:
    """Check that keys are unique. ``group`` is the file group of each row (int64[n])."""
    _, partition = _partitions(state.snapshot)
    scope = partition[group]
    if state.definition.keys_repeat:
        scope = group
    elif state.definition.is_global:
        scope = np.zeros(len(group), np.int64)
    first, second = _repeated_pairs(rows.hashes, scope)
    is_same = flags(pc.equal(rows.keys.take(pa.array(first)), rows.keys.take(pa.array(second))))
    if is_same.any():
        names = [_record_key(state, rows, row) for row in first[is_same][:_NAMED_MAX].tolist()]
        text = f"{is_same.sum()} keys are live more than once in their scope, such as {names!r}"
        yield Problem(state.storage.url, text)
    for pair in np.flatnonzero(~is_same)[:_NAMED_MAX].tolist():
        first_key, second_key = (
            _record_key(state, rows, first[pair]),
            _record_key(state, rows, second[pair]),
        )
        text = (
            f"the keys {first_key!r} and {second_key!r} have the same hash; rekey() separates them"
        )
        yield Problem(state.storage.url, text)


def _check_index(state: TableState, rows: LiveKeys, group: Int64Array) -> Iterator[Problem]:
    """Look up every key. ``group`` is the file group of each row (int64[n])."""
    metadata, snapshot, url = state.metadata, state.snapshot, state.storage.url
    unusable = metadata.key_index_problem(snapshot)
    if unusable is not None:
        text = f"the key index cannot be checked: {unusable.message}"
        yield Problem(url, text, Kind.KEY_INDEX)
        return
    try:
        key, candidate = propose(metadata, snapshot, rows.keys, rows.hashes).pairs(len(group))
    except (Corrupt, Invalid) as error:
        yield Problem(url, f"the key index cannot be read: {error}", Kind.KEY_INDEX)
        return
    is_missed = np.ones(len(group), np.bool_)
    is_missed[key[group[key] == candidate]] = False
    if is_missed.any():
        text = f"the key index misses {is_missed.sum()} live keys"
        yield Problem(url, text, Kind.KEY_INDEX)
    groups = snapshot.file_groups
    home = key_placeholders(metadata, snapshot, rows.keys, groups.partitions(group))
    if home is not None:
        prefixes = np.array([name[:8] for name in groups.names(range(groups.count))], object)
        strays = (bucket_names(home) != prefixes[group]).sum()
        if strays:
            yield Problem(url, f"{strays} keys are in a file group of another bucket")


def _partitions(snapshot: Snapshot) -> tuple[npt.NDArray[np.object_], Int64Array]:
    """Return the partition paths, and for each file group the position of its path."""
    groups = snapshot.file_groups
    return np.unique(groups.partitions(np.arange(groups.count)), return_inverse=True)


def _repeated_pairs(hashes: KeyHashes, scope: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return pairs of rows with equal hash and ``scope`` (two int64[pairs]).

    A pair is a row and its successor in sort order. ``scope`` is int64[n].
    """
    order = np.lexsort((scope, hashes.lo, hashes.hi))
    is_same = np.ones(max(len(order) - 1, 0), np.bool_)
    for values in (hashes.hi, hashes.lo, scope):
        is_same &= values[order][1:] == values[order][:-1]
    return order[:-1][is_same], order[1:][is_same]


def _record_key(state: TableState, rows: LiveKeys, row: int) -> str:
    """Return the record key of a row."""
    file = int(rows.file[row])
    table = _live_rows(state, file, state.read(state.snapshot.segment(file), RECORD_KEY))
    return str(table[RECORD_KEY][row - int(np.searchsorted(rows.file, file))].as_py())


def check_placement(state: TableState) -> Iterator[Problem]:
    """Yield a warning for each partition with keys in two file groups, including deleted rows.

    Hudi's writers do not expect this. Readers are not affected, because only one of the rows is
    live. Versions before 0.1 placed reinserted keys like this. O(keys log keys).
    """
    snapshot, groups = state.snapshot, state.snapshot.file_groups
    live = snapshot.live_numbers[snapshot.has_key_map[snapshot.live_numbers]]
    live = live[np.argsort(groups.of_files(live), kind="stable")]
    if snapshot.definition.keys_repeat or not len(live):
        return
    hashes = []
    for segment in snapshot.files.segments(live):
        assert segment.key_map is not None, "only files with key maps were taken"
        hashes.append(state.metadata.objects.key_map(segment.key_map).verify_all().hashes)
    group = np.repeat(groups.of_files(live), list(map(len, hashes)))
    names, partition = _partitions(snapshot)
    first, second = _repeated_pairs(KeyHashes.concat(hashes), partition[group])
    moved = partition[group[first[group[first] != group[second]]]]
    for code, count in zip(*np.unique(moved, return_counts=True), strict=True):
        text = (
            f"{count} deleted keys were inserted again into another file group: a Hudi writer would"
            " find the deleted row; compact() fixes it"
        )
        yield Problem(str(names[code]) or state.storage.url, text, Kind.PLACEMENT)


def rebuild(repair: Repair, problems: Sequence[Problem]) -> None:
    """Rebuild the key index for unknown file groups, or for all groups if it misses keys.

    A key index outside the table rebuilds itself.
    """
    state, metadata = repair.state(), repair.metadata
    if repair.is_keyed or metadata.key_index_problem(state.snapshot) is not None:
        return
    if metadata.key_index(state.snapshot).kept != TABLE:
        return
    repair.is_keyed = any(problem.kind == Kind.KEY_INDEX for problem in problems)
    names = state.snapshot.file_groups.all_names()
    if not repair.is_keyed:
        names = sorted(_unknown_groups(state))
    count = 0
    for batch in _batches(state.snapshot, names):
        with suppress(Corrupt):
            plan = repair.commit(KeyBuild(metadata, state.options, batch)).plan
            count += len(plan.footprint.groups)
    if count:
        text = f"key index of {count} file groups rebuilt"
        repair.note(paths.ATTACHMENTS_DIR, text, Kind.KEY_INDEX)


def _unknown_groups(state: TableState) -> set[str]:
    """Return file groups with keys that are missing in the key index or only in damaged parts."""
    snapshot, metadata = state.snapshot, state.metadata
    index = metadata.key_index(snapshot)
    unknown = set(snapshot.uncovered)
    for part in snapshot.key_parts:
        is_stored = part.stored is None or is_whole(state.storage, part.stored)
        is_usable = is_stored and can_be_read(part, index, metadata.key_parts.payload)
        if part.index != index.name or not is_usable:
            groups = snapshot.key_part_groups(part)
            unknown.update(snapshot.file_groups.names(groups[groups >= 0].tolist()))
    return unknown


def _batches(snapshot: Snapshot, names: Sequence[str]) -> Iterator[list[str]]:
    """Yield batches of file groups with about INDEX_COMMIT_ROWS rows each. Empty groups are
    skipped.
    """
    groups = snapshot.file_groups

    def rows_of(group: int) -> int:
        return int(snapshot.rows[groups.members(group)].sum())

    for batch in in_batches(groups.with_files(names), rows_of, INDEX_COMMIT_ROWS):
        yield groups.names(batch)


@dataclass(frozen=True, slots=True)
class KeyBuild(Operation[WritePlan]):
    """The operation that adds all keys of the file groups ``groups`` to the key index again.

    Deleted rows are included.
    """

    metadata: Metadata
    options: Options
    groups: Sequence[str]
    name: str = "repair"
    action: str = "index"

    def prepare(self, snapshot: Snapshot, txn: str) -> WritePlan:
        """Plan the groups that still have files."""
        groups = snapshot.file_groups
        names = groups.names(groups.with_files(self.groups))
        return WritePlan(Footprint(txn, frozenset(names)), is_needed=bool(names))

    def write(self, snapshot: Snapshot, plan: WritePlan, claim: Claim) -> Changes:
        """Write a key part per group, so that groups changed meanwhile can be left out."""
        objects = AttachmentWriter(paths.attachment(claim.instant, str(claim.token)))
        numbers = snapshot.file_groups.number(sorted(plan.footprint.groups)).tolist()
        key_hash, index = snapshot.definition.key_hash, self.metadata.key_index(snapshot)
        make = partial(keys_of_group, self.metadata, snapshot, key_hash, frozenset())
        parts = []
        with ThreadPoolExecutor(self.options.threads("writer")) as pool:
            for group in pool.map(make, numbers):
                parts += merge_key_parts(index, objects, [group])
        objects.write(self.metadata.storage)
        return Changes(key_parts=parts)

    def narrow(
        self, snapshot: Snapshot, plan: WritePlan, changes: Changes, theirs: CommitRecord
    ) -> tuple[WritePlan, Changes] | None:
        """Leave out the file groups that ``theirs`` changed.

        Returns None if nothing is left, or for another kind of conflict.
        """
        changed = plan.footprint.groups & theirs.changed_groups
        parts = [part for part in changes.key_parts if changed.isdisjoint(part.groups)]
        if not changed or not parts or plan.footprint.txn in theirs.rolled_back:
            return None
        footprint = replace(plan.footprint, groups=plan.footprint.groups - changed)
        return replace(plan, footprint=footprint), replace(changes, key_parts=parts)
