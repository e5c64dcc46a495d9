"""The figures for people: a table on the terminal, Markdown, and a plot; and for programs: JSON
lines.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from benchmarks.ssb.measure import Figure
from benchmarks.ssb.spark import CPU_TICK
from benchmarks.ssb.variants import REFERENCE, VARIANTS, Loaded

COLUMNS = (
    "query",
    "variant",
    "s",
    "cpu s",
    "files",
    "MB",
    f"× {REFERENCE}",
    "× stats",
    f"cpu × {REFERENCE}",
    "plan ms",
    "arrow s",
    f"arrow × {REFERENCE}",
    "arrow rows read",
)
MEAN = "geometric mean"


def line(figure: Figure) -> str:
    """Return a figure as one JSON object."""
    return json.dumps(asdict(figure))


def mean(values: Iterable[float]) -> float:
    """Return the geometric mean of positive numbers, nan for none."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def cells(figure: Figure) -> list[str]:
    """Return the cells of a figure, as COLUMNS names them."""
    return [
        figure.query,
        figure.variant,
        f"{figure.seconds:.3f}",
        f"{figure.cpu_seconds:.2f}",
        f"{figure.files} of {figure.files_total}",
        f"{figure.bytes / 1e6:.1f}",
        _ratio(figure.speed_up.get(REFERENCE)),
        _ratio(figure.speed_up.get("stats")),
        _ratio(figure.cpu_speed_up.get(REFERENCE)),
        "" if figure.plan_seconds is None else f"{figure.plan_seconds * 1000:.1f}",
        "" if figure.arrow_seconds is None else f"{figure.arrow_seconds:.3f}",
        _ratio(figure.arrow_speed_up.get(REFERENCE)),
        "" if figure.arrow_rows is None else f"{figure.arrow_rows:,}",
    ]


def mean_cells(variant: str, figures: Sequence[Figure]) -> list[str]:
    """Return the cells of the mean over all queries of a variant: times and ratios geometric, sums
    of what was read.
    """
    mine = [figure for figure in figures if figure.variant == variant]

    def of(ratios: Iterable[float | None]) -> float | None:
        known = [ratio for ratio in ratios if ratio is not None]
        return mean(known) if known else None

    arrow = of(f.arrow_seconds for f in mine)
    plan = of(f.plan_seconds for f in mine)
    return [
        MEAN,
        variant,
        f"{mean(f.seconds for f in mine):.3f}",
        f"{mean(max(f.cpu_seconds, CPU_TICK) for f in mine):.2f}",
        f"{sum(f.files for f in mine)} of {sum(f.files_total for f in mine)}",
        f"{sum(f.bytes for f in mine) / 1e6:.1f}",
        _ratio(of(f.speed_up.get(REFERENCE) for f in mine)),
        _ratio(of(f.speed_up.get("stats") for f in mine)),
        _ratio(of(f.cpu_speed_up.get(REFERENCE) for f in mine)),
        "" if plan is None else f"{plan * 1000:.1f}",
        "" if arrow is None else f"{arrow:.3f}",
        _ratio(of(f.arrow_speed_up.get(REFERENCE) for f in mine)),
        "" if arrow is None else f"{sum(f.arrow_rows or 0 for f in mine):,}",
    ]


def all_cells(figures: Sequence[Figure]) -> list[list[str]]:
    """Return the rows of the table: every figure, then one mean a variant."""
    variants = dict.fromkeys(figure.variant for figure in figures)
    return [cells(figure) for figure in figures] + [
        mean_cells(variant, figures) for variant in variants
    ]


def terminal(figures: Sequence[Figure], title: str) -> Table:
    """Return the table for the terminal."""
    table = Table(title=title)
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if number < 2 else "right")
    before = ""
    for row in all_cells(figures):
        if before not in ("", row[0]):
            table.add_section()
        table.add_row(*row)
        before = row[0]
    return table


def loads(loaded: dict[str, Loaded]) -> list[str]:
    """Return Markdown lines about the tables: how long a load took and what it wrote."""
    found = [
        "| variant | meaning | load s | files | data MB | metadata MB |",
        "|---|---|---|---|---|---|",
    ]
    for name, table in loaded.items():
        found.append(
            f"| {name} | {VARIANTS[name].meaning} | {table.seconds:.1f} | {table.files} |"
            f" {table.data_bytes / 1e6:.1f} | {table.metadata_bytes / 1e6:.1f} |"
        )
    return found


def markdown(figures: Sequence[Figure], title: str, loaded: dict[str, Loaded]) -> str:
    """Return the report as Markdown: the tables' loads, then every figure."""
    rows = [f"| {' | '.join(row)} |" for row in all_cells(figures)]
    head = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    return "\n".join([f"# {title}", "", *loads(loaded), "", *head, *rows, ""])


def plot(figures: Sequence[Figure], title: str, path: Path) -> None:
    """Draw the speed-ups over the reference, on Spark and in process, into a file that matplotlib
    can write.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # only a plot needs it
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=(13, 8), layout="constrained")
    FigureCanvasAgg(drawing)
    above, below = drawing.subplots(2, 1, sharex=True)
    queries = list(dict.fromkeys(figure.query for figure in figures))
    variants = [
        name for name in dict.fromkeys(figure.variant for figure in figures) if name != REFERENCE
    ]
    width = 0.8 / max(1, len(variants))
    for axes, on_spark in ((above, True), (below, False)):
        for number, variant in enumerate(variants):
            mine = {f.query: f for f in figures if f.variant == variant}
            found = [
                mine[query].speed_up if on_spark else mine[query].arrow_speed_up
                for query in queries
            ]
            heights = [ratios.get(REFERENCE, math.nan) for ratios in found]
            if not all(map(math.isnan, heights)):
                places = [
                    at + (number - (len(variants) - 1) / 2) * width for at in range(len(queries))
                ]
                axes.bar(
                    places,
                    [height - 1 for height in heights],
                    width,
                    1,
                    label=variant,
                    color=f"C{number}",
                )
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter("{x:g} ×")
        axes.set_ylabel(f"times as fast as {REFERENCE}")
        axes.set_title(
            "Spark SQL, whole query" if on_spark else "Arrow in process, matching rows summed"
        )
        axes.grid(axis="y", alpha=0.3)
    below.set_xticks(range(len(queries)), queries)
    above.legend(ncols=len(variants))
    drawing.suptitle(title)
    drawing.savefig(path, dpi=110)


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
