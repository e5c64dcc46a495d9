"""Buckets of a partition: the file groups that take new keys by a hash, where the table's key index
says so.

The id of a bucket's file group begins with the bucket's number in eight digits, as Hudi's bucket
index has it.  While a bucket has no file group, a number below -1 stands for the one that is to be
made.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import distinct_texts, flags, mask
from indexes.base import Candidates, Int64Array
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot

_FIRST = -2


def opened(buckets: Int64Array) -> Int64Array:
    """Return what stands for the file group of each bucket while there is none -> int64[n], below
    -1.

    >>> import numpy as np
    >>> opened(np.array([0, 7])).tolist(), number(-9)
    ([-2, -9], 7)
    """
    return _FIRST - buckets


def number(group: int) -> int:
    """Return the bucket that ``group``, below -1, stands for."""
    return _FIRST - group


def homes(
    metadata: Metadata, snapshot: Snapshot, texts: pa.Array, partition: npt.NDArray[np.object_]
) -> Int64Array | None:
    """Return what stands for the new file group of each record key, string[n] -> int64[n]; None:
    the table has no buckets.

    ``partition``: path of each key.
    """
    if metadata.key_index_problem(snapshot) is not None:
        return None
    found = metadata.key_index(snapshot).buckets(texts, partition)
    return None if found is None else opened(found)


def names(groups: Int64Array) -> npt.NDArray[np.object_]:
    """Return with which eight digits the file group's id of each bucket begins -> object[n];
    ``groups``: what stands for them.

    >>> import numpy as np
    >>> names(np.array([-2, -9])).tolist()
    ['00000000', '00000007']
    """
    buckets, of_group = np.unique(_FIRST - groups, return_inverse=True)
    return np.array([f"{bucket:08d}" for bucket in buckets.tolist()], object)[of_group]


def settle(
    home: Int64Array, snapshot: Snapshot, proposed: Candidates, partition: npt.NDArray[np.object_]
) -> None:
    """Put the file group of a key's bucket in the place of what stands for it, where there is one
    in the key's partition.

    Most keys are in a file group that the key index has ``proposed``; of a key like which none was
    seen before, the ids of file groups say it.
    """
    _settle_by_candidates(home, snapshot, proposed, partition)
    _settle_by_ids(home, snapshot, partition)


def _settle_by_candidates(
    home: Int64Array, snapshot: Snapshot, proposed: Candidates, partition: npt.NDArray[np.object_]
) -> None:
    """Settle keys with a candidate in their partition."""
    groups = snapshot.file_groups
    alive = [number for number in np.unique(proposed.group).tolist() if len(groups.members(number))]
    key, group = proposed.key, proposed.group
    here = np.isin(group, alive) & np.asarray(partition[key] == groups.partitions(group))
    key, group = key[here], group[here]
    order = np.lexsort((group, key))
    first = order[np.diff(key[order], prepend=-1) != 0]
    home[key[first]] = group[first]


def _settle_by_ids(
    home: Int64Array, snapshot: Snapshot, partition: npt.NDArray[np.object_]
) -> None:
    """Settle what is left, as in a bucket without a file group yet.  O(files) if anything is."""
    left = np.flatnonzero(home < 0)
    if not len(left):
        return
    places, of_key = distinct_texts(partition[left])
    live = snapshot.live_numbers
    files = snapshot.files.take(["partition", "file_id"], live)
    here = flags(pc.is_in(files["partition"], pa.array(places, pa.string())))
    paths, ids = (column.filter(mask(here)).to_pylist() for column in files.columns)
    groups = snapshot.file_groups.of_files(live[here]).tolist()
    known = {(path, id[:8]): group for path, id, group in zip(paths, ids, groups, strict=True)}
    pairs, of_left = np.unique(np.stack([of_key, home[left]]), axis=1, return_inverse=True)
    found = [known.get((places[place], f"{number(at):08d}"), at) for place, at in pairs.T.tolist()]
    home[left] = np.array(found, np.int64)[of_left.reshape(-1)]
