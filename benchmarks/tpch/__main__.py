"""``python -m benchmarks.tpch``: TPC-H on Spark, plain Parquet beside tables of mdt; a wrong answer
fails the run.

Prints seconds of each query on each variant, and how they stand to those of plain Parquet (below 1:
faster); processor seconds beside them, which say more on a busy machine. Files lie in the page
cache after the first run. Spark spends 0.1 to 0.3 s on a query before it reads a row: at small
scales that is all. `--set` and `--cbo` hold for all variants; `--against` measures the tables of
mdt a second time under settings of their own, in the same rounds.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer
from pyspark.sql import SparkSession

from benchmarks.ssb import spark as engine
from benchmarks.tpch import front, skipping, tables
from benchmarks.tpch.front import CBO, chosen, kept, settings
from benchmarks.tpch.measure import CLEAN, DIRTY, FILES, PLAIN, Figure, Run, Variant, told
from benchmarks.tpch.queries import NAMES, queries

MICRO = "skipping"


def named(names: str) -> list[str]:
    """Return the queries and groups of workloads that were named by commas; all without a name."""
    wanted = [name for name in names.split(",") if name] or [*NAMES, MICRO]
    if unknown := [name for name in wanted if name not in (*NAMES, MICRO)]:
        raise typer.BadParameter(f"unknown queries {unknown}; known are Q1 to Q22 and {MICRO!r}")
    return wanted


def made(folder: Path, scale: float, name: str) -> pa.Table:
    """Return the rows of a table in its order; all are generated into ``folder`` with the first."""
    if not (folder / f"{name}.parquet").exists():
        tables.generate(folder, scale)
    return tables.rows(folder, name, tables.LAYOUTS[name])


def tpch(run: Run, names: Sequence[str], scale: float) -> Iterator[list[Figure]]:
    """Yield the figures of the queries that were named, as they are measured. Raises
    WrongAnswer.
    """
    run.open()
    for name, text in queries(scale).items():
        if name in names:
            yield run.query(name, text)


def micro(run: Run) -> Iterator[list[Figure]]:
    """Yield the figures of the workloads that count files. Raises WrongAnswer."""
    run.open()
    for workload in skipping.WORKLOADS:
        figures = run.query(workload.name, workload.sql)
        for figure, variant in zip(figures, run.variants, strict=True):
            with run.on(variant):
                figure.files = skipping.files_read(run.spark, workload.sql, workload.marker)
            kind = CLEAN if variant.kind == FILES else variant.kind
            figure.files_total = skipping.files_in(run.folder, kind, "events")
        yield figures


def groups(
    spark: SparkSession,
    folder: Path,
    variants: Sequence[Variant],
    names: Sequence[str],
    scale: float,
    runs: int,
    warm: int,
    warm_seconds: float,
) -> Iterator[tuple[str, Iterator[list[Figure]]]]:
    """Yield what is measured: the queries of TPC-H, then the workloads that count files; with a
    title.
    """
    if [name for name in names if name != MICRO]:
        run = Run(
            spark, folder, list(tables.LAYOUTS), variants, runs, front.progress, warm, warm_seconds
        )
        yield f"TPC-H, scale factor {scale:g}, median of {runs}", tpch(run, names, scale)
    if MICRO in names:
        run = Run(
            spark,
            folder / MICRO,
            skipping.TABLES,
            variants,
            runs,
            front.progress,
            warm,
            warm_seconds,
        )
        yield f"What scans skip, scale factor {scale:g}, median of {runs}", micro(run)


def main(
    scale: Annotated[
        float, typer.Option(min=0.001, help="scale factor: 6 M rows of lineitem each 1.0")
    ] = 1.0,
    only: Annotated[
        str, typer.Option("--queries", help=f"by commas, Q1 to Q22 and {MICRO}; all without it")
    ] = "",
    variants: front.Variants = f"{PLAIN},{CLEAN}",
    runs: front.Runs = 3,
    warm: front.Warm = 4,
    warm_seconds: front.WarmSeconds = 15.0,
    cbo: front.Cbo = False,
    set_: front.Set = None,
    against: front.Against = None,
    compression: front.Compression = "snappy",
    threads: front.Threads = 2,
    keep: front.Keep = None,
    out: front.Out = None,
    markdown: front.Markdown = None,
) -> None:
    """Measure the 22 queries of TPC-H, and two small workloads that count files."""
    which, names = chosen(variants, settings(against or [])), named(only)
    dirty = any(variant.kind == DIRTY for variant in which)
    with kept(keep, scale) as folder, tempfile.TemporaryDirectory(prefix="mdt-spark-") as local:
        try:
            front.load(
                folder,
                tables.LAYOUTS,
                partial(made, folder / "made", scale),
                scale,
                compression,
                dirty,
            )
            if MICRO in names and not (folder / MICRO / (DIRTY if dirty else CLEAN)).exists():
                skipping.load(folder / MICRO, scale, compression, dirty)
        except tables.NoGenerator as error:
            front.people.print(f"[red]{error}")
            sys.exit(2)
        with (
            engine.session(local, threads) as spark,
            told(spark, (CBO if cbo else {}) | settings(set_ or [])),
        ):
            front.shown(
                groups(spark, folder, which, names, scale, runs, warm, warm_seconds), out, markdown
            )


if __name__ == "__main__":
    typer.run(main)
