"""``python -m benchmarks.tpch``: TPC-H on Spark, plain Parquet beside tables of mdt; a wrong answer fails the run.

Prints seconds of each query on each variant, and how they stand to those of plain Parquet (below 1: faster); processor seconds beside them, which say more
on a busy machine. Files lie in the page cache after the first run. Spark spends 0.1 to 0.3 s on a query before it reads a row: at small scales that is all.
`--set` and `--cbo` hold for all variants; `--against` measures the tables of mdt a second time under settings of their own, in the same rounds.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks.ssb import spark as engine
from benchmarks.tpch import report, skipping, tables
from benchmarks.tpch.measure import CLEAN, DIRTY, FILES, MEANINGS, PLAIN, Figure, Run, Variant, WrongAnswer, told
from benchmarks.tpch.queries import NAMES, queries

CBO = {"spark.sql.cbo.enabled": "true", "spark.sql.cbo.joinReorder.enabled": "true"}
MICRO = "skipping"
people = Console(stderr=True, width=200, highlight=False)


def settings(texts: Sequence[str]) -> dict[str, str]:
    """Return settings that were given as ``key=value``."""
    if wrong := [text for text in texts if "=" not in text]:
        raise typer.BadParameter(f"{wrong[0]!r} is not key=value")
    return {text.partition("=")[0]: text.partition("=")[2] for text in texts}


def chosen(names: str, against: dict[str, str]) -> list[Variant]:
    """Return the variants named by commas, the reference first, those of mdt once more under the settings ``against``."""
    wanted = dict.fromkeys([PLAIN, *(name for name in names.split(",") if name)])
    if unknown := [name for name in wanted if name not in MEANINGS]:
        raise typer.BadParameter(f"unknown variants {unknown}; known are {list(MEANINGS)}")
    found = [Variant(name, name) for name in wanted]
    return found + [Variant(f"{name}*", name, against) for name in wanted if against and name in (CLEAN, DIRTY)]


def named(names: str) -> list[str]:
    """Return the queries and groups of workloads that were named by commas; all without a name."""
    wanted = [name for name in names.split(",") if name] or [*NAMES, MICRO]
    if unknown := [name for name in wanted if name not in (*NAMES, MICRO)]:
        raise typer.BadParameter(f"unknown queries {unknown}; known are Q1 to Q22 and {MICRO!r}")
    return wanted


def load(folder: Path, scale: float, compression: str, dirty: bool) -> None:
    """Make the eight tables of TPC-H below ``folder`` in every form, where they are not there yet."""
    for name, layout in tables.LAYOUTS.items():
        done = folder / f"{name}.{'dirty' if dirty else 'clean'}"
        if done.exists():
            continue
        started = time.perf_counter()
        if not (folder / "made" / f"{name}.parquet").exists():
            tables.generate(folder / "made", scale)
        data, files = tables.rows(folder / "made", name), layout.files_at(scale)
        if not (folder / PLAIN / name).exists():
            tables.write_plain(data, folder / PLAIN / name, files, compression)
            tables.write_table(data, folder / CLEAN / name, layout, files)
        if dirty:
            tables.write_dirty(data, folder / CLEAN / name, folder / DIRTY / name)
        done.touch()
        people.print(f"[dim]{name}: {len(data):,} rows in {time.perf_counter() - started:.1f} s")


def tpch(run: Run, names: Sequence[str], scale: float) -> Iterator[list[Figure]]:
    """Yield the figures of the queries that were named, as they are measured. Raises WrongAnswer."""
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


@contextmanager
def kept(keep: Path | None, scale: float) -> Iterator[Path]:
    """Yield the folder of the tables: one that stays, or a temporary one."""
    if keep is not None:
        yield keep / f"sf{scale:g}"
    else:
        with tempfile.TemporaryDirectory(prefix="mdt-tpch-") as folder:
            yield Path(folder)


def emit(found: Iterator[list[Figure]], out: Path | None) -> list[list[Figure]]:
    """Print figures as lines of JSON as they come, append them to the file ``out``, and return them."""
    every = []
    for figures in found:
        every.append(figures)
        for figure in figures:
            print(report.line(figure), flush=True)
            if out:
                with out.open("a", encoding="utf-8") as file:
                    file.write(report.line(figure) + "\n")
    return every


def groups(
    spark: SparkSession,
    folder: Path,
    variants: Sequence[Variant],
    names: Sequence[str],
    scale: float,
    runs: int,
    warm: int,
) -> Iterator[tuple[str, Iterator[list[Figure]]]]:
    """Yield what is measured: the queries of TPC-H, then the workloads that count files; with a title."""

    def progress(step: str) -> None:
        people.print(f"[dim]{step} ...")

    if [name for name in names if name != MICRO]:
        run = Run(spark, folder, list(tables.LAYOUTS), variants, runs, progress, warm)
        yield f"TPC-H, scale factor {scale:g}, median of {runs}", tpch(run, names, scale)
    if MICRO in names:
        run = Run(spark, folder / MICRO, skipping.TABLES, variants, runs, progress, warm)
        yield f"What scans skip, scale factor {scale:g}, median of {runs}", micro(run)


def main(
    scale: Annotated[float, typer.Option(min=0.001, help="scale factor: 6 M rows of lineitem each 1.0")] = 1.0,
    only: Annotated[str, typer.Option("--queries", help=f"by commas, Q1 to Q22 and {MICRO}; all without it")] = "",
    variants: Annotated[str, typer.Option(help=f"by commas, of {', '.join(MEANINGS)}; plain is always run")] = f"{PLAIN},{CLEAN}",
    runs: Annotated[int, typer.Option(min=1, help="runs after the warm ones, of which the median is shown")] = 3,
    warm: Annotated[int, typer.Option(min=1, help="runs before")] = 4,
    cbo: Annotated[bool, typer.Option(help="with Spark's cost-based optimizer and its order of joins")] = False,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value of Spark, for all variants; repeatable")] = None,
    against: Annotated[list[str] | None, typer.Option(help="key=value of Spark, with which tables of mdt are measured once more; repeatable")] = None,
    compression: Annotated[str, typer.Option(help="of the plain files")] = "snappy",
    threads: Annotated[int, typer.Option(min=1, help="of Spark")] = 2,
    keep: Annotated[Path | None, typer.Option(help="folder in which tables stay, and are found by the next run")] = None,
    out: Annotated[Path | None, typer.Option(help="append the JSON lines to this file too")] = None,
    markdown: Annotated[Path | None, typer.Option(help="write the tables to this Markdown file")] = None,
) -> None:  # fmt: skip
    """Measure the 22 queries of TPC-H, and two small workloads that count files."""
    which, names = chosen(variants, settings(against or [])), named(only)
    dirty = any(variant.kind == DIRTY for variant in which)
    texts = []
    with kept(keep, scale) as folder, tempfile.TemporaryDirectory(prefix="mdt-spark-") as local:
        try:
            load(folder, scale, compression, dirty)
            if MICRO in names and not (folder / MICRO / (DIRTY if dirty else CLEAN)).exists():
                skipping.load(folder / MICRO, scale, compression, dirty)
        except tables.NoGenerator as error:
            people.print(f"[red]{error}")
            sys.exit(2)
        with engine.session(local, threads) as spark, told(spark, (CBO if cbo else {}) | settings(set_ or [])):
            for title, found in groups(spark, folder, which, names, scale, runs, warm):
                try:
                    every = emit(found, out)
                except WrongAnswer as error:
                    people.print(f"[red]wrong answer:[/red] {error}")
                    sys.exit(1)
                people.print(report.terminal(every, title))
                texts.append(report.markdown(every, title))
    if markdown:
        markdown.write_text("\n".join(texts), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
