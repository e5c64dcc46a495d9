"""What the states of a table that can be read refer to: everything else that a listing finds may go, sooner or later.

Who owns an object that several files share?  Nobody: it stays while any state that can be read refers to any part of it.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Corrupt
from mdt.metadata.columns import no_rows
from mdt.metadata.file_group import FILES
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import Snapshot

_NAMES = ["partition", "name", "key_map_path"]


def _files(metadata: Metadata, snapshot: Snapshot, oldest: Snapshot) -> pa.Table:
    """Return partition, name and key_map_path of all files of the states from ``oldest`` to ``snapshot``.  O(files).

    States after the oldest have no file that is not there or in the records between.
    """
    tables = [oldest.listing().select(_NAMES)]
    tables += [record.table("files").select(_NAMES) for record in metadata.records(oldest.seq + 1, snapshot.seq)]
    return pa.concat_tables([no_rows(pa.schema([FILES.field(name) for name in _NAMES])), *tables])


def file_paths(table: pa.Table) -> pa.ChunkedArray:
    """Return the path of each file -> string[n].  ``table``: with ``partition`` and ``name``."""
    joined = pc.binary_join_element_wise(table["partition"], table["name"], "/")
    return pc.if_else(pc.equal(table["partition"], ""), table["name"], joined)


def data_files(metadata: Metadata, snapshot: Snapshot, horizon: int | None = None) -> pa.Array:
    """Return the paths of the data files that states of ``snapshot`` which can be read refer to, each once -> string[n].

    ``horizon``: the oldest of these states, if it shall be another one.
    """
    oldest = metadata.state(snapshot.retention.horizon if horizon is None else horizon)
    return file_paths(_files(metadata, snapshot, oldest)).unique()


def everything(metadata: Metadata, snapshot: Snapshot) -> pa.Array:
    """Return the paths of data files, attachments and key parts that must stay -> string[n], each once.

    Beside what the states refer to: key parts of every checkpoint, and of every record that is in the log, because a state is made
    from them.  Raises Missing if a record is gone: then nobody knows what it referred to.
    """
    oldest = metadata.state(snapshot.retention.horizon)
    files = _files(metadata, snapshot, oldest)
    found = [file_paths(files), files["key_map_path"], _key_parts(oldest)]
    found += [oldest.summary_table(spec)["path"] for spec in oldest.definition.indexes]
    for record in metadata.records(snapshot.retention.first, snapshot.seq):
        sections = ("key_parts",) if record.seq <= oldest.seq else ("key_parts", "summaries", "covers")
        found += [record.table(section)["path"] for section in sections]
    for seq in metadata.checkpoints.listed():
        try:
            found.append(_key_parts(metadata.checkpoints.open(seq).snapshot))
        except Corrupt:
            continue  # no state is made from it
    chunks = [
        chunk for column in found for chunk in (column.chunks if isinstance(column, pa.ChunkedArray) else [column])
    ]
    return pa.chunked_array(chunks, pa.string()).unique().drop_null()


def _key_parts(state: Snapshot) -> pa.Array:
    return pa.array([part.stored.path for part in state.key_parts if part.stored is not None], pa.string())
