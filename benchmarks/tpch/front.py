"""What the benchmarks with queries of TPC have in common: options, tables in every form, figures as
they come.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer
from rich.console import Console

from benchmarks.tpch import report, tables
from benchmarks.tpch.measure import CLEAN, DIRTY, MEANINGS, PLAIN, Figure, Variant, WrongAnswer

CBO = {"spark.sql.cbo.enabled": "true", "spark.sql.cbo.joinReorder.enabled": "true"}
people = Console(stderr=True, width=200, highlight=False)

# fmt: off
Variants = Annotated[str, typer.Option(help=f"by commas, of {', '.join(MEANINGS)}; plain is always run")]
Runs = Annotated[int, typer.Option(min=1, help="runs after the warm ones, of which the median is shown")]
Warm = Annotated[int, typer.Option(min=1, help="runs before, at least")]
WarmSeconds = Annotated[float, typer.Option(min=0, help="seconds of a query's runs before, at least")]
Cbo = Annotated[bool, typer.Option(help="with Spark's cost-based optimizer and its order of joins")]
Set = Annotated[list[str] | None, typer.Option("--set", help="key=value of Spark, for all variants; repeatable")]
Against = Annotated[list[str] | None, typer.Option(help="key=value of Spark, with which tables of mdt are measured once more; repeatable")]
Compression = Annotated[str, typer.Option(help="of the plain files")]
Threads = Annotated[int, typer.Option(min=1, help="of Spark")]
Keep = Annotated[Path | None, typer.Option(help="folder in which tables stay, and are found by the next run")]
Out = Annotated[Path | None, typer.Option(help="append the JSON lines to this file too")]
Markdown = Annotated[Path | None, typer.Option(help="write the tables to this Markdown file")]
# fmt: on


def settings(texts: Sequence[str]) -> dict[str, str]:
    """Return settings that were given as ``key=value``."""
    if wrong := [text for text in texts if "=" not in text]:
        raise typer.BadParameter(f"{wrong[0]!r} is not key=value")
    return {text.partition("=")[0]: text.partition("=")[2] for text in texts}


def chosen(names: str, against: dict[str, str]) -> list[Variant]:
    """Return the variants named by commas, the reference first, those of mdt once more under the
    settings ``against``.
    """
    wanted = dict.fromkeys([PLAIN, *(name for name in names.split(",") if name)])
    if unknown := [name for name in wanted if name not in MEANINGS]:
        raise typer.BadParameter(f"unknown variants {unknown}; known are {list(MEANINGS)}")
    found = [Variant(name, name) for name in wanted]
    return found + [
        Variant(f"{name}*", name, against) for name in wanted if against and name in (CLEAN, DIRTY)
    ]


def load(
    folder: Path,
    layouts: Mapping[str, tables.Layout],
    made: Callable[[str], pa.Table],
    scale: float,
    compression: str,
    dirty: bool,
) -> None:
    """Make tables below ``folder`` in every form, where they are not there yet; ``made`` returns
    the rows of one, in its order.
    """
    for name, layout in layouts.items():
        done = folder / f"{name}.{'dirty' if dirty else 'clean'}"
        if done.exists():
            continue
        started = time.perf_counter()
        data, files = made(name), layout.files_at(scale)
        if not (folder / PLAIN / name).exists():
            tables.write_plain(data, folder / PLAIN / name, files, compression)
            tables.write_table(data, folder / CLEAN / name, layout, files)
        if dirty:
            tables.write_dirty(data, folder / CLEAN / name, folder / DIRTY / name)
        done.touch()
        people.print(f"[dim]{name}: {len(data):,} rows in {time.perf_counter() - started:.1f} s")


@contextmanager
def kept(keep: Path | None, scale: float) -> Iterator[Path]:
    """Yield the folder of the tables: one that stays, or a temporary one."""
    if keep is not None:
        yield keep / f"sf{scale:g}"
    else:
        with tempfile.TemporaryDirectory(prefix="mdt-tables-") as folder:
            yield Path(folder)


def emit(found: Iterator[list[Figure]], out: Path | None) -> list[list[Figure]]:
    """Print figures as lines of JSON as they come, append them to the file ``out``, and return
    them.
    """
    every = []
    for figures in found:
        every.append(figures)
        for figure in figures:
            print(report.line(figure), flush=True)
            if out:
                with out.open("a", encoding="utf-8") as file:
                    file.write(report.line(figure) + "\n")
    return every


def progress(step: str) -> None:
    """Tell people what is being measured."""
    people.print(f"[dim]{step} ...")


def shown(
    groups: Iterable[tuple[str, Iterator[list[Figure]]]], out: Path | None, markdown: Path | None
) -> None:
    """Measure groups of queries, each with a title, and print their tables, or write them to a file
    too. A wrong answer ends the process with status 1.
    """
    texts = []
    for title, found in groups:
        try:
            every = emit(found, out)
        except WrongAnswer as error:
            people.print(f"[red]wrong answer:[/red] {error}")
            sys.exit(1)
        people.print(report.terminal(every, title))
        texts.append(report.markdown(every, title))
    if markdown:
        markdown.write_text("\n".join(texts), encoding="utf-8")
