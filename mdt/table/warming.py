"""Filling a table's caches before its first query."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from mdt.errors import Corrupt, Invalid
from mdt.filters.where import parse_where
from mdt.metadata.skipping_indexes import index_of
from mdt.progress import Progress
from mdt.query import Scan, checked_columns
from mdt.scan import lookup
from mdt.scan import warm as loading
from mdt.scan.warm import WarmResult

if TYPE_CHECKING:
    from mdt.metadata.snapshot.snapshot import Snapshot
    from mdt.table.handle import Handle


def warm(
    table: Handle,
    columns: Sequence[str] | None,
    kinds: Collection[str],
    progress: Progress | None = None,
    *,
    elsewhere: Collection[str] = (),
) -> WarmResult:
    """Load the metadata that queries of the newest snapshot use for ``columns`` (None for all).

    kinds: The kinds of metadata to load.
    elsewhere: Indexes whose summaries are not read in this process.
    """
    snapshot, definition = table.snapshot(), table.definition
    names = None if columns is None else checked_columns(snapshot, columns)
    with_keys = names is None or set(definition.key) <= set(names)
    specs = [
        spec
        for spec in definition.indexes
        if spec not in elsewhere
        and (names is None or set(names).intersection(index_of(spec)[0].columns))
    ]
    table.metadata.warm(names)
    chosen_kinds = [
        kind for kind in loading.KINDS if kind in kinds and (kind != "key_maps" or with_keys)
    ]
    threads = table.options.threads("reader")
    loaded = loading.warm(
        table.metadata, snapshot, threads, chosen_kinds, specs=specs, progress=progress
    )
    _rehearse(table, snapshot, with_keys)
    return loaded


def _rehearse(table: Handle, snapshot: Snapshot, with_keys: bool) -> None:
    """Run a filter and a look-up, which import modules and prepare for the schema."""
    definition, metadata = snapshot.definition, table.metadata
    parse_where(f"`{definition.schema.names[0]}` is null", definition.declared)
    names = list(dict.fromkeys((*definition.key, *definition.partition_by)))
    with suppress(Corrupt, Invalid), metadata.reading(snapshot):
        sample = Scan(metadata, snapshot, None, names, table.options, limit=1).to_arrow()
        if with_keys and definition.key and len(sample):
            positions = lookup.key_rows(metadata, snapshot, sample)
            lookup.rows_at(
                metadata, snapshot, positions, tuple(names), threads=table.options.threads("reader")
            )
