"""``python -m benchmarks.tpcds``: queries of TPC-DS on Spark, plain Parquet beside tables of mdt; a
wrong answer fails the run.

Rows of plain Parquet are compared with those of duckdb, rows of tables with those of plain Parquet.
What is printed is what `python -m benchmarks.tpch` prints.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.spark.environments import Missing
from benchmarks.ssb import spark as engine
from benchmarks.tpcds import tables
from benchmarks.tpcds.queries import NAMES, agree, answer, queries
from benchmarks.tpch import front
from benchmarks.tpch.measure import CLEAN, DIRTY, PLAIN, Figure, Run, WrongAnswer, told


def named(names: str) -> list[str]:
    """Return the queries that were named by commas; all without a name."""
    wanted = [name for name in names.split(",") if name] or list(NAMES)
    if unknown := [name for name in wanted if name not in NAMES]:
        raise typer.BadParameter(f"unknown queries {unknown}; known are {', '.join(NAMES)}")
    return wanted


def tpcds(run: Run, names: Sequence[str], made: Path) -> Iterator[list[Figure]]:
    """Yield the figures of the queries that were named, as they are measured. ``made``: what was
    generated. Raises WrongAnswer.
    """
    run.open()
    for name, text in queries(made).items():
        if name in names:
            with run.on(run.variants[0]):
                rows = [tuple(row) for row in run.spark.sql(text).collect()]
            if not agree(rows, answer(made, name)):
                raise WrongAnswer(f"{name}: Spark's rows of plain Parquet are not duckdb's")
            yield run.query(name, text)


def main(
    scale: Annotated[
        float, typer.Option(min=0.001, help="scale factor: 2.9 M rows of store_sales each 1.0")
    ] = 1.0,
    only: Annotated[
        str, typer.Option("--queries", help=f"by commas, of {', '.join(NAMES)}; all without it")
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
    environments: Annotated[
        Path,
        typer.Option(
            help="folder in which the environment of duckdb's extension is made, and stays"
        ),
    ] = Path(".spark-engines"),
) -> None:
    """Measure queries of TPC-DS."""
    which, names = front.chosen(variants, front.settings(against or [])), named(only)
    dirty = any(variant.kind == DIRTY for variant in which)
    with (
        front.kept(keep, scale) as folder,
        tempfile.TemporaryDirectory(prefix="mdt-spark-") as local,
    ):
        made = folder / "made"
        try:
            tables.generated(made, scale, environments.resolve())
        except Missing as reason:
            front.people.print(f"[red]{reason}")
            sys.exit(2)
        front.load(folder, tables.LAYOUTS, partial(tables.ordered, made), scale, compression, dirty)
        with (
            engine.session(local, threads) as spark,
            told(spark, (front.CBO if cbo else {}) | front.settings(set_ or [])),
        ):
            run = Run(
                spark, folder, list(tables.LAYOUTS), which, runs, front.progress, warm, warm_seconds
            )
            title = f"TPC-DS, scale factor {scale:g}, median of {runs}"
            front.shown([(title, tpcds(run, names, made))], out, markdown)


if __name__ == "__main__":
    typer.run(main)
