"""``python -m benchmarks upsert lookup scan``: JSON lines on standard output, then a table on
standard error.

Ends with status 1 if a peer failed or gave a wrong answer.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import (
    advice,
    changes,
    clustering,
    conditions,
    delta,
    foreign,
    hudi_planning,
    keys,
    latency,
    life,
    nested,
    planning,
    spark,
    versions,
    writers,
    written,
)
from benchmarks.harness import BENCHES, Figure, Job, run, run_by
from benchmarks.peers import PEERS
from benchmarks.peers.environments import Missing, interpreter
from benchmarks.trips import FLAT

PLANNING = "planning"
LIFE = "life"
CHANGES = "changes"
CONDITIONS = "conditions"
CLUSTERING = "clustering"
DELTA = "delta"
KEYS = "keys"
FOREIGN = "foreign"
HUDI = "hudi"
NESTED = "nested"
VERSIONS = "versions"
WRITERS = "writers"
WRITTEN = "written"
LATENCY = "latency"
ADVICE = "advice"
SPARK = "spark"
OWN = (
    PLANNING,
    LIFE,
    CHANGES,
    CONDITIONS,
    CLUSTERING,
    DELTA,
    KEYS,
    FOREIGN,
    HUDI,
    NESTED,
    VERSIONS,
    WRITERS,
    WRITTEN,
    LATENCY,
    ADVICE,
    SPARK,
)
"""Benches with a workload or a form of their own."""
Reference = dict[tuple[str, str], Figure]


def compare(figure: Figure, reference: Reference) -> None:
    """Note mdt's figures in ``reference`` and set the ratios of the others."""
    if figure.peer == "mdt":
        reference[figure.bench, figure.workload] = figure
    ours = reference.get((figure.bench, figure.workload))
    if ours and ours.seconds and figure.seconds is not None:
        figure.ratio_to_mdt = figure.seconds / ours.seconds
    if ours and ours.cpu_seconds and figure.cpu_seconds is not None:
        figure.cpu_ratio_to_mdt = figure.cpu_seconds / ours.cpu_seconds


def line(figure: Figure) -> str:
    """Return a figure as one line of JSON, numbers to six digits after the point."""
    values = {
        k: round(v, 6) if isinstance(v, float) else v
        for k, v in asdict(figure).items()
        if v is not None
    }
    return json.dumps(values)


def table(figures: Iterable[Figure], title: str) -> Table:
    """Return the figures for people: a row for each workload and peer."""
    result = Table(title=title, caption="by mdt: above 1 mdt is faster")
    for heading in ("workload", "peer"):
        result.add_column(heading, no_wrap=True)
    for heading in ("seconds", "first", "CPU s", "by mdt", "CPU by mdt", "MB"):
        result.add_column(heading, justify="right", no_wrap=True)
    measured = [figure for figure in figures if not figure.error]
    for figure in sorted(measured, key=lambda figure: (figure.bench, figure.workload)):
        megabytes = figure.bytes / 1e6 if figure.bytes is not None else None
        numbers = (figure.seconds, figure.first_seconds, figure.cpu_seconds, figure.ratio_to_mdt)
        texts = [
            f"{n:.4g}" if n is not None else ""
            for n in (*numbers, figure.cpu_ratio_to_mdt, megabytes)
        ]
        result.add_row(figure.workload, figure.peer, *texts)
    return result


PEERS_DEFAULT = "duckdb,deltalake,lance,ducklake,pypaimon,arrow,pyiceberg"


def chosen(peers: str) -> list[str]:
    """Return the peers to run, mdt first so that the others can be compared with it."""
    names = [name for name in peers.split(",") if name and name != "mdt"]
    known = {**PEERS, **planning.PEERS}
    if unknown := [name for name in names if name not in known]:
        raise typer.BadParameter(f"unknown peers {unknown}; known are {sorted(known)}")
    return ["mdt", *names]


def pythons(peers: Iterable[str], environments: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Return the interpreter of each of ``peers``, those that are ``given`` too; peers whose
    environment cannot be had are left out.
    """
    found = {}
    for peer in peers:
        try:
            found[peer] = given.get(peer) or interpreter(peer, environments)
        except Missing as why:
            print(f"{peer} is left out: {why}", file=sys.stderr)
    return found


def measured(
    jobs: Iterable[Job], people: Console, out: Path | None, environments: Path
) -> list[Figure]:
    """Run the jobs and return their figures; each is printed as it comes, and appended to the file
    ``out``.  Peers whose environment cannot be had are left out, with the reason.
    """
    results, reference = list[Figure](), Reference()
    for job in jobs:
        people.print(f"[dim]{job.bench}: {job.peer} ...")
        try:
            python = interpreter(job.peer, environments)
        except Missing as why:
            people.print(f"[yellow]{job.bench}: {job.peer} is left out:[/yellow] {why}")
            continue
        for figure in run(job) if python == sys.executable else run_by(python, job):
            compare(figure, reference)
            results.append(figure)
            print(line(figure), flush=True)
            if out:
                with out.open("a", encoding="utf-8") as file:
                    file.write(line(figure) + "\n")
    for figure in results:
        if figure.error:
            people.print(f"[red]{figure.bench}: {figure.peer} failed:[/red] {figure.error}")
    return results


def jobs_of(benches: Iterable[str], peers: Iterable[str], like: Job) -> list[Job]:
    """Return a job like the given one for each bench and each of its peers."""
    if unknown := [name for name in benches if name not in BENCHES]:
        raise typer.BadParameter(f"unknown benches {unknown}; known are {sorted(BENCHES)}")
    return [
        replace(like, bench=bench, peer=peer)
        for bench in benches
        for peer in peers
        if peer in PEERS
    ]


def own_forms(
    benches: Iterable[str], peers: str, like: Job, seconds: float, environments: Path
) -> None:
    """Run the benches of small forms of their own."""
    emit, rows, seed = partial(print, flush=True), like.rows, like.seed
    for name, bench_of in ((CHANGES, changes), (CONDITIONS, conditions)):
        if name in benches:
            wanted = [peer for peer in chosen(peers) if peer in bench_of.PEERS]
            bench_of.run(wanted, rows, seed, like.repeat, emit)
    if CLUSTERING in benches:
        clustering.run(rows, seed, emit)
    if DELTA in benches:
        delta.run(rows, seed, like.repeat, emit, environments)
    if KEYS in benches:
        keys.run(rows, seed, like.repeat, emit)
    if NESTED in benches:
        nested.run(rows, seed, like.repeat, emit)
    if WRITTEN in benches:
        written.run(rows, seed, emit)
    if ADVICE in benches:
        advice.run(rows, seed, emit)
    if LATENCY in benches:
        latency.run(rows, seed, latency.WRITES, latency.KINDS, {}, emit)
    if WRITERS in benches:
        writers.run(
            [peer for peer in chosen(peers) if peer in writers.PEERS], rows, seed, seconds, emit
        )


def title(like: Job, flat: bool) -> str:
    """Return what was measured, in words."""
    kind = f"{'shuffled ' if like.shuffled else ''}{'integer' if like.integers else 'text'} keys"
    return f"trips{', flat' * flat}, {like.rows:,} rows, {kind}"


Flat = Annotated[
    bool,
    typer.Option(
        help="leave the nested, the nullable and the wide column out, as older figures do"
    ),
]


def main(
    benches: Annotated[
        list[str], typer.Argument(metavar="BENCH...", help=f"any of {', '.join([*BENCHES, *OWN])}")
    ],
    rows: Annotated[int, typer.Option(min=1_000, help="rows of the load")] = 1_000_000,
    peers: Annotated[str, typer.Option(help="peers beside mdt, by commas")] = PEERS_DEFAULT,
    seed: Annotated[int, typer.Option(help="of all random data")] = 7,
    repeat: Annotated[
        int, typer.Option(min=1, help="scans and look-ups, of which the median is shown")
    ] = 3,
    shuffled: Annotated[bool, typer.Option(help="load keys in random order")] = False,
    integers: Annotated[bool, typer.Option(help="keys are numbers instead of text")] = False,
    flat: Flat = False,
    out: Annotated[Path | None, typer.Option(help="append the JSON lines to this file too")] = None,
    files: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            help=(
                "planning, versions: files of the tables, may be repeated; foreign: files of the table"
                " that is opened; hudi: files of the tables; life: files of the load, as many"
                " as each peer makes by itself if not given"
            ),
        ),
    ] = None,
    commits: Annotated[int, typer.Option(min=1, help="life, versions: how many")] = 1_000,
    batch: Annotated[int, typer.Option(min=1, help="life: rows of a commit")] = 100,
    budget: Annotated[
        float, typer.Option(min=1, help="life: seconds of commits after which a peer stops")
    ] = 3_600,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="of work (writers), of warmth (spark), a kind")
    ] = 5,
    ducklake: Annotated[
        str | None,
        typer.Option(
            help=(
                "life: a Python in whose environment are duckdb and duckdb-extension-ducklake of"
                " one version"
            )
        ),
    ] = None,
    engines: Annotated[str, typer.Option(help="spark: which, by commas")] = ",".join(
        spark.ENGINES_DEFAULT
    ),
    environments: Annotated[
        Path,
        typer.Option(
            help=(
                "folder in which the environments of peers that have their own, and of other"
                " engines on Spark, are made, and stay"
            )
        ),
    ] = Path(".spark-engines"),
) -> None:
    """Measure mdt and its peers on the workload `trips`; `life` writes small commits for long;
    `latency` has what single writes wait for; `advice` tries indexes on queries that did not choose
    them; `changes` reads what changed; `conditions` deletes and updates by them; `clustering` puts
    rows in order; `delta` upserts into tables with a Delta log; `versions` derives versions of Delta and
    Iceberg after many commits; `writers` upsert side by side;
    `written` counts bytes that operations write; `keys` simulates key indexes of up to so many
    keys; `foreign` reads tables of another writer; `nested` reads few rows beside nested
    columns; `spark` compares engines on Spark; `planning` has tables of many files and its own
    workload; `hudi` has the cost of Hudi's metadata table in commits, and plans with Hudi on Spark.
    """
    if flat:
        os.environ[FLAT] = "1"
    if PLANNING in benches:
        planning.run(
            files or planning.FILES_DEFAULT,
            peers=chosen(peers),
            times=repeat,
            emit=partial(print, flush=True),
        )
    where, like = environments.resolve(), Job("", "", rows, seed, shuffled, repeat, integers)
    if FOREIGN in benches:
        count = (files or [foreign.FILES_DEFAULT])[0]
        foreign.run(rows, count, seed, repeat, partial(print, flush=True))
    if HUDI in benches:
        count = (files or [hudi_planning.FILES_DEFAULT])[0]
        hudi_planning.run(count, seed, repeat, partial(print, flush=True), where)
    if VERSIONS in benches:
        versions.run(files or versions.FILES_DEFAULT, commits, repeat, partial(print, flush=True))
    if LIFE in benches:
        wanted = [name for name in chosen(peers) if name in life.PEERS]
        work = life.Work(rows, commits, batch, seed, files[0] if files else None, budget)
        found = pythons(wanted, where, {} if ducklake is None else {"ducklake": ducklake})
        life.run(list(found), work, partial(print, flush=True), found)
    own_forms(benches, peers, like, seconds, where)
    if SPARK in benches:
        spark.run(
            engines.split(","), rows, seed, repeat, seconds, partial(print, flush=True), where
        )
    people = Console(stderr=True, width=116)
    jobs = jobs_of([name for name in benches if name not in OWN], chosen(peers), like)
    results = measured(jobs, people, out, where)
    if results:
        people.print(table(results, title(like, flat)))
    sys.exit(any(figure.error for figure in results))


if __name__ == "__main__":
    typer.run(main)
