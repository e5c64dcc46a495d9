"""What the states of a table that can be read refer to: everything else that a listing finds may go, sooner or later.

Who owns an object that several files share?  Nobody: it stays while any state that can be read refers to any part of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Corrupt
from mdt.metadata.columns import no_rows
from mdt.metadata.file_group import FILES
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import Snapshot

_NAMES = ["partition", "name", "key_map_path"]


def _states(metadata: Metadata, snapshot: Snapshot, horizon: int) -> list[Snapshot]:
    """Return the state at ``horizon`` and those before it that have a tag.  Raises Corrupt if one of them cannot be read."""
    return [metadata.state(seq) for seq in (horizon, *snapshot.tags.before(horizon))]


def _files(metadata: Metadata, states: Sequence[Snapshot], last: int) -> pa.Table:
    """Return partition, name and key_map_path of all files of ``states``, the first of which is the horizon, and of those up to ``last``.

    States after the horizon have no file that is not there or in the records between.  O(files).
    """
    tables = [state.files.take(_NAMES, state.live_numbers) for state in states]
    tables += [record.table("files").select(_NAMES) for record in metadata.records(states[0].seq + 1, last)]
    return pa.concat_tables([no_rows(pa.schema([FILES.field(name) for name in _NAMES])), *tables])


def file_paths(table: pa.Table) -> pa.ChunkedArray:
    """Return the path of each file -> string[n].  ``table``: with ``partition`` and ``name``."""
    joined = pc.binary_join_element_wise(table["partition"], table["name"], "/")
    return pc.if_else(pc.equal(table["partition"], ""), table["name"], joined)


def data_files(metadata: Metadata, snapshot: Snapshot) -> pa.Array:
    """Return the paths of the data files that states of ``snapshot`` which can be read refer to, each once -> string[n]."""
    states = _states(metadata, snapshot, snapshot.retention.horizon)
    return file_paths(_files(metadata, states, snapshot.seq)).unique()


def of_files(metadata: Metadata, snapshot: Snapshot) -> pa.Array:
    """Return the same, and the attachments with key maps of these files -> string[n], each once."""
    files = _files(metadata, _states(metadata, snapshot, snapshot.retention.horizon), snapshot.seq)
    chunks = [*file_paths(files).chunks, *files["key_map_path"].chunks]
    return pa.chunked_array(chunks, pa.string()).unique().drop_null()


def left_by(metadata: Metadata, snapshot: Snapshot, horizon: int) -> pa.Array:
    """Return the paths of the data files that nobody needs any more when ``horizon`` is the oldest state -> string[n].

    States from the present horizon up to that one refer to them, and it does not, nor does one with a tag.  A file that has left never
    comes back.
    """
    older = file_paths(_files(metadata, _states(metadata, snapshot, snapshot.retention.horizon), horizon)).unique()
    kept = file_paths(_files(metadata, _states(metadata, snapshot, horizon), horizon))
    return older.filter(pc.invert(pc.is_in(older, kept.unique())))


def everything(metadata: Metadata, snapshot: Snapshot) -> pa.Array:
    """Return the paths of data files, attachments and key parts that must stay -> string[n], each once.

    Beside what the states refer to: key parts of every checkpoint, and of every record that is in the log, because a state is made
    from them.  Raises Missing if a record is gone: then nobody knows what it referred to.
    """
    horizon = snapshot.retention.horizon
    states = _states(metadata, snapshot, horizon)
    files = _files(metadata, states, snapshot.seq)
    found = [file_paths(files), files["key_map_path"], *map(_key_parts, states)]
    found += [state.summary_table(spec)["path"] for state in states for spec in state.definition.indexes]
    for record in metadata.records(snapshot.retention.first, snapshot.seq):
        sections = ("key_parts",) if record.seq <= horizon else ("key_parts", "summaries", "covers")
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
