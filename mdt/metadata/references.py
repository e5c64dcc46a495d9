"""The objects that readable snapshots refer to.  All other objects in a listing may be deleted.

An object may be shared by several files.  It is kept while any readable snapshot refers to any part
of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Corrupt
from mdt.metadata.files import paths
from mdt.metadata.files.file_group import FILES
from mdt.metadata.log.checkpoint_columns import no_rows
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.stores.contract import ObjectInfo

_NAMES = ["partition", "name", "key_map_path", "size"]
_ENTRY_BYTES = 1 << 9
"""Memory of a cached entry, without its paths."""


def _files(metadata: Metadata, horizon: int, last: int) -> pa.Table:
    """Return partition, name, key_map_path and size of the files of all snapshots from ``horizon``
    to ``last``.

    Each of these files is in the snapshot at the horizon or in a later record.  O(files).
    """
    tables = [_snapshot_files(metadata.state(horizon))]
    tables += [
        record.table("files").select(_NAMES) for record in metadata.records(horizon + 1, last)
    ]
    return pa.concat_tables([no_rows(pa.schema([FILES.field(name) for name in _NAMES])), *tables])


def _snapshot_files(state: Snapshot) -> pa.Table:
    return state.files.take(_NAMES, state.live_numbers)


def _tagged_paths(metadata: Metadata, snapshot: Snapshot, horizon: int) -> list[pa.Array]:
    """Return the paths of everything that each tagged snapshot before ``horizon`` refers to ->
    strings.

    Cached, since snapshots never change.  Raises Corrupt if a snapshot cannot be read.
    """
    paths_of_tags, listed = [], None
    for seq in snapshot.tags.before(horizon):
        referred = metadata.referred.get(seq)
        if referred is None:
            listed = metadata.checkpoints.listed() if listed is None else listed
            referred = _cached(metadata, seq, _snapshot_paths(metadata.state(seq, listed)))
        paths_of_tags.append(referred)
    return paths_of_tags


def _snapshot_paths(state: Snapshot) -> pa.Array:
    """Return the distinct paths of data files, attachments and key parts of a snapshot ->
    string[n].
    """
    files = _snapshot_files(state)
    return _distinct([file_paths(files), files["key_map_path"], *_attachment_paths(state)])


def _attachment_paths(state: Snapshot) -> list[pa.Array | pa.ChunkedArray]:
    return [
        _key_parts(state),
        *(state.summary_table(spec)["path"] for spec in state.definition.indexes),
    ]


def _distinct(columns: Iterable[pa.Array | pa.ChunkedArray]) -> pa.Array:
    chunks = [
        chunk
        for column in columns
        for chunk in (column.chunks if isinstance(column, pa.ChunkedArray) else [column])
    ]
    return pa.chunked_array(chunks, pa.string()).unique().drop_null()


def file_paths(table: pa.Table) -> pa.ChunkedArray:
    """Return the path of each file -> string[n].  ``table`` has the columns ``partition`` and
    ``name``.
    """
    names, partitions = table["name"], table["partition"]
    with_folder = pc.binary_join_element_wise(partitions, names, "/")
    in_partition = pc.if_else(pc.equal(partitions, ""), names, with_folder)
    merged = pc.binary_join_element_wise(paths.MERGED_DIR, in_partition, "/")
    return pc.if_else(pc.match_substring(names, paths.MERGED_MARK), merged, in_partition)


def data_file_paths(metadata: Metadata, snapshot: Snapshot) -> pa.Array:
    """Return the distinct paths of the data files of readable snapshots -> string[n].

    For tagged snapshots, attachments and key parts are included.
    """
    horizon = snapshot.retention.horizon
    files = _files(metadata, horizon, snapshot.seq)
    return _distinct([file_paths(files), *_tagged_paths(metadata, snapshot, horizon)])


def hudi_files(metadata: Metadata, snapshot: Snapshot) -> dict[str, dict[str, int]]:
    """Return the data files of readable snapshots that Hudi knows: partition path -> name -> size.

    Reads the sizes of files that only tagged snapshots have.  O(files).
    """
    horizon = snapshot.retention.horizon
    files = _files(metadata, horizon, snapshot.seq).select(["partition", "name", "size"])
    files = files.filter(pc.invert(pc.match_substring(files["name"], paths.MERGED_MARK)))
    listing: dict[str, dict[str, int]] = {}
    for partition, name, size in zip(*(column.to_pylist() for column in files), strict=True):
        listing.setdefault(partition, {})[name] = size
    for seq in snapshot.tags.before(horizon):
        older = _snapshot_files(metadata.state(seq))
        columns = older["partition"].to_pylist(), older["name"].to_pylist()
        for partition, name in zip(*columns, strict=True):
            names = listing.setdefault(partition, {})
            if name not in names and paths.MERGED_MARK not in name:
                names[name] = metadata.storage.size(paths.data_file(partition, name)) or 0
    return listing


def cleaned_hudi_files(record: CommitRecord) -> list[tuple[str, str]]:
    """Return the partition path and the name of each file that Hudi knows and a cleaning releases.

    >>> released = pa.table({"path": ["city=a/f.parquet", "g.parquet"]})
    >>> cleaned_hudi_files(CommitRecord(7, {}, {"cleaned": released}))
    [('city=a', 'f.parquet'), ('', 'g.parquet')]
    """
    parts = (path.rpartition("/") for path in record.table("cleaned")["path"].to_pylist())
    return [(partition, name) for partition, _, name in parts if not paths.is_merged(name)]


def file_and_attachment_paths(metadata: Metadata, snapshot: Snapshot) -> pa.Array:
    """Return the distinct paths of data files and their attachments -> string[n].

    Covers the readable snapshots from the horizon to ``snapshot``, without older tagged snapshots.
    """
    horizon = snapshot.retention.horizon
    files = _files(metadata, horizon, snapshot.seq)
    maps = [
        record.table("maps")["key_map_path"]
        for record in metadata.records(horizon + 1, snapshot.seq)
    ]
    return _distinct([file_paths(files), files["key_map_path"], *maps])


def garbage_after(metadata: Metadata, snapshot: Snapshot, horizon: int) -> pa.Table:
    """Return ``path`` and ``size`` of the data files that become garbage with the horizon
    ``horizon``.

    Snapshots between the current and the new horizon refer to them, but neither the new horizon nor
    a tagged snapshot does.  Removed files never return.
    """
    files = _files(metadata, snapshot.retention.horizon, horizon)
    older = (
        pa.table({"path": file_paths(files), "size": files["size"]})
        .group_by("path")
        .aggregate([("size", "max")])
    )
    older = older.rename_columns(["path", "size"])
    retained = _distinct(
        [
            file_paths(_files(metadata, horizon, horizon)),
            *_tagged_paths(metadata, snapshot, horizon),
        ]
    )
    return older.filter(pc.invert(pc.is_in(older["path"], retained)))


def all_paths(metadata: Metadata, snapshot: Snapshot) -> pa.Array:
    """Return the distinct paths of all data files, attachments and key parts in use -> string[n].

    Besides the readable snapshots, includes the key parts of every checkpoint and record in the
    log, since snapshots are made from them.  Raises Missing if a record is missing, because its
    references are then unknown.
    """
    horizon = snapshot.retention.horizon
    files = _files(metadata, horizon, snapshot.seq)
    used = [file_paths(files), files["key_map_path"], *_attachment_paths(metadata.state(horizon))]
    used += _tagged_paths(metadata, snapshot, horizon)
    for record in metadata.records(snapshot.retention.first, snapshot.seq):
        sections = ("key_parts",) if record.seq <= horizon else ("key_parts", "summaries", "covers")
        used += [record.table(section)["path"] for section in sections]
        used.append(record.table("maps")["key_map_path"])
    manifests = [
        info
        for info in metadata.storage.list_dir(paths.CHECKPOINTS_DIR)
        if paths.seq_of(info.path) is not None
    ]
    return _distinct([*used, *(_checkpoint_paths(metadata, manifest) for manifest in manifests)])


def _checkpoint_paths(metadata: Metadata, manifest: ObjectInfo) -> pa.Array:
    """Return the paths of the key parts of a checkpoint, which its writer has chosen.

    A damaged checkpoint has none, as no snapshot is made from it.
    """
    referred = metadata.referred.get(manifest)
    if referred is not None:
        return referred
    try:
        seq = paths.seq_of(manifest.path)
        assert seq is not None, "the path of a manifest"
        used = _key_parts(metadata.checkpoints.open(seq).snapshot)
    except Corrupt:
        return pa.array([], pa.string())
    return _cached(metadata, manifest, used)


def _cached(metadata: Metadata, key: Hashable, paths_: pa.Array) -> pa.Array:
    return metadata.referred.put(key, paths_, paths_.nbytes + _ENTRY_BYTES)


def _key_parts(state: Snapshot) -> pa.Array:
    return pa.array(
        [part.stored.path for part in state.key_parts if part.stored is not None], pa.string()
    )
