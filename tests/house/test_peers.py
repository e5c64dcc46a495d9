"""Peers that need their own environment: they are measured in it, and left out if it cannot be
created.
"""

import json
import sys

import pytest
from rich.console import Console

from benchmarks import __main__ as command
from benchmarks import nested
from benchmarks.harness import Job, run_by
from benchmarks.peers import PEERS, environments
from benchmarks.peers.environments import REQUIREMENTS, Missing, interpreter
from benchmarks.trips import FLAT, Trips, WrongAnswer

JOB = Job("scan", "arrow", 1_000, 7, False, 1)


def test_a_job_in_another_interpreter_returns_its_figures_or_its_error():
    (figure,) = run_by(sys.executable, JOB)
    assert (figure.workload, figure.peer, figure.rows, figure.times, figure.error) == (
        "full scan",
        "arrow",
        1_000,
        1,
        None,
    )
    assert figure.seconds is not None and figure.cpu_seconds is not None
    (failed,) = run_by(sys.executable, Job("scan", "nobody", 1_000, 7, False, 1))
    assert failed.error == "KeyError: 'nobody'"
    (exited,) = run_by("false", JOB)
    assert exited.error == "process ended with 1"


def test_trips_have_a_nested_a_nullable_and_a_wide_column_unless_they_are_flat(
    monkeypatch,
):
    trips = Trips(1_000, integers=True)
    rows = trips.load()
    trips.check(rows)
    assert rows.schema.names[-3:] == ["geo", "tip", "detail"] and rows["tip"].null_count > 300
    wrong = rows.set_column(
        rows.schema.get_field_index("geo"), "geo", rows["geo"].take(list(range(999, -1, -1)))
    )
    with pytest.raises(WrongAnswer, match="another geo"):
        trips.check(wrong)
    monkeypatch.setenv(FLAT, "1")
    assert Trips(1_000, integers=True).load().equals(rows.drop_columns(["geo", "tip", "detail"]))


def test_reads_of_few_rows_beside_nested_columns_are_measured():
    lines = []
    nested.run(1_000, 7, 1, lines.append)
    results = [json.loads(line) for line in lines]
    assert [line["kind"] for line in results] == ["flat", "struct", "list", "map"] * 8
    assert all(line["cpu_ms"] > 0 for line in results)


def test_a_peer_whose_environment_cannot_be_created_is_left_out_with_the_reason(
    tmp_path, monkeypatch, capsys
):
    def fail_to_make(python, *requirements):
        raise Missing(f"{requirements[0]} cannot be installed: no network")

    monkeypatch.setattr(environments, "make", fail_to_make)
    assert interpreter("lance", tmp_path) == sys.executable
    jobs = [Job("scan", peer, 1_000, 7, False, 1) for peer in ("pypaimon", "arrow")]
    figures = command.measured(jobs, Console(stderr=True, width=200), None, tmp_path)
    assert [figure.peer for figure in figures] == ["arrow"]
    assert "pypaimon is left out: pypaimon==" in capsys.readouterr().err
    assert command.pythons(["mdt", "ducklake"], tmp_path, {}) == {"mdt": sys.executable}
    assert command.pythons(["ducklake"], tmp_path, {"ducklake": "python9"}) == {
        "ducklake": "python9"
    }
    assert "ducklake is left out: duckdb==" in capsys.readouterr().err


def test_the_environment_of_a_peer_is_created_once(tmp_path, monkeypatch):
    installed = []

    def make(python, *requirements):
        installed.append(requirements)
        python.parent.mkdir(parents=True)
        python.touch()

    monkeypatch.setattr(environments, "make", make)
    for _ in range(2):
        assert interpreter("ducklake", tmp_path) == str(tmp_path / "ducklake" / "bin" / "python")
    assert installed == [REQUIREMENTS["ducklake"]] and REQUIREMENTS.keys() <= PEERS.keys()
