"""SQL functions ``mdt_history('t')``, ``mdt_files('t')`` and ``mdt_snapshots('t')``: metadata of a
table as rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from mdt.metadata.files.file_group import BASE
from mdt.table import Table


def files(table: Table) -> pa.Table:
    """Return the current files with path, kind, size, and the commit that wrote them."""
    listed = table.files()
    kind = pc.if_else(pc.equal(listed["kind"], BASE), "base", "log")
    return pa.table(
        {
            "partition": listed["partition"],
            "name": listed["name"],
            "kind": kind,
            "file_group": listed["file_id"],
            "rows": listed["rows"],
            "bytes": listed["size"],
            "instant": listed["instant"],
        }
    )


def snapshots(table: Table) -> pa.Table:
    """Return the states that VERSION AS OF can read: commits with their tags."""
    commits, newest = table.history(), table.snapshot()
    readable = [newest.is_kept(seq) for seq in commits["seq"].to_pylist()]
    names = dict[int, list[str]]()
    for name, seq in newest.tags.seqs.items():
        names.setdefault(seq, []).append(name)
    rows = commits.filter(pa.array(readable, pa.bool_())).drop_columns(["txn", "rolled_back"])
    tags = [sorted(names.get(seq, [])) for seq in rows["seq"].to_pylist()]
    return rows.append_column("tags", pa.array(tags, pa.list_(pa.string())))


INSPECTED: Mapping[str, Callable[[Table], pa.Table]] = {
    "history": Table.history,
    "files": files,
    "snapshots": snapshots,
}
"""Name of a table function without ``mdt_`` -> function of its rows."""
