"""Reads rows of a file with a snapshot's columns, for any schema version of the file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mdt.parquet.segment import Segment
from mdt.parquet.segment_rows import Footers, read_rows
from mdt.schema.definition import TableDefinition
from mdt.schema.older_files import form_of
from mdt.stores.storage import Storage


def read_columns(
    storage: Storage,
    definition: TableDefinition,
    segment: Segment,
    schema: pa.Schema,
    *,
    row_groups: Sequence[int] | None = None,
    mask: npt.NDArray[np.bool_] | None = None,
    use_threads: bool = True,
    footers: Footers | None = None,
) -> pa.Table:
    """Return the columns ``schema`` of ``segment``, dead rows included.

    ``schema`` has columns of the table ``definition``.  The other arguments are those of
    :func:`mdt.parquet.segment_rows.read_rows`, which ignores schema versions.
    """
    form = form_of(definition, segment.id, schema)
    if form is not None:
        schema = form.stored
    table = read_rows(
        storage,
        segment,
        schema,
        row_groups=row_groups,
        mask=mask,
        use_threads=use_threads,
        footers=footers,
    )
    if form is None:
        return table
    return form.convert(table)
