"""Extracts: where indexes leave single rows of many files, these are copied into one small Parquet file for Spark.

Spark's scan reads whole row groups; an index that knows positions could only leave out files.  So the driver reads the
pages that hold the rows that are left, of the columns that the query uses, and Spark reads the copy in the place of the
files.  Whatever Spark tests, it tests again.  The file is deleted with the query.

What it buys, of 4 M rows in 38 files, whole queries on two processors: 0.3 to 0.4 s of processor time where Spark's reading of
the files takes 0.6 to 2.1 (single values, ten values, a hundred neighbouring ones); nothing and no loss where most rows match.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from mdt.config import Options
from mdt.hudi.schema import with_meta
from mdt.metadata.metadata import Metadata
from mdt.plan.planner import ScanPlan, SegmentScan
from mdt.scan.reader import read
from mdt.scan.tasks import decoded_rows
from mdt.stores.storage import Storage

ROWS_RATIO_MIN = 2
"""So many rows of a file must be spared for each row that is decoded for the copy.  Spark takes some five times as long for
a row as we do, but may have more processors than the driver: with more than four for each of its threads, more must be."""
VALUES_MAX = 32 << 20
"""Values that are decoded for one copy, some 300 ms of processor time."""


@dataclass(frozen=True, slots=True)
class Extract:
    """Rows of the files numbered ``segments``.  ``path``: of the copy in the scratch storage, None without rows; its ``size``."""

    segments: frozenset[int]
    path: str | None
    size: int


def extracted(
    metadata: Metadata, options: Options, scratch: Storage, plan: ScanPlan, clean: frozenset[int], columns: Sequence[str],
    path: str, processors: int,
) -> Extract | None:  # fmt: skip
    """Copy the rows that ``plan`` leaves of files without dead rows to ``path``, None if Spark had better read the files.

    ``clean``: the numbers of such files.  ``columns``: all that the query uses.  ``processors``: how many Spark has.
    """
    known = with_meta(plan.snapshot.definition.schema)
    if not columns or any(name not in known.names for name in columns):
        return None
    schema = pa.schema([known.field(name) for name in columns])
    ratio = max(ROWS_RATIO_MIN, processors // (2 * options.threads("reader")))
    scans = _worth_it(metadata, options.spark_extract_rows_min, ratio, plan, clean, schema)
    if not scans:
        return None
    wanted = replace(plan, predicate=None, segments=scans)
    tables = list(read(metadata, wanted, schema.names, threads=options.threads("reader")))
    segments = frozenset(scan.file for scan in scans)
    if not tables:
        return Extract(segments, None, 0)
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.concat_tables(tables).cast(schema), sink, store_schema=False, compression="none", use_dictionary=False,
        write_statistics=False, write_page_checksum=True,
    )  # fmt: skip
    data = sink.getvalue()
    scratch.put_if_absent(path, data)
    return Extract(segments, path, len(data))


def _worth_it(
    metadata: Metadata, rows_min: int, ratio: int, plan: ScanPlan, clean: frozenset[int], schema: pa.Schema
) -> tuple[SegmentScan, ...]:
    """Return what to copy: nothing, unless that costs much less than reading the files."""
    scans = tuple(scan for scan in plan.segments if scan.positions is not None and scan.file in clean)
    rows = plan.snapshot.rows
    if int(rows[[scan.file for scan in scans]].sum()) < rows_min:
        return ()
    if sum(len(scan.positions) for scan in scans if scan.positions is not None) * len(schema) > VALUES_MAX:
        return ()
    decoded = decoded_rows(metadata, replace(plan, predicate=None, segments=scans), schema)
    chosen = tuple(s for s in scans if s.file in decoded and decoded[s.file] * ratio <= rows[s.file])
    spared = int(rows[[scan.file for scan in chosen]].sum())
    values = sum(decoded[scan.file] for scan in chosen) * len(schema)
    return chosen if spared >= rows_min and values <= VALUES_MAX else ()
