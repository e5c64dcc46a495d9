"""How the flat table can be laid out and indexed: one row of data per variant, and the loading of
their tables.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import mdt
from benchmarks.ssb.queries import FILTERED
from indexes import registry

STORED_SHARE = 0.35
"""Bytes of a row in a file as a share of its bytes in Arrow: what mdt assumes for a first load."""

COMPRESSION = "lz4"
"""The default of mdt."""

ROW_ID = ("lo_orderkey", "lo_linenumber")
LAYOUTS = {
    "order": ROW_ID,
    "date": ("lo_orderdate", *ROW_ID),
    "region": ("s_region", "c_region", "p_mfgr", *ROW_ID),
}
"""Layout -> record key; a bulk load sorts by it.  Order dates are independent of order keys."""

BITMAPS = tuple(f"bitmap({column})" for column in FILTERED)


@dataclass(frozen=True)
class Stored:
    """One table: ``layout`` of LAYOUTS, whether it has column ``statistics``, its ``indexes``."""

    layout: str
    statistics: bool = True
    indexes: tuple[str, ...] = ()

    @property
    def missing(self) -> set[str]:
        """Kinds of indexes that are not installed."""
        kinds = {registry.parse_spec(text).kind for text in self.indexes}
        return {kind for kind in kinds if isinstance(registry.find(kind), registry.Unknown)}


@dataclass(frozen=True)
class Variant:
    """What a query runs against; ``plain``: Spark reads the Parquet files without mdt."""

    stored: Stored
    meaning: str
    plain: bool = False


VARIANTS = {
    "none": Variant(
        Stored("order", statistics=False),
        "in order of keys, no index: spark.read.parquet",
        plain=True,
    ),
    "stats": Variant(Stored("order"), "in order of keys, column statistics"),
    "sorted_plain": Variant(
        Stored("date"), "sorted by order date, no index: spark.read.parquet", plain=True
    ),
    "sorted": Variant(Stored("date"), "sorted by order date, column statistics"),
    "bitmap": Variant(
        Stored("date", indexes=BITMAPS), "sorted by order date, column statistics, bitmaps"
    ),
    "region": Variant(Stored("region"), "sorted by regions and manufacturer, column statistics"),
    "region_bitmap": Variant(Stored("region", indexes=BITMAPS), "the same with bitmaps"),
}
"""By name; the first is the reference that others are compared with."""
REFERENCE = "none"


@dataclass(frozen=True)
class Loaded:
    """A table after its load: seconds it took, bytes of data and of all metadata, number of
    files.
    """

    table: mdt.Table
    seconds: float
    data_bytes: int
    metadata_bytes: int
    files: int

    @property
    def paths(self) -> list[str]:
        """The data files."""
        return [
            str(Path(self.table.path) / name) for name in self.table.files()["name"].to_pylist()
        ]


def load(
    stored: Stored, rows: pa.Table, path: Path, rows_per_file: int, compression: str = COMPRESSION
) -> Loaded:
    """Write ``rows`` to a new table at ``path``, in files of about ``rows_per_file``."""
    options: dict[str, object] = {
        "mdt.compression": compression,
        "mdt.max.file.bytes": max(
            1024, int(rows_per_file * STORED_SHARE * rows.nbytes / len(rows))
        ),
        "mdt.durable": False,
    }
    if not stored.statistics:
        options["mdt.column.stats.columns"] = ""
    key = LAYOUTS[stored.layout]
    started = time.perf_counter()
    table = mdt.create(path, rows.schema, key=key, indexes=stored.indexes, options=options)
    table.bulk_insert(rows)
    seconds = time.perf_counter() - started
    data = sum(table.files()["size"].to_pylist())
    metadata = sum(f.stat().st_size for f in (path / ".hoodie").rglob("*") if f.is_file())
    return Loaded(mdt.open(path), seconds, data, metadata, len(table.files()))


def usable(names: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Return the variants among ``names`` whose indexes are installed, and why the others are not
    run.
    """
    reasons = {name: ", ".join(sorted(VARIANTS[name].stored.missing)) for name in names}
    return [n for n in reasons if not reasons[n]], {
        n: f"no index {r!r}" for n, r in reasons.items() if r
    }
