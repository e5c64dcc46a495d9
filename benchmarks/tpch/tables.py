"""TPC-H's eight tables: made by tpchgen-cli, put in order, and written as plain Parquet and as
tables of mdt.

Both have the same rows in the same order in about the same files: orders by date of order, lineitem
by date of shipping, the others by key. Plain files are what `pyarrow.parquet.write_table` makes,
one row group a file, the columns' codec an option.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import mdt

GENERATOR = "tpchgen-cli"
DIRTY_EVERY = 100
"""One row of so many is written again where a table is to be dirty."""
OPTIONS = {"mdt.small.file.bytes": 0, "mdt.services.auto": False, "mdt.durable": False}
STORED_SHARE = 0.62
"""Bytes of a row in a file as a share of its bytes in Arrow: what mdt assumes for a first load, and
a little more.
"""


@dataclass(frozen=True)
class Layout:
    """One table: its primary ``key``, the columns that rows are in ``order`` by, and in how many
    ``files`` at scale factor 1.
    """

    key: tuple[str, ...]
    files: int
    order: tuple[str, ...] = ()

    @property
    def sorted_by(self) -> tuple[str, ...]:
        """Columns that decide the place of every row."""
        return (*self.order, *self.key)

    def files_at(self, scale: float) -> int:
        """Return the files at a scale factor: some even where it is small, so that there is
        something to skip.
        """
        return max(min(self.files, 8), round(self.files * scale))


LAYOUTS = {
    "region": Layout(("r_regionkey",), 1),
    "nation": Layout(("n_nationkey",), 1),
    "supplier": Layout(("s_suppkey",), 1),
    "customer": Layout(("c_custkey",), 8),
    "part": Layout(("p_partkey",), 8),
    "partsupp": Layout(("ps_partkey", "ps_suppkey"), 16),
    "orders": Layout(("o_orderkey",), 64, ("o_orderdate",)),
    "lineitem": Layout(("l_orderkey", "l_linenumber"), 64, ("l_shipdate",)),
}
"""By name of the table."""


class NoGenerator(RuntimeError):
    """tpchgen-cli is not installed; the extra `bench` has it."""


def generator() -> str:
    """Return the path of tpchgen-cli: beside this interpreter, or on the path of the process.
    Raises NoGenerator.
    """
    beside = Path(sys.executable).with_name(GENERATOR)
    if found := str(beside) if beside.exists() else shutil.which(GENERATOR):
        return found
    raise NoGenerator(f"{GENERATOR} is not installed: pip install 'pyspark-mdt[bench]'")


def generate(folder: Path, scale: float) -> None:
    """Write the eight tables as tpchgen-cli makes them, a Parquet file each, into ``folder``."""
    told = ["parquet", "-s", f"{scale:g}", f"--output-dir={folder}", "--quiet"]
    subprocess.run([generator(), *told], check=True)


def rows(folder: Path, name: str, layout: Layout) -> pa.Table:
    """Return the rows of a generated table, in its layout's order, with types that Spark and mdt
    have: strings, long integers, decimals, dates.
    """
    found = pq.read_table(folder / f"{name}.parquet")
    fields = [
        (field.name, pa.string() if pa.types.is_string_view(field.type) else field.type)
        for field in found.schema
    ]
    return found.cast(pa.schema(fields)).sort_by(
        [(column, "ascending") for column in layout.sorted_by]
    )


def write_plain(data: pa.Table, folder: Path, files: int, compression: str = "snappy") -> None:
    """Write rows, as they stand, to so many Parquet files of equal length."""
    folder.mkdir(parents=True)
    each = -(-len(data) // files)
    for number in range(files):
        part = data.slice(number * each, each)
        if len(part) or not number:
            pq.write_table(
                part,
                folder / f"part-{number:05}.parquet",
                compression=compression,
                row_group_size=max(1, each),
            )


def write_table(data: pa.Table, path: Path, layout: Layout, files: int) -> mdt.Table:
    """Write rows to a new table with about so many files in the layout's order."""
    first = {**OPTIONS, "mdt.max.file.bytes": max(1024, int(STORED_SHARE * data.nbytes / files))}
    table = mdt.create(path, data.schema, key=layout.key, table_type="MERGE_ON_READ", options=first)
    table.bulk_insert(data)
    if layout.order:
        stored = sum(table.files()["size"].to_pylist())
        mdt.open(path, {**OPTIONS, "mdt.max.file.bytes": max(1024, stored // files + 1)}).cluster(
            layout.sorted_by
        )
    return mdt.open(path)


def write_dirty(data: pa.Table, clean: Path, path: Path) -> mdt.Table:
    """Copy a table and upsert one row of a hundred as it is: every file has dead rows then, and a
    log file.
    """
    shutil.copytree(clean, path)
    table = mdt.open(path, OPTIONS)
    table.upsert(data.take(np.arange(0, len(data), DIRTY_EVERY)))
    return table
