"""``mdt services run``: one process that looks after many tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from command_line import ROWS, filled, run

import mdt
from mdt.services import inline
from mdt.stores.storage import LocalStorage


def neglected(path: Path) -> Path:
    """Return a table with many log files, whose writer did not look after it."""
    table = mdt.open(filled(path), {"mdt.services.auto": False})
    for number in range(12):
        table.upsert(ROWS.set_column(2, "v", pa.array([10 + number] * len(ROWS))))
    return path


def test_services_run_looks_after_several_tables(tmp_path: Path) -> None:
    one, other, tidy = neglected(tmp_path / "one"), neglected(tmp_path / "other"), filled(tmp_path / "tidy")
    lines = [json.loads(line) for line in run("services", "run", one, other, tidy, "--json").stdout.splitlines()]
    assert [line["done"] for line in lines] == [["compact"], ["compact"], []]
    assert len(mdt.open(one).files()) == len(mdt.open(other).files()) == 2
    assert "nothing is due" in run("services", "run", one).stdout


def test_a_watch_goes_on_until_it_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, looks = neglected(tmp_path / "one"), []

    def interrupted(self: LocalStorage, seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(LocalStorage, "sleep", interrupted)
    shown = run("services", "run", path, "--watch", "--seconds", "7").stdout
    assert looks == [7.0] * 3 and shown.count("compact") == 1


def test_a_table_that_fails_does_not_keep_others_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [neglected(tmp_path / name) for name in ("one", "other")]
    run_due: Callable[..., object] = inline.run_due

    def sometimes(metadata: object, options: object) -> object:
        if metadata.storage.url.endswith("one"):  # type: ignore[attr-defined]
            raise mdt.errors.Unavailable("the storage does not answer (a fault made by a test)")
        return run_due(metadata, options)

    def interrupted(self: LocalStorage, seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(inline, "run_due", sometimes)
    monkeypatch.setattr(LocalStorage, "sleep", interrupted)
    result = run("services", "run", *paths, "--watch")
    assert "does not answer" in result.stderr and "other: compact" in result.stdout
    assert "does not answer" in run("services", "run", *paths, code=2).stderr
