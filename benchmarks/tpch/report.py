"""The figures for people: tables on the terminal and in Markdown; and for programs: JSON lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table

from benchmarks.ssb.report import MEAN, mean
from benchmarks.tpch.measure import Figure


def line(figure: Figure) -> str:
    """Return a figure as one JSON object."""
    return json.dumps(asdict(figure))


def head(variants: Sequence[str]) -> list[str]:
    """Return the names of the columns: seconds and processor seconds of each variant, and how they
    stand to the reference's.
    """
    found = ["query"]
    for number, name in enumerate(variants):
        found += [f"{name} s", f"{name} cpu s"]
        if number:
            found += [f"{name} / {variants[0]}", "cpu"]
        found += [f"{name} files"]
    return found


def cells(figures: Sequence[Figure]) -> list[str]:
    """Return the cells of one query, whose figures come in the order of the variants."""
    found = [figures[0].query]
    for number, figure in enumerate(figures):
        found += [f"{figure.seconds:.3f}", f"{figure.cpu_seconds:.2f}"]
        if number:
            found += [f"{figure.times:.2f}", f"{figure.cpu_times:.2f}"]
        found += ["" if figure.files is None else f"{figure.files} of {figure.files_total}"]
    return found


def mean_cells(queries: Sequence[Sequence[Figure]]) -> list[str]:
    """Return the cells of the geometric means over all queries."""
    found = [MEAN]
    for number, figures in enumerate(zip(*queries, strict=True)):
        found += [
            f"{mean(f.seconds for f in figures):.3f}",
            f"{mean(max(f.cpu_seconds, 1e-3) for f in figures):.2f}",
        ]
        if number:
            found += [
                f"{mean(f.times for f in figures):.2f}",
                f"{mean(max(f.cpu_times, 1e-3) for f in figures):.2f}",
            ]
        found += [""]
    return found


def grid(queries: Sequence[Sequence[Figure]]) -> list[list[str]]:
    """Return head and rows, the means last; a column that says nothing is left out."""
    names = [figure.variant for figure in queries[0]]
    rows = [head(names), *map(cells, queries), mean_cells(queries)]
    told = [any(row[at] for row in rows[1:]) for at in range(len(rows[0]))]
    return [[cell for cell, has in zip(row, told, strict=True) if has] for row in rows]


def terminal(queries: Sequence[Sequence[Figure]], title: str) -> Table:
    """Return the table for the terminal."""
    top, *rows = grid(queries)
    table = Table(title=title)
    for number, column in enumerate(top):
        table.add_column(column, justify="right" if number else "left")
    for number, row in enumerate(rows):
        if number == len(rows) - 1:
            table.add_section()
        table.add_row(*row)
    return table


def markdown(queries: Sequence[Sequence[Figure]], title: str) -> str:
    """Return the report as Markdown."""
    top, *rows = grid(queries)
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(
        [f"# {title}", "", f"| {' | '.join(top)} |", "|" + "---|" * len(top), *lines, ""]
    )
