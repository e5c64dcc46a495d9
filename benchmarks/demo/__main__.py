"""``python -m benchmarks.demo``: a table of flights through Spark, and the same rows by three
readers.

Ends with status 1 if any of them disagrees with the truth.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pyarrow as pa
import typer
from hudi import HudiTableBuilder
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

import mdt
from benchmarks.demo import flights

T = TypeVar("T")

SNOW_SQL = f"""
    select carrier, count(*) as flights, round(avg(dep_delay)) as minutes_late
    from flights where month = {flights.SNOW_MONTH} and day = {flights.SNOW_DAY}
    group by carrier order by flights desc limit 5"""
EVERYTHING_SQL = "select count(*) as flights, round(avg(dep_delay), 1) as minutes_late from flights"
SNOW = f"month = {flights.SNOW_MONTH} and day = {flights.SNOW_DAY}"

out = Console(highlight=False)
warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)


class Steps:
    """Runs the steps, with a spinner while they last, and keeps their seconds and outcomes for the
    summary.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[str, float, str]] = []

    def run(
        self, title: str, action: Callable[[], T], outcome: Callable[[T], str] = lambda _: ""
    ) -> T:
        """Return what ``action`` returns."""
        started = time.perf_counter()
        with out.status(f"{title} ..."):
            result = action()
        seconds = time.perf_counter() - started
        text = outcome(result)
        self._rows.append((title, seconds, text))
        out.print(f"[green]done[/green] {title} [dim]({seconds:.1f} s)[/dim] {text}")
        return result

    def summary(self) -> Table:
        """Return the table of all steps."""
        table = Table("step", "seconds", "outcome", title="summary")
        for title, seconds, text in self._rows:
            table.add_row(title, f"{seconds:.1f}", text)
        return table


def start_spark(folder: str) -> SparkSession:
    """Return a local session of two threads that keeps its files in ``folder``."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").appName("mdt demo")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.local.dir": f"{folder}/local",
        "spark.sql.session.timeZone": "UTC",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def explained(table: Any, where: str | None) -> tuple[str, str, str, str]:
    """Return (files, row groups, rows, bytes) that a scan reads, each as text: "1 of 12"."""
    plan = table.scan(where=where).explain()
    pairs = (
        (plan.files_read, plan.files_total),
        (plan.row_groups_read, plan.row_groups_total),
        (plan.rows_read, plan.rows_total),
        (plan.bytes_read, plan.bytes_total),
    )
    files, groups, rows, size = (f"{read:,} of {total:,}" for read, total in pairs)
    return files, groups, rows, size


def skipping(table: Any) -> Table:
    """Return what the planner reads for the snowy day beside a full scan."""
    result = Table("where", "files", "row groups", "rows", "bytes", title="read and skipped")
    for where in (SNOW, None):
        result.add_row(where or "(everything)", *explained(table, where))
    return result


def counts(result: Any) -> str:
    """Return the counts of a write's result that are not zero."""
    names = ("inserted", "updated", "deleted", "late", "missing")
    found = [(name, getattr(result, name, 0)) for name in names]
    return ", ".join(f"{count:,} {name}" for name, count in found if count)


def normal(table: pa.Table, like: pa.Schema) -> pa.Table:
    """Return the columns of ``like``, sorted by key, to compare readers row for row."""
    return (
        table.select(like.names)
        .cast(like)
        .sort_by([(name, "ascending") for name in flights.KEY])
        .combine_chunks()
    )


def read_with_hudi(path: str) -> pa.Table:
    """Return the table as hudi-rs, which knows nothing of mdt, reads it."""
    return pa.Table.from_batches(HudiTableBuilder.from_base_uri(path).build().read())


def compare(expected: pa.Table, readers: dict[str, pa.Table]) -> Table:
    """Return which readers return the rows of ``expected``, and exit with status 1 if one does
    not.
    """
    result = Table("reader", "rows", "same as the truth, row for row", title="three readers")
    wanted = normal(expected, expected.schema)
    verdicts = {
        name: normal(found, expected.schema).equals(wanted) for name, found in readers.items()
    }
    for name, found in readers.items():
        result.add_row(name, f"{found.num_rows:,}", "yes" if verdicts[name] else "[red]NO")
    if not all(verdicts.values()):
        out.print(result)
        sys.exit(1)
    return result


def change(steps: Steps, spark: SparkSession, path: str, data: pa.Table) -> Any:
    """Create the table and write it: all flights, a day's arrivals, its cancellations."""
    table = mdt.create(
        path,
        data.schema,
        key=flights.KEY,
        partition_by=["month"],
        ordering="ts",
        table_type="MERGE_ON_READ",
    )

    def frame(rows: pa.Table) -> Any:
        return spark.createDataFrame(rows)

    steps.run(
        "upsert all flights as scheduled",
        lambda: table.upsert(frame(flights.as_scheduled(data))),
        counts,
    )
    steps.run(
        "upsert the snowy day's arrivals",
        lambda: table.upsert(frame(flights.late_arrivals(data))),
        counts,
    )
    steps.run(
        "delete its cancellations", lambda: table.delete(frame(flights.cancellations(data))), counts
    )
    return table


def collect(spark: SparkSession, sql: str) -> list[Any]:
    """Return the rows of a query."""
    return list(spark.sql(sql).collect())


def query(steps: Steps, spark: SparkSession, path: str, table: Any) -> None:
    """Show SQL through Spark with what it read and skipped."""
    steps.run("view in Spark", lambda: mdt.read(spark, path).createOrReplaceTempView("flights"))
    for title, sql in (("SQL: the snowy day", SNOW_SQL), ("SQL: everything", EVERYTHING_SQL)):
        answer = steps.run(title, partial(collect, spark, sql), lambda rows: f"{len(rows)} rows")
        for row in answer:
            out.print(
                "      " + "  ".join(f"{name} {value}" for name, value in row.asDict().items())
            )
    out.print(skipping(table))


def tour(folder: str) -> None:
    """Run the whole demo with its files in ``folder``."""
    steps, path = Steps(), f"{folder}/flights"
    data = steps.run("read the flights", flights.flights, lambda table: f"{table.num_rows:,} rows")
    with ExitStack() as stack:
        spark = steps.run("start Spark", lambda: start_spark(folder))
        stack.callback(spark.stop)
        table = change(steps, spark, path, data)
        query(steps, spark, path, table)
        steps.run("compact", table.compact)
        readers = {
            "mdt, in-process": steps.run("scan in-process", table.scan().to_arrow),
            "mdt, Spark": steps.run("scan with Spark", lambda: mdt.read(spark, path).toArrow()),
            "hudi-rs": steps.run("read with hudi-rs", lambda: read_with_hudi(path)),
        }
        out.print(compare(flights.truth(data), readers))
        report = steps.run("check", table.check, str)
    out.print(steps.summary())
    if not report.ok:
        sys.exit(1)


def main(
    keep: Annotated[Path | None, typer.Option(help="leave the table in this new directory")] = None,
) -> None:
    """Take 336,776 flights through a table's life: upsert, delete, skip, compact, check."""
    if keep:
        keep.mkdir(parents=True)
        tour(str(keep.resolve()))
    else:
        with tempfile.TemporaryDirectory(prefix="mdt-demo-") as folder:
            tour(folder)
    out.print(next_steps(keep))


def next_steps(keep: Path | None) -> str:
    """Return commands to try after the demo. ``keep``: the directory of the table, if it stays."""
    bin_folder = os.path.relpath(Path(sys.executable).parent)
    lines = ["[bold]What to try next[/bold]"]
    if keep is None:
        lines.append(f"  {bin_folder}/python -m benchmarks.demo --keep demo   keep the table")
    path = (keep or Path("demo")) / "flights"
    return "\n".join(
        [
            *lines,
            f"  {bin_folder}/mdt info {path}",
            f'  {bin_folder}/mdt scan {path} --where "{SNOW}" --explain',
            f"  {bin_folder}/mdt history {path}",
            "  README.md has a tour in Python and on Spark",
        ]
    )


if __name__ == "__main__":
    typer.run(main)
