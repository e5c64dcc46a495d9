"""What the states of a table that can be read refer to: everything else that a listing finds may
go, sooner or later.

Who owns an object that several files share?  Nobody: it stays while any state that can be read
refers to any part of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Corrupt
from mdt.metadata.files import paths
from mdt.metadata.files.file_group import FILES
from mdt.metadata.log.checkpoint_columns import no_rows
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.stores.contract import ObjectInfo

_NAMES = ["partition", "name", "key_map_path", "size"]
_ENTRY_BYTES = 1 << 9
"""What paths in memory take besides."""


def _files(metadata: Metadata, horizon: int, last: int) -> pa.Table:
    """Return partition, name, key_map_path and size of all files of the state at ``horizon``, and
    of those up to ``last``.

    States after the horizon have no file that is not there or in the records between.  O(files).
    """
    tables = [_files_of(metadata.state(horizon))]
    tables += [
        record.table("files").select(_NAMES) for record in metadata.records(horizon + 1, last)
    ]
    return pa.concat_tables([no_rows(pa.schema([FILES.field(name) for name in _NAMES])), *tables])


def _files_of(state: Snapshot) -> pa.Table:
    return state.files.take(_NAMES, state.live_numbers)


def _of_tags(metadata: Metadata, snapshot: Snapshot, horizon: int) -> list[pa.Array]:
    """Return the paths of everything that each tagged state before ``horizon`` refers to ->
    strings; from memory if this process has asked before.

    A state refers to the same for ever.  Raises Corrupt if one of them cannot be read.
    """
    found, listed = [], None
    for seq in snapshot.tags.before(horizon):
        known = metadata.referred.get(seq)
        if known is None:
            listed = metadata.checkpoints.listed() if listed is None else listed
            known = _kept(metadata, seq, _all_of(metadata.state(seq, listed)))
        found.append(known)
    return found


def _all_of(state: Snapshot) -> pa.Array:
    """Return the paths of data files, attachments and key parts of a state -> string[n], each
    once.
    """
    files = _files_of(state)
    return _each_once([file_paths(files), files["key_map_path"], *_besides_files(state)])


def _besides_files(state: Snapshot) -> list[pa.Array | pa.ChunkedArray]:
    return [
        _key_parts(state),
        *(state.summary_table(spec)["path"] for spec in state.definition.indexes),
    ]


def _each_once(found: Iterable[pa.Array | pa.ChunkedArray]) -> pa.Array:
    chunks = [
        chunk
        for column in found
        for chunk in (column.chunks if isinstance(column, pa.ChunkedArray) else [column])
    ]
    return pa.chunked_array(chunks, pa.string()).unique().drop_null()


def file_paths(table: pa.Table) -> pa.ChunkedArray:
    """Return the path of each file -> string[n].  ``table``: with ``partition`` and ``name``."""
    joined = pc.binary_join_element_wise(table["partition"], table["name"], "/")
    return pc.if_else(pc.equal(table["partition"], ""), table["name"], joined)


def data_files(metadata: Metadata, snapshot: Snapshot) -> pa.Array:
    """Return the paths of the data files that states of ``snapshot`` which can be read refer to ->
    string[n], each once.

    With everything else that tagged states refer to.
    """
    horizon = snapshot.retention.horizon
    files = _files(metadata, horizon, snapshot.seq)
    return _each_once([file_paths(files), *_of_tags(metadata, snapshot, horizon)])


def of_files(metadata: Metadata, snapshot: Snapshot) -> pa.Array:
    """Return the paths of the data files of readable states, but for those with tags, and of the
    attachments with their key maps -> string[n], each once.
    """
    horizon = snapshot.retention.horizon
    files = _files(metadata, horizon, snapshot.seq)
    maps = [
        record.table("maps")["key_map_path"]
        for record in metadata.records(horizon + 1, snapshot.seq)
    ]
    return _each_once([file_paths(files), files["key_map_path"], *maps])


def left_by(metadata: Metadata, snapshot: Snapshot, horizon: int) -> pa.Table:
    """Return ``path`` and ``size`` of the data files that nobody needs any more when ``horizon`` is
    the oldest state.

    States from the present horizon up to that one refer to them, and it does not, nor does one with
    a tag.  A file that has left never comes back.
    """
    files = _files(metadata, snapshot.retention.horizon, horizon)
    older = (
        pa.table({"path": file_paths(files), "size": files["size"]})
        .group_by("path")
        .aggregate([("size", "max")])
    )
    older = older.rename_columns(["path", "size"])
    kept = _each_once(
        [file_paths(_files(metadata, horizon, horizon)), *_of_tags(metadata, snapshot, horizon)]
    )
    return older.filter(pc.invert(pc.is_in(older["path"], kept)))


def everything(metadata: Metadata, snapshot: Snapshot) -> pa.Array:
    """Return the paths of data files, attachments and key parts that must stay -> string[n], each
    once.

    Beside what the states refer to: key parts of every checkpoint, and of every record that is in
    the log, because a state is made from them.  Raises Missing if a record is gone: then nobody
    knows what it referred to.
    """
    horizon = snapshot.retention.horizon
    files = _files(metadata, horizon, snapshot.seq)
    found = [file_paths(files), files["key_map_path"], *_besides_files(metadata.state(horizon))]
    found += _of_tags(metadata, snapshot, horizon)
    for record in metadata.records(snapshot.retention.first, snapshot.seq):
        sections = ("key_parts",) if record.seq <= horizon else ("key_parts", "summaries", "covers")
        found += [record.table(section)["path"] for section in sections]
        found.append(record.table("maps")["key_map_path"])
    manifests = [
        info
        for info in metadata.storage.list_dir(paths.checkpoints_dir())
        if paths.seq_of(info.path) is not None
    ]
    return _each_once([*found, *(_of_checkpoint(metadata, manifest) for manifest in manifests)])


def _of_checkpoint(metadata: Metadata, manifest: ObjectInfo) -> pa.Array:
    """Return the paths of the key parts of a checkpoint, which whoever wrote it has chosen; of a
    damaged one none: no state is made from it.
    """
    known = metadata.referred.get(manifest)
    if known is not None:
        return known
    try:
        seq = paths.seq_of(manifest.path)
        assert seq is not None, "the path of a manifest"
        found = _key_parts(metadata.checkpoints.open(seq).snapshot)
    except Corrupt:
        return pa.array([], pa.string())
    return _kept(metadata, manifest, found)


def _kept(metadata: Metadata, key: Hashable, found: pa.Array) -> pa.Array:
    return metadata.referred.put(key, found, found.nbytes + _ENTRY_BYTES)


def _key_parts(state: Snapshot) -> pa.Array:
    return pa.array(
        [part.stored.path for part in state.key_parts if part.stored is not None], pa.string()
    )
