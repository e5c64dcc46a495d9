"""Buckets: the file groups that take new keys by hash, in tables with a bucket index.

As in Hudi's bucket index, the id of a bucket's file group begins with the bucket's number in eight
digits.  A bucket without a file group is represented by a placeholder below -1.
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


def placeholders(buckets: Int64Array) -> Int64Array:
    """Return the placeholders of buckets without a file group -> int64[n], below -1.

    >>> import numpy as np
    >>> placeholders(np.array([0, 7])).tolist(), bucket_of(-9)
    ([-2, -9], 7)
    """
    return _FIRST - buckets


def bucket_of(group: int) -> int:
    """Return the bucket of a placeholder."""
    return _FIRST - group


def key_placeholders(
    metadata: Metadata, snapshot: Snapshot, texts: pa.Array, partition: npt.NDArray[np.object_]
) -> Int64Array | None:
    """Return the bucket placeholder of each record key -> int64[n], or None without a bucket index.

    ``texts`` is string[n].  ``partition`` has the path of each key.
    """
    if metadata.key_index_problem(snapshot) is not None:
        return None
    buckets = metadata.key_index(snapshot).buckets(texts, partition)
    return None if buckets is None else placeholders(buckets)


def id_prefixes(groups: Int64Array) -> npt.NDArray[np.object_]:
    """Return the eight-digit file-group prefix of each bucket placeholder -> object[n].

    >>> import numpy as np
    >>> id_prefixes(np.array([-2, -9])).tolist()
    ['00000000', '00000007']
    """
    buckets, bucket_of_group = np.unique(_FIRST - groups, return_inverse=True)
    return np.array([f"{bucket:08d}" for bucket in buckets.tolist()], object)[bucket_of_group]


def settle(
    home: Int64Array, snapshot: Snapshot, proposed: Candidates, partition: npt.NDArray[np.object_]
) -> None:
    """Replace bucket placeholders in ``home`` by the file group in the key's partition, if it
    exists.

    Most keys have a file group that the key index ``proposed``.  For buckets without a proposal,
    the ids of the file groups decide.
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
    in_partition = np.isin(group, alive) & np.asarray(partition[key] == groups.partitions(group))
    key, group = key[in_partition], group[in_partition]
    order = np.lexsort((group, key))
    first = order[np.diff(key[order], prepend=-1) != 0]
    home[key[first]] = group[first]


def _settle_by_ids(
    home: Int64Array, snapshot: Snapshot, partition: npt.NDArray[np.object_]
) -> None:
    """Settle the remaining keys by file ids.  O(files) if there are any."""
    unsettled = np.flatnonzero(home < 0)
    if not len(unsettled):
        return
    places, key_place = distinct_texts(partition[unsettled])
    live = snapshot.live_numbers
    files = snapshot.files.take(["partition", "file_id"], live)
    in_partitions = flags(pc.is_in(files["partition"], pa.array(places, pa.string())))
    paths, ids = (column.filter(mask(in_partitions)).to_pylist() for column in files.columns)
    groups = snapshot.file_groups.of_files(live[in_partitions]).tolist()
    group_of = {(path, id[:8]): group for path, id, group in zip(paths, ids, groups, strict=True)}
    pairs, pair_of = np.unique(np.stack([key_place, home[unsettled]]), axis=1, return_inverse=True)
    settled = [
        group_of.get((places[place], f"{bucket_of(at):08d}"), at) for place, at in pairs.T.tolist()
    ]
    home[unsettled] = np.array(settled, np.int64)[pair_of.reshape(-1)]
