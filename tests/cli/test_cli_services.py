"""``mdt services``: one process that looks after many tables."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from command_line import ROWS, filled, run

import mdt
from mdt.cli import service_commands
from mdt.metadata.files import paths as metadata_paths
from mdt.services import auto_maintenance


def neglected(path: Path) -> Path:
    """Return a table with many log files, whose writer did not look after it."""
    table = mdt.open(filled(path), {"mdt.services.auto": False})
    for number in range(12):
        table.upsert(ROWS.set_column(2, "v", pa.array([10 + number] * len(ROWS))))
    return path


def test_services_run_looks_after_several_tables(tmp_path: Path) -> None:
    one, other, tidy = (
        neglected(tmp_path / "one"),
        neglected(tmp_path / "other"),
        filled(tmp_path / "tidy"),
    )
    lines = [
        json.loads(line) for line in run("services", one, other, tidy, "--json").stdout.splitlines()
    ]
    assert [line["done"] for line in lines] == [["compact"], ["compact"], []]
    assert len(mdt.open(one).files()) == len(mdt.open(other).files()) == 2
    assert "nothing is due" in run("services", one).stdout


def test_a_watch_goes_on_until_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, pauses = neglected(tmp_path / "one"), []

    def stopped(stop: threading.Event, seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(service_commands, "_pause", stopped)
    shown = run("services", path, "--watch", "--seconds", "7").stdout
    assert pauses == [7.0] * 3 and shown.count("compact") == 1
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_signal_ends_a_run_after_the_step_that_is_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [neglected(tmp_path / name) for name in ("one", "other")]
    tidy = mdt.Table.tidy

    def signalled(table: mdt.Table, **more: bool) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return tidy(table, **more)

    monkeypatch.setattr(mdt.Table, "tidy", signalled)
    lines = run("services", *paths, "--once").stdout.splitlines()
    assert len(lines) == 1 and lines[0].endswith("one: compact")
    assert not mdt.open(paths[0]).storage.list_dir(metadata_paths.pending_dir())


def test_a_table_that_fails_does_not_keep_others_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [neglected(tmp_path / name) for name in ("one", "other")]
    run_due: Callable[..., object] = auto_maintenance.run_due

    def sometimes(metadata: object, options: object, **more: bool) -> object:
        if metadata.storage.url.endswith("one"):  # type: ignore[attr-defined]
            raise mdt.errors.Unavailable("the storage does not answer (a fault made by a test)")
        return run_due(metadata, options, **more)

    monkeypatch.setattr(auto_maintenance, "run_due", sometimes)
    monkeypatch.setattr(service_commands, "_pause", lambda stop, seconds: stop.set())
    result = run("services", *paths, "--watch")
    assert "does not answer" in result.stderr and "other: compact" in result.stdout
    assert "does not answer" in run("services", *paths, code=2).stderr
