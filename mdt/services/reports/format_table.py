"""A table of the formats of a table, and how far the readers of each are."""

from __future__ import annotations

import pyarrow as pa

from mdt.catalogs import pointers
from mdt.commit import publish
from mdt.config import HUDI_FORMAT
from mdt.formats.registry import formats_of
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot

FORMATS = pa.schema([("format", pa.string()), ("seq", pa.int64()), ("behind", pa.int64())])
"""A row for each format: the newest commit that all of its readers see, or the one before its
begin, and the number of later commits. Some readers of Iceberg go no further than its hint. The
entry in a catalog of Iceberg has a row of its own, with nulls if the catalog has no commit of ours
or does not answer.
"""


def format_table(metadata: Metadata, snapshot: Snapshot) -> pa.Table:
    """Return how far each format of a table is, schema FORMATS. O(1), or O(commits behind)."""
    definition, storage = snapshot.definition, metadata.storage
    newest = {HUDI_FORMAT: snapshot.seq}
    record = metadata.record(snapshot.seq)
    while record is not None and not publish.is_published(storage, record, definition):
        newest[HUDI_FORMAT] = record.seq - 1
        record = metadata.record(record.seq - 1) if record.seq else None
    for form in formats_of(definition):
        seq = snapshot.seq
        first = max(snapshot.retention.first, definition.begin_of_format(form.name))
        while seq >= first and storage.size(form.path(seq)) is None:
            seq -= 1
        if form.stays_at_start:
            start = form.newest_start(storage)
            is_dead = storage.size(form.path(start)) is None
            seq = first - 1 if is_dead else min(seq, start)
        newest[form.name] = seq
    rows = list[tuple[str, int | None, int | None]]()
    rows += [(name, seq, snapshot.seq - seq) for name, seq in newest.items()]
    place = pointers.standing(metadata, snapshot)
    if place is not None:
        rows.append((f"iceberg in {place.name}", place.seq, place.behind))
    return pa.table(list(map(list, zip(*rows, strict=True))), schema=FORMATS)
