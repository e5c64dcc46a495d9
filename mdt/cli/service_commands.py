"""The command ``mdt services``: one process that looks after many tables, whoever writes to
them.
"""

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
from mdt.cli.commands import command, opened, tell
from mdt.cli.terminal import DryRun, Settings, warn
from mdt.errors import Invalid, MdtError

WATCH_SECONDS = 60.0

Paths = Annotated[
    list[str], typer.Argument(help="Directories or URLs of tables.", metavar="PATH...")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app)(services)


def services(
    path: Paths,
    watch: Annotated[
        bool,
        typer.Option("--watch/--once", help="Look again and again until interrupted, or once."),
    ] = False,
    seconds: Annotated[
        float, typer.Option(help="Pause between two looks, with --watch.", min=0.1)
    ] = WATCH_SECONDS,
    dry_run: DryRun = False,
    option: Settings = [],  # noqa: B006 - typer copies it
) -> None:
    """Run the services that are due: compaction, joining of small files, cleaning.

    Each step commits by itself.  SIGINT or SIGTERM ends the command after the step that is running;
    a second one ends it at once.
    """
    if dry_run and watch:
        raise Invalid(
            "--watch goes on while there is something to do, and a dry run does nothing",
            hint="leave one of them out",
        )
    tables = [opened(one, option) for one in path]
    with _stopped_by_signals() as stop:
        while not stop.is_set():
            for one in tables:
                if not stop.is_set():
                    _look_after(one, watch, stop, dry_run)
            if not watch:
                return
            _pause(stop, seconds)


def _pause(stop: threading.Event, seconds: float) -> None:
    stop.wait(seconds)


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """Yield an event that the first SIGINT or SIGTERM sets; a second SIGINT interrupts."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        # elsewhere nobody may handle signals
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


def _look_after(one: table.Table, watch: bool, stop: threading.Event, dry_run: bool) -> None:
    """Run services of one table until nothing is due, and print what each round did; with ``watch``
    an error does not keep other tables waiting.
    """
    is_idle = True
    try:
        while not stop.is_set():
            done, warnings = one.tidy(dry_run=dry_run)
            if done or warnings:
                is_idle = False
                tell(
                    {"path": one.path, "done": done},
                    f"{one.path}: {', '.join(done) or 'nothing'}",
                    warnings,
                )
                sys.stdout.flush()
            if not done or dry_run:
                break
    except MdtError as error:
        if not watch:
            raise
        warn([f"{one.path}: {error}"])
        return
    if is_idle and not watch:
        tell({"path": one.path, "done": []}, f"{one.path}: nothing is due")
