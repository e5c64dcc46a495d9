"""``python -m benchmarks.ssb``: the Star Schema Benchmark, with and without indexes; a wrong answer
fails the run.

What bounds a speed-up, so that the figures are read for what they are:

- Spark spends 0.1 to 0.3 s on a query before it reads a row.  With few rows that is most of the
  query; compare scales.
- Files lie in the page cache after the first run, so the bytes that are not read cost no more than
  a copy.
- Matching rows are spread evenly over customers, suppliers and parts.  A file is skipped only where
  the layout, or a filter with fewer matching rows than there are files, leaves it empty: whatever
  the index, Q2.1 on data sorted by date reads every file.  Spark reads whole files; in process,
  whole row groups.
- `sorted_plain` shows what sorting alone gives Spark, by the row group statistics in Parquet's
  footers.

On a busy machine read the processor seconds.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.ssb import report, spark
from benchmarks.ssb.generate import Star
from benchmarks.ssb.measure import Run, Tables, WrongAnswer
from benchmarks.ssb.variants import COMPRESSION, REFERENCE, VARIANTS, usable


def chosen(names: str) -> list[str]:
    """Return the variants named, the reference first; raises for unknown ones."""
    wanted = dict.fromkeys([REFERENCE, *(name for name in names.split(",") if name)])
    if unknown := [name for name in wanted if name not in VARIANTS]:
        raise typer.BadParameter(f"unknown variants {unknown}; known are {list(VARIANTS)}")
    return list(wanted)


def emit(line: str, out: Path | None) -> None:
    """Print a line, and append it to the file ``out``."""
    print(line, flush=True)
    if out:
        with out.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def main(
    scale: Annotated[float, typer.Option(min=0.001, help="6 M rows of lineorder each 1.0")] = 0.2,
    variants: Annotated[
        str, typer.Option(help="by commas; the reference is always run")
    ] = ",".join(VARIANTS),
    rows_per_file: Annotated[
        int, typer.Option(min=100, help="about this many rows in a file")
    ] = 10_000,
    compression: Annotated[str, typer.Option(help="of Parquet pages")] = COMPRESSION,
    repeat: Annotated[
        int, typer.Option(min=1, help="runs after the first, of which the median is shown")
    ] = 3,
    threads: Annotated[int, typer.Option(min=1, help="of Spark")] = 2,
    seed: Annotated[int, typer.Option(help="of all random data")] = 7,
    out: Annotated[Path | None, typer.Option(help="append the JSON lines to this file too")] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="write the tables to this Markdown file")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="draw the speed-ups into this file, .png or .svg")
    ] = None,
) -> None:
    """Measure the 13 queries on one flat table."""
    people = Console(stderr=True, width=170, highlight=False)
    names, left_out = usable(chosen(variants))
    for name, reason in left_out.items():
        people.print(f"[yellow]{name} is left out: {reason}")
    started = time.perf_counter()
    rows = Star(scale, seed).flat
    people.print(f"{len(rows):,} rows made in {time.perf_counter() - started:.1f} s")
    with (
        tempfile.TemporaryDirectory(prefix="mdt-ssb-") as folder,
        spark.session(folder, threads) as session,
    ):
        tables = Tables(rows, Path(folder), rows_per_file, compression)
        run = Run(session, tables, names, repeat, lambda step: people.print(f"[dim]{step} ..."))
        figures = []
        try:
            for figure in run.figures():
                figures.append(figure)
                emit(report.line(figure), out)
        except WrongAnswer as error:
            people.print(f"[red]wrong answer:[/red] {error}")
            sys.exit(1)
        loaded = {name: tables.of(name) for name in names}
    title = (
        f"Star Schema Benchmark, scale {scale:g}: {len(rows):,} rows, about {rows_per_file:,} a"
        " file"
    )
    people.print(report.terminal(figures, title))
    if markdown:
        markdown.write_text(report.markdown(figures, title, loaded), encoding="utf-8")
    if plot:
        report.plot(figures, title, plot)


if __name__ == "__main__":
    typer.run(main)
