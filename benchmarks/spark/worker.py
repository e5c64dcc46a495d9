"""Measures one engine on Spark in the environment that it needs: ``worker.py WORK``, a file of JSON
that `run` has written.

Prints a line of JSON for each step.  Imports the standard library and PySpark, and `engines` from
its own folder.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from engines import ENGINES, Engine  # type: ignore[import-not-found]  # a script's own folder is on its path
from pyspark.sql import SparkSession

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """Return user and system seconds of this process and all below it, with those that have
    ended.
    """
    children: dict[int, list[int]] = {}
    spent: dict[int, float] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        children.setdefault(int(fields[1]), []).append(int(entry))
        spent[int(entry)] = sum(map(int, fields[11:15])) / _TICKS
    found, left = 0.0, [os.getpid()]
    while left:
        process = left.pop()
        found += spent.get(process, 0.0)
        left += children.get(process, [])
    return found


def sizes(folder: str) -> dict[str, int]:
    """Return path -> size of all files below ``folder``."""
    return {str(file): file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()}


def bytes_below(folder: str) -> int:
    """Return the bytes of all files below ``folder``."""
    return sum(sizes(folder).values())


class Watch:
    """Prints what each step took."""

    def lap(self, step: str, work: Callable[[], Any], **more: Any) -> Any:
        """Do ``work``, print its seconds, and return what it gives."""
        cpu, wall = cpu_seconds(), time.perf_counter()
        found = work()
        took, spent = time.perf_counter() - wall, cpu_seconds() - cpu
        self.say(step=step, seconds=round(took, 4), cpu_seconds=round(spent, 3), **more)
        return found

    def say(self, **values: Any) -> None:
        """Print one line."""
        print(json.dumps(values), flush=True)


def session(work: dict[str, Any], engine: type[Engine]) -> Any:
    """Return a session with what all engines have alike, and what this one needs."""
    builder = SparkSession.builder.master(f"local[{work['cores']}]").appName("benchmark")
    told = {
        "spark.driver.memory": work["memory"],
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(4 * work["cores"]),
        "spark.sql.session.timeZone": "UTC",
        "spark.jars": ",".join(work["jars"]),
        "spark.local.dir": work["folder"],
        "spark.sql.warehouse.dir": f"{work['folder']}/warehouse",
        **{
            name: value.format(folder=f"{work['folder']}/tables")
            for name, value in engine.conf.items()
        },
    }
    for name, value in told.items():
        if value:
            builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def queried(spark: Any, watch: Watch, when: str, work: dict[str, Any]) -> None:
    """Run each query with all its literals, of which the first run is cold; between that and the
    others it is run for warmth, with literals of its own.
    """
    for name, texts in work["queries"].items():
        for number, text in enumerate(texts):
            if number == 1:
                warmed(spark, work["warm_queries"][name], work["warm_seconds"])
            rows = watch.lap(
                name, lambda text=text: spark.sql(text).collect(), when=when, warm=number > 0
            )
            watch.say(answer=text, when=when, rows=[list(row) for row in rows])


def warmed(spark: Any, texts: list[str], seconds: float) -> None:
    """Run queries in turns for so many seconds: the JVM compiles one of half a second until its
    twentieth run.
    """
    started = time.monotonic()
    for text in itertools.cycle(texts):
        if time.monotonic() - started >= seconds:
            return
        spark.sql(text).collect()


def computed(spark: Any, path: str) -> Any:
    """Return the rows of Parquet files as jobs have them, behind a filter and a computed column;
    both leave the rows as they are.
    """
    rows = spark.read.parquet(path).where("length(id) > 0")
    return rows.withColumn("fare", rows["fare"] * 1.0)


def tables(
    spark: Any, work: dict[str, Any], engine: type[Engine], watch: Watch
) -> Iterator[Engine]:
    """Yield the table of each load, the first of which is cold."""
    rows = computed(spark, work["load"])
    for number in range(work["loads"]):
        table = engine(spark, f"{work['folder']}/tables", f"trips{number}")
        watch.lap("load", lambda table=table: table.load(rows), when="", warm=number > 0)
        yield table


def main(work: dict[str, Any]) -> None:
    """Load, upsert, query, compact, query."""
    engine, watch = ENGINES[work["engine"]], Watch()
    spark = session(work, engine)
    watch.say(spark=spark.version)
    spark.read.parquet(work["load"]).selectExpr(
        "sum(fare)", "max(note)"
    ).collect()  # the JVM is warm, the engine not
    *_, table = tables(spark, work, engine, watch)
    watch.say(step="load", when="", bytes=bytes_below(table.path))
    if engine.upserts:
        upserts(spark, work, table, watch)
    table.view()
    queried(spark, watch, "after upserts" if engine.upserts else "", work)
    if engine.upserts and work["compacts"]:
        watch.lap("compaction", table.compact, when="", warm=False)
        watch.say(step="compaction", when="", bytes=bytes_below(table.path))
        table.view()
        queried(spark, watch, "compacted", work)
    spark.stop()


def upserts(spark: Any, work: dict[str, Any], table: Engine, watch: Watch) -> None:
    """Upsert every batch; the first of all is cold."""
    before = sizes(table.path)
    for number, (name, path) in enumerate(work["upserts"]):
        rows = computed(spark, path)
        watch.lap(name, lambda rows=rows: table.upsert(rows), when="", warm=number > 0)
        after = sizes(table.path)
        new = {file: size for file, size in after.items() if before.get(file) != size}
        files = [file for file in new if file.endswith(".parquet") and "/_" not in file]
        watch.say(step=name, written=sum(new.values()), files=len(files))
        before = after
    watch.say(step="upserts", when="", bytes=bytes_below(table.path))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
