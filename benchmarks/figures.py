"""``python -m benchmarks.figures``: run the benchmarks of docs/figures.md and write its sections.

Each question has a command. Its JSON lines are kept in ``benchmarks/results``, after a line with
the command, date, versions and machine. A section contains only what its file contains, and two
sentences on what bounds the figures. ``--only`` runs some questions, ``--render`` none.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import geometric_mean
from typing import Annotated, Any

import typer

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "figures.md"
RESULTS = ROOT / "benchmarks" / "results"
Line = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """A table of a question: a row per value of ``rows``, a column per value of ``columns``.

    A cell shows the fields ``cells`` of a line, joined by " / ". Without ``columns``, each of these
    fields is a column. ``only``: a field and the values of it to show. ``unit``: what cells are
    multiplied by, such as 1,000 for seconds as milliseconds. ``has_mean``: a last row with
    geometric means. ``names``: headings of fields, by default the names of the fields. ``without``:
    a pattern of what to leave out of the texts of rows.
    """

    rows: tuple[str, ...]
    cells: tuple[str, ...]
    columns: str | None = None
    caption: str = ""
    only: tuple[str, tuple[object, ...]] | None = None
    unit: float = 1
    has_mean: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    without: str = ""


@dataclass(frozen=True)
class Question:
    """A section of the page. ``command``: arguments of ``python``. ``bounds``: at most two
    sentences.
    """

    name: str
    title: str
    command: str
    tables: Sequence[Table]
    text: str
    bounds: str = ""


TIMES = ("seconds", "cpu_seconds")
RATIOS = Table(
    ("query",),
    ("times", "cpu_times"),
    caption="Times plain Parquet's seconds, and times its CPU seconds",
    only=("variant", ("mdt",)),
    has_mean=True,
)
PEERS = "--peers duckdb,deltalake,lance"
INDEX_QUERIES = tuple(
    f"W6 {query}{state}"
    for state in ("", " after W2")
    for query in ("combo", "rider", "note", "fare")
)
INDEX_WRITES = ("index build", "W2 upsert with indexes", "W2 upsert without indexes")
PACKAGES = ("pyarrow", "numpy", "pyspark", "duckdb", "deltalake", "pylance", "pyiceberg")
"""Packages whose versions are kept with results."""

QUESTIONS = (
    Question(
        "rows",
        "Loads, upserts, scans and look-ups",
        f"-m benchmarks upsert lookup scan --flat --rows 5000000 {PEERS}",
        (
            Table(
                ("workload",),
                TIMES,
                "peer",
                caption="Seconds / CPU seconds, medians",
                only=("bench", ("upsert", "scan")),
            ),
            Table(
                ("workload",),
                TIMES,
                "peer",
                caption="Look-ups by key: milliseconds / CPU milliseconds, medians",
                only=("bench", ("lookup",)),
                unit=1_000,
            ),
            Table(("workload",), ("bytes",), "peer", caption="MB of the table afterwards"),
        ),
        "5 M rows of nine columns in 64 files, merge-on-read, with an ordering field. An upsert brings 50,000 rows, spread"
        ' over all files (W2) or among the newest 2 % (W3). Look-ups use `t.get`, and "by a filter" `t.scan("id = …")`,'
        " with other keys each time.",
        "Half of a load's CPU encodes Parquet; the rest is statistics, key maps and checksums. An upsert into all files"
        " writes 64 log files of 2 ms each.",
    ),
    Question(
        "nested",
        "Rows by key beside nested columns",
        "-m benchmarks nested --rows 400000 --repeat 15",
        (Table(("what",), ("cpu_ms",), "kind", caption="CPU milliseconds, medians"),),
        "A table of five flat columns, and three tables that have a struct, a list or a map more. Queries return all"
        ' columns: rows by key ("get"), of one rider by a bitmap, and with a rare word by a text index.',
        "A row of a map costs most: its keys and values are two columns, and 1,024 rows of each are decoded for one row.",
    ),
    Question(
        "index",
        "Queries by indexes",
        "-m benchmarks index --flat --rows 5000000 --peers lance,duckdb",
        (
            Table(
                ("workload",),
                TIMES,
                "peer",
                caption="Queries: milliseconds / CPU milliseconds, medians",
                only=("workload", INDEX_QUERIES),
                unit=1_000,
            ),
            Table(
                ("workload",),
                TIMES,
                "peer",
                caption="Writes: seconds / CPU seconds, medians",
                only=("workload", INDEX_WRITES),
            ),
            Table(
                ("workload",),
                ("bytes",),
                "peer",
                caption="MB of the indexes; duckdb does not report them",
                only=("workload", INDEX_WRITES[:1]),
            ),
        ),
        "5 M rows; queries return all columns, with other literals each time: three equalities (combo, 12 rows), one of"
        " 100,000 riders (50 rows), a rare word in a note (1,600 rows) and a narrow range of fares (3,700 rows). mdt has five"
        " bitmaps and a text index of words, lance three BITMAP, two BTREE and one NGRAM index, duckdb an index on rider."
        ' "After W2" is after five upserts of 50,000 rows, without optimising anything again.',
        "Equalities are bound by parsing and by 60 µs for each file that contains rows. A rare word and a narrow range are"
        " bound by decoding a page of 512 rows for each row found.",
    ),
    Question(
        "written",
        "Bytes that writes add",
        "-m benchmarks written",
        (
            Table(
                ("operation",),
                ("bytes",),
                "rows",
                caption="MB by which the table's folder grows, for 1, 1,000 and 50,000 changed rows",
            ),
        ),
        "A merge-on-read table of 1 M rows in two files of 115 MB, with nested columns and an ordering field, and with"
        " services off. The changed rows are spread over all keys. Empty cells were not measured.",
        "The bytes follow the changed rows. The last two operations rewrite whole base files, because Hudi's readers would"
        " answer wrongly from log files ([costs](writing/costs.md#what-a-write-costs)).",
    ),
    Question(
        "planning",
        "Planning",
        "-m benchmarks planning --peers deltalake,pyiceberg",
        (
            Table(
                ("peer", "workload"),
                ("ms",),
                "files",
                caption="Milliseconds, medians, by number of files",
                without=r" = \d+",
            ),
            Table(
                ("peer", "workload"),
                ("megabytes",),
                "files",
                caption="MB of memory of the process at its end, by number of files",
                without=r" = \d+",
            ),
        ),
        'Tables whose files exist only in the metadata. "Cold" opens the table in a new process, after imports, and plans a'
        ' query that one file answers. Files are ordered by the column "at", and "device" is spread over all of them.',
        "A cold plan reads the columns of the checkpoint that the filter needs, in pages, so it hardly grows with the number of"
        " files. The times of deltalake and pyiceberg do.",
    ),
    Question(
        "changes",
        "Changes",
        f"-m benchmarks changes --rows 2000000 {PEERS}",
        (Table(("what",), ("seconds", "cpu"), "peer", caption="Seconds / CPU seconds, medians"),),
        "A commit that changes 1 % of 2 M rows, read back from a table that was just opened. Changes contain the rows before"
        ' an update, unless they are "after only". Of the peers, deltalake has a change data feed.',
        "mdt reads the rows before an update from their old files, in pages of up to 512 rows, so updates spread over all keys"
        " read nearly every page. deltalake writes these rows a second time during the update.",
    ),
    Question(
        "conditions",
        "Deletes, updates and merges by a condition",
        f"-m benchmarks conditions --rows 2000000 --repeat 4 {PEERS}",
        (Table(("what",), ("seconds", "cpu"), "peer", caption="Seconds / CPU seconds, medians"),),
        'One commit for each operation on 2 M rows; medians of four. The rows of "everywhere" are chosen by a column without'
        " order. A merge brings 20,000 rows, nine in ten of which exist. Empty cells were not measured.",
        "deltalake writes the files with changed rows anew, and lance only the positions of deleted rows. mdt also writes the"
        " keys of deleted rows for Hudi's readers, and statistics and a key map of new rows.",
    ),
    Question(
        "life",
        "Many small commits",
        "-m benchmarks life --commits 2000 --peers lance,deltalake --budget 240",
        (
            Table(
                ("peer", "commits"),
                (
                    "commit_ms",
                    "commit_mean_ms",
                    "commit_p99_ms",
                    "key_ms",
                    "scan_ms",
                    "disk_of_load",
                ),
                caption="CPU milliseconds of the last 100 commits, of a look-up of one key and of a full scan, and bytes on"
                " disk by those of the load",
                names={
                    "commit_ms": "commit, median",
                    "commit_mean_ms": "commit, mean",
                    "commit_p99_ms": "commit, 99th percentile",
                    "key_ms": "look-up",
                    "scan_ms": "scan",
                    "disk_of_load": "bytes, of the load's",
                },
            ),
        ),
        "1 M rows, then commits of 100 rows, nine in ten of which replace a row. mdt runs its services by default; lance and"
        " deltalake are compacted and vacuumed after every 100 commits. Each engine stops after 2,000 commits or 240 seconds.",
        "Services are part of the commits, and the time budget bounds them. deltalake rewrites its files in each commit, and"
        " stopped before its first vacuum.",
    ),
    Question(
        "delta",
        "Upserts that Delta's and Iceberg's readers read",
        "-m benchmarks delta --flat --rows 5000000 --repeat 3",
        (
            Table(
                ("peer", "keys"),
                ("seconds", "cpu", "MB", "files"),
                caption="Medians",
                names={"cpu": "CPU seconds", "MB": "MB written", "files": "base files written"},
            ),
        ),
        "One commit upserts random keys of 5 M rows. Figures are medians of three, and pyiceberg ran once. delta-rs, Delta"
        " on Spark and Iceberg on Spark merge. At the end, delta-rs reads the tables with a Delta log that mdt and delta-rs"
        " have written. mdt has 64 base files, and the others choose their number.",
        "delta-rs and pyiceberg write each file with a changed row anew. mdt writes log files, a copy of their rows for"
        " other readers, positions of replaced rows, and a map of the keys. Delta and Iceberg on Spark write rows and"
        " positions only, so they write less, after a scan for the keys.",
    ),
    Question(
        "hudi",
        "Hudi's metadata table: commits, and planning of Hudi's engines",
        "-m benchmarks hudi --repeat 3",
        (
            Table(
                ("type", "rows", "partition"),
                ("cpu_ms", "cpu_ms_p99", "of none", "puts", "kB"),
                caption="Upserts into 300,000 rows, medians",
                names={
                    "type": "table type",
                    "partition": "with the partition, too",
                    "cpu_ms": "CPU ms",
                    "cpu_ms_p99": "p99",
                    "puts": "more puts",
                    "kB": "more kB",
                },
            ),
            Table(
                ("query", "writer", "metadata table"),
                ("seconds", "opens", "listings", "status", "read"),
                caption="Medians of warm plans",
                names={
                    "opens": "files opened",
                    "listings": "directories listed",
                    "status": "status requests",
                    "read": "data files to read",
                },
            ),
        ),
        "A tenth of the upserted rows are new. Each line of the first table has one more partition than the line above, and"
        " is compared with the same upsert without a metadata table. Hudi 1.2 on Spark 3.5 plans a filter on a column and a"
        " look-up by key, down to the files of its tasks. mdt and Hudi's writer made a table each, of version 9,"
        " copy-on-write, with 100 partitions of one file, from the same three commits.",
        "Without a metadata table Hudi lists each partition.",
    ),
    Question(
        "versions",
        "Versions of other formats after many commits",
        "-m benchmarks versions --commits 10000",
        (
            Table(
                ("what", "files"),
                ("cpu_ms", "cpu_ms_p99", "puts", "puts_p99", "kB", "kB_p99"),
                only=("kind", ("version",)),
                caption="Derivation and puts of a version, means and 99th percentiles of the last 1,000 commits",
                names={"cpu_ms": "CPU ms", "cpu_ms_p99": "p99", "puts_p99": "p99", "kB_p99": "p99"},
            ),
            Table(
                ("what", "files"),
                ("ms",),
                only=("kind", ("opening",)),
                caption="Milliseconds to open the table and find a file, in a new process",
            ),
        ),
        "Each commit deletes 20 rows in each of 50 random files of a table whose files do not exist. 1,000 commits are"
        " retained. delta-rs and pyiceberg open the table, and one with the same files that they have written.",
        "The vectors of 1,000 files have 10,000 rows each at the end, which is 0.8 MB for a commit.",
    ),
    Question(
        "foreign",
        "Tables of Hudi without adoption",
        "-m benchmarks foreign --files 100000 --repeat 3",
        (
            Table(
                ("reader", "table", "what"),
                ("seconds", "cpu", "megabytes"),
                caption="A merge-on-read table of 1 M rows, a fifth of them in Parquet log blocks",
                only=("table", ("of another writer", "adopted")),
                names={"cpu": "CPU seconds", "megabytes": "MB of memory"},
            ),
            Table(
                ("version", "partitions", "what"),
                ("seconds", "cpu", "megabytes"),
                caption="A table of 100,000 files with Hudi's metadata table",
                only=("files", (100_000,)),
                names={"cpu": "CPU seconds", "megabytes": "MB of memory"},
            ),
        ),
        "Each step but the last is in a new process. The first opening finds an empty cache directory. A plan leaves one"
        ' file by Hudi\'s column statistics, "all files" reads all footers. Medians of three.',
        "A first opening decodes the names of all files and one column of statistics. Opening the scanned table merges"
        " its log files by key, which an adopted table has already done.",
    ),
    Question(
        "clustering",
        "Clustering and compaction",
        "-m benchmarks clustering --rows 2000000",
        (
            Table(
                ("what",),
                ("read by both", "read by the second", "files", "seconds", "cpu"),
                caption="Shares of all rows that queries read, and the cost of clustering",
                names={
                    "what": "layout",
                    "read by both": "two ranges",
                    "read by the second": "range of the second column",
                    "cpu": "CPU seconds",
                },
            ),
            Table(
                ("what",),
                ("seconds", "cpu", "speed by pyarrow's"),
                caption="Compaction after an upsert of a tenth of the rows, and pyarrow reading and writing the same files",
                only=(
                    "what",
                    ("rewriting, pyarrow, before", "compaction, mdt", "rewriting, pyarrow, after"),
                ),
                names={
                    "what": "step",
                    "cpu": "CPU seconds",
                    "speed by pyarrow's": "speed, pyarrow's is 1",
                },
            ),
        ),
        "2 M rows that were loaded in no order are clustered by three columns or two. Each range of a query holds a tenth of"
        " the rows, so a hundredth matches two ranges. Bounds in Parquet footers exclude row groups.",
        "A sort excludes nothing by its second column. Clustering takes about as long as pyarrow takes to read, sort and write"
        " the same columns, Hudi's included.",
    ),
    Question(
        "advice",
        "Advice on indexes",
        "-m benchmarks advice --rows 100000",
        (
            Table(
                ("workload",),
                ("advised", "of", "mb_of_advised", "saved_unseen", "saved_by_every_index"),
                caption="Shares of bytes of data files that the other half of the queries does not read",
                names={
                    "advised": "advised indexes",
                    "of": "possible indexes",
                    "mb_of_advised": "MB of advised indexes",
                    "saved_unseen": "share, advised indexes",
                    "saved_by_every_index": "share, all indexes",
                },
            ),
        ),
        "Half of the queries of the Star Schema Benchmark and of three random workloads are counted, and `t.advise()` chooses"
        " indexes for them.",
        "The other queries of the Star Schema Benchmark filter three columns that no counted query filters.",
    ),
    Question(
        "keys",
        "Key indexes",
        "-m benchmarks keys --rows 5000000",
        (
            *(
                Table(
                    ("index",),
                    ("asked", "cpu_milliseconds", "bytes_per_key"),
                    "groups",
                    caption=f"{order.capitalize()} keys, by number of file groups: keys looked up / CPU"
                    " milliseconds / bytes per key",
                    only=("order", (order,)),
                )
                for order in ("ordered", "random")
            ),
        ),
        "Key indexes of 50,000 to 5 M keys in memory, without data files. All keys that are looked up exist. In random order,"
        " Bloom filters get fewer keys, because each key is tested by the filters of all file groups.",
        "With keys in order, ranges leave one file group for a key. In random order they exclude nothing, and the time of Bloom"
        " filters grows with the number of file groups.",
    ),
    Question(
        "latency",
        "Latency of single writes",
        "-m benchmarks latency --rows 200000",
        (
            Table(
                ("kind",),
                ("median_ms", "mean_ms", "p99_ms", "max_ms", "cpu_median_ms", "cpu_p99_ms"),
                caption="Milliseconds",
            ),
        ),
        "200 writes of each kind, each of 10,000 rows spread over all files of 200,000 rows, services as by default.",
    ),
    Question(
        "writers",
        "Writers side by side",
        "-m benchmarks writers --rows 200000 --peers lance,deltalake",
        (
            Table(
                ("peer", "writers", "threads", "batch", "hot", "latency"),
                ("calls_per_second", "rows_per_second", "cpu_ms_per_call", "refused"),
                caption="Calls of all processes together",
                names={
                    "writers": "processes",
                    "threads": "threads of a writer",
                    "batch": "rows a call",
                    "hot": "same ten keys",
                    "latency": "seconds added to a storage operation",
                    "cpu_ms_per_call": "CPU ms per call",
                },
            ),
        ),
        "Upserts into one file group of 200,000 rows on a local disk, for five seconds each. Threads of one process share a"
        " `t.writer()`. Processes write keys of their own, or all the same ten keys. Every row is counted at the end.",
        "A single call waits for 13 flushes to the disk, and otherwise takes CPU. On the slow storage, ten operations of a call"
        " wait for each other.",
    ),
    Question(
        "tpch",
        "TPC-H on Spark",
        "-m benchmarks.tpch --cbo --warm-seconds 8 --runs 5 --queries "
        + ",".join(f"Q{number}" for number in range(1, 23)),
        (RATIOS,),
        "The 22 queries at scale 1, beside plain Parquet files of the same rows and settings, `local[2]`, with Spark's"
        " cost-based optimizer.",
        "Spark plans and joins; mdt chooses files, row groups and rows, and gives the optimizer true sizes.",
    ),
    Question(
        "tpcds",
        "TPC-DS on Spark",
        "-m benchmarks.tpcds --cbo --warm-seconds 6 --runs 5",
        (RATIOS,),
        "25 of the 99 queries at scale 1, chosen before anything was measured to keep a run short. Each answer equals"
        " duckdb's.",
    ),
    Question(
        "spark",
        "Engines on Spark",
        '-m benchmarks spark --rows 1000000 --engines "mdt,mdt in tasks,iceberg"',
        (
            Table(
                ("step", "when"),
                TIMES,
                "engine",
                caption="Seconds / CPU seconds, medians of warm runs",
            ),
            Table(("step",), ("bytes",), "engine", caption="MB of the table"),
        ),
        'Frames with a filter and a computed column. "mdt" writes small inputs in the driver, as it does by default; "mdt'
        ' in tasks" writes everything in tasks. mdt runs on Spark 4.3, Iceberg 1.12 on 4.1.',
        "A load crosses between the JVM and Python three times, because equal keys must meet and files have disjoint key"
        " ranges; Iceberg writes rows as they come. Iceberg compresses with zstd, mdt on local disks with LZ4.",
    ),
)


def measure(question: Question, environments: Path) -> None:
    """Run the command of a question and keep its lines. Raises CalledProcessError if it fails."""
    arguments = shlex.split(question.command)
    if question.name in ("spark", "tpcds"):
        arguments += ["--environments", str(environments)]
    finished = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    lines = [line for line in finished.stdout.splitlines() if line.startswith("{")]
    RESULTS.mkdir(exist_ok=True)
    first = json.dumps({"command": f"python {question.command}", **environment_facts()})
    file = RESULTS / f"{question.name}.jsonl"
    file.write_text("\n".join([first, *lines]) + "\n", encoding="utf-8")


def environment_facts() -> dict[str, Any]:
    """Return date, machine and versions of what is measured."""
    versions = {name: _version(name) for name in PACKAGES}
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processors": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        **{name: number for name, number in versions.items() if number},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except ImportError:
        return None


def updated(text: str) -> str:
    """Return the page ``text`` with the sections of all measured questions as they are now.

    A section that the page does not have is appended. Other sections stay.
    """
    begin, *sections = re.split(r"(?m)^(?=## )", text)
    titles = [part.partition("\n")[0] for part in sections]
    for question in QUESTIONS:
        lines = section(question)
        if not lines:
            continue
        body = "\n".join([*lines, "", ""])
        if lines[0] in titles:
            sections[titles.index(lines[0])] = body
        else:
            titles.append(lines[0])
            sections.append(body)
    return begin + "".join(sections).rstrip("\n") + "\n"


def section(question: Question) -> list[str]:
    """Return the lines of a question's section, or [] if it was not measured."""
    file = RESULTS / f"{question.name}.jsonl"
    if not file.exists():
        return []
    first, *lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    command = first.pop("command")
    texts = [f"## {question.title}", "", *wrap(question.text), ""]
    texts += ["```text", command, "```", ""]
    for table in question.tables:
        texts += [f"{table.caption}:", "", *render_table(table, lines), ""]
    if question.bounds:
        texts += [*wrap(question.bounds), ""]
    return [*texts, *wrap(measured_with(first))]


def measured_with(facts: Mapping[str, Any]) -> str:
    """Return sentences on date, machine and versions.

    >>> measured_with({"date": "2026-11-27", "processors": 2, "machine": "x86_64", "numpy": "2.4"})
    'Measured on 2026-11-27 with 2 processors (x86_64), numpy 2.4.'
    """
    versions = [f"{name} {facts[name]}" for name in ("python", *PACKAGES) if name in facts]
    machine = f"{facts.get('processors')} processors ({facts.get('machine')})"
    text = f"Measured on {facts['date']} with {', '.join([machine, *versions])}."
    return f"{text} {facts['load'].capitalize()}." if "load" in facts else text


def wrap(text: str) -> list[str]:
    """Return text in lines for Markdown."""
    return textwrap.wrap(text, 117, break_long_words=False, break_on_hyphens=False)


def render_table(table: Table, lines: Iterable[Line]) -> list[str]:
    """Return the Markdown of a table. Raises ValueError if it would be empty."""
    chosen = [line for line in lines if belongs(table, line)]
    if not chosen:
        raise ValueError(f"no line has a field of {table.cells}")
    if table.columns is None:
        fields = [*table.rows, *table.cells]
        body = [[cell(line, name, table.unit) for name in fields] for line in chosen]
        if table.has_mean:
            means = [geometric_mean([line[name] for line in chosen]) for name in table.cells]
            body.append(["geometric mean", *map(value_text, means)])
        return grid([heading(table, name) for name in fields], body)
    columns = list(dict.fromkeys(line[table.columns] for line in chosen))
    by_row: dict[tuple[str, ...], dict[Any, str]] = {}
    for line in chosen:
        key = tuple(re.sub(table.without, "", cell(line, name)) for name in table.rows)
        by_row.setdefault(key, {})[line[table.columns]] = " / ".join(
            cell(line, name, table.unit) for name in table.cells
        )
    body = [[*key, *(row.get(name, "") for name in columns)] for key, row in by_row.items()]
    head = [*(heading(table, name) for name in table.rows), *map(value_text, columns)]
    return grid(head, body)


def heading(table: Table, name: str) -> str:
    """Return the heading of a field."""
    return table.names.get(name, name.replace("_", " "))


def belongs(table: Table, line: Line) -> bool:
    """Return True if a line has the first cell of the table, its column and its values."""
    if table.columns is not None and table.columns not in line:
        return False
    if table.only is not None and line.get(table.only[0]) not in table.only[1]:
        return False
    return bool(line.get(table.cells[0]))


def cell(line: Line, name: str, unit: float = 1) -> str:
    """Return a field of a line as text, bytes as megabytes and other fractions times ``unit``."""
    value = line.get(name)
    if name == "bytes" and value is not None:
        value = value / 1e6
    elif isinstance(value, float):
        value *= unit
    return value_text(value)


def value_text(value: Any) -> str:
    """Return a value as text, numbers with three significant digits.

    >>> [value_text(value) for value in (0.01234, 12.34, 1234.5, 1_000_000, "mdt", None)]
    ['0.0123', '12.3', '1,234', '1,000,000', 'mdt', '']
    """
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if type(value) is int else str(value)


def grid(head: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table."""
    rows = [head, ["---"] * len(head), *body]
    return [f"| {' | '.join(row)} |" for row in rows]


def main(
    only: Annotated[
        str, typer.Option(help=f"questions, by commas, of {', '.join(q.name for q in QUESTIONS)}")
    ] = "",
    render: Annotated[
        bool, typer.Option("--render", help="write the page, measure nothing")
    ] = False,
    environments: Annotated[
        Path, typer.Option(help="folder for the environments of other engines")
    ] = ROOT / ".spark-engines",
) -> None:
    """Measure, and write docs/figures.md."""
    names = only.split(",") if only else [question.name for question in QUESTIONS]
    for question in QUESTIONS:
        if question.name in names and not render:
            print(f"{question.name} ...", file=sys.stderr)
            measure(question, environments.resolve())
            write_page()
    write_page()


def write_page() -> None:
    """Bring the sections of docs/figures.md up to date with the results."""
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
