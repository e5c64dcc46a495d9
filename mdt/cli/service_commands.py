"""The command ``mdt services``: a process that maintains many tables."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer

from mdt import table
from mdt.cli.commands import command, open_table, tell
from mdt.cli.terminal import DryRun, Settings, warn
from mdt.errors import Invalid, MdtError

WATCH_SECONDS = 60.0

Paths = Annotated[
    list[str], typer.Argument(help="Directories or URLs of tables.", metavar="PATH...")
]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app)(services)


def services(
    path: Paths,
    watch: Annotated[
        bool,
        typer.Option("--watch/--once", help="Repeat until interrupted, or run once."),
    ] = False,
    seconds: Annotated[
        float, typer.Option(help="Pause between two runs with --watch.", min=0.1)
    ] = WATCH_SECONDS,
    dry_run: DryRun = False,
    option: Settings = [],
) -> None:
    """Run due services: compaction, joining of small files, cleaning.

    Each step is a commit of its own. SIGINT or SIGTERM ends the command after the current step, and
    a second signal ends it at once.
    """
    if dry_run and watch:
        raise Invalid(
            "--watch and --dry-run cannot be combined",
            hint="leave one of them out",
        )
    tables = [open_table(t, option) for t in path]
    with _stopped_by_signals() as stop:
        while not stop.is_set():
            for t in tables:
                if not stop.is_set():
                    _look_after(t, watch, stop, dry_run)
            if not watch:
                return
            _pause(stop, seconds)


def _pause(stop: threading.Event, seconds: float) -> None:
    stop.wait(seconds)


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """Yield an event that the first SIGINT or SIGTERM sets. A second SIGINT interrupts."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        # only the main thread may handle signals
        yield stop
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: FrameType | None) -> None:
        stop.set()
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in before:
        signal.signal(number, handle)
    try:
        yield stop
    finally:
        restore()


def _look_after(t: table.Table, watch: bool, stop: threading.Event, dry_run: bool) -> None:
    """Run services of a table until none is due, and print each round. With ``watch``, an error
    does not stop the other tables.
    """
    is_idle = True
    try:
        while not stop.is_set():
            services, warnings = t.tidy(dry_run=dry_run)
            if services or warnings:
                is_idle = False
                tell(
                    {"path": t.path, "done": services},
                    f"{t.path}: {', '.join(services) or 'nothing'}",
                    warnings,
                )
                sys.stdout.flush()
            if not services or dry_run:
                break
    except MdtError as error:
        if not watch:
            raise
        warn([f"{t.path}: {error}"])
        return
    if is_idle and not watch:
        tell({"path": t.path, "done": []}, f"{t.path}: nothing is due")
