"""``mdt services``: one process maintains many tables."""

import os
import signal

from command_line import SCHEMA, documents, error_of, filled, run, shown
from texts import rows_of

import mdt
from mdt.cli import service_commands
from mdt.metadata.files import paths as metadata_paths
from mdt.services import auto_maintenance


def table_due_for_compaction(path):
    """Create a table with many log files whose writer ran no services, and return its path."""
    table = mdt.open(filled(path), {"mdt.services.auto": False})
    for number in range(12):
        table.upsert(rows_of(SCHEMA, f"001 x {10 + number}", f"002 y {10 + number}"))
    return path


def test_services_maintains_several_tables(tmp_path):
    paths = [
        table_due_for_compaction(tmp_path / "one"),
        table_due_for_compaction(tmp_path / "other"),
        filled(tmp_path / "tidy"),
    ]
    done = [line["done"] for line in documents("services", *paths)]
    assert done == [["compact"], ["compact"], []]
    assert [len(mdt.open(path).files()) for path in paths] == [2, 2, 2]
    assert "nothing is due" in shown("services", paths[0])


def test_a_watch_runs_until_it_is_stopped(tmp_path, monkeypatch):
    path, pauses = table_due_for_compaction(tmp_path / "one"), []

    def stop_at_third_pause(stop, seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(service_commands, "_pause", stop_at_third_pause)
    text = shown("services", path, "--watch", "--seconds", "7")
    assert pauses == [7.0] * 3 and text.count("compact") == 1
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_signal_ends_a_run_after_the_current_step(tmp_path, monkeypatch):
    paths = [table_due_for_compaction(tmp_path / name) for name in ("one", "other")]
    tidy = mdt.Table.tidy

    def interrupt_then_tidy(table, **more):
        os.kill(os.getpid(), signal.SIGINT)
        return tidy(table, **more)

    monkeypatch.setattr(mdt.Table, "tidy", interrupt_then_tidy)
    (line,) = shown("services", *paths, "--once").splitlines()
    assert line.endswith("one: compact")
    assert not mdt.open(paths[0]).storage.list_dir(metadata_paths.PENDING_DIR)


def test_a_failing_table_does_not_delay_the_others(tmp_path, monkeypatch):
    paths = [table_due_for_compaction(tmp_path / name) for name in ("one", "other")]
    run_due = auto_maintenance.run_due

    def fail_for_first_table(metadata, options, **more):
        if metadata.storage.url.endswith("one"):  # type: ignore[attr-defined]
            raise mdt.errors.Unavailable("the storage does not answer (a fault made by a test)")
        return run_due(metadata, options, **more)

    monkeypatch.setattr(auto_maintenance, "run_due", fail_for_first_table)
    monkeypatch.setattr(service_commands, "_pause", lambda stop, seconds: stop.set())
    result = run("services", *paths, "--watch")
    assert "does not answer" in result.stderr and "other: compact" in result.stdout
    assert "does not answer" in error_of("services", *paths)
