"""Sections of docs/figures.md contain the results that its command printed."""

import json

from benchmarks import figures
from benchmarks.figures import PAGE, QUESTIONS, RESULTS, Question, Table, section, updated

MEASURED = [question for question in QUESTIONS if (RESULTS / f"{question.name}.jsonl").exists()]


def test_sections_of_measured_questions_are_up_to_date_with_their_results():
    text = PAGE.read_text(encoding="utf-8")
    assert MEASURED
    assert updated(text) == text


def test_results_have_the_command_of_their_question():
    for question in MEASURED:
        first = (RESULTS / f"{question.name}.jsonl").read_text(encoding="utf-8").partition("\n")[0]
        assert json.loads(first)["command"] == f"python {question.command}"


def test_a_section_has_a_row_for_each_value_and_a_column_for_each_peer(tmp_path, monkeypatch):
    lines = [
        {"command": "python -m x", "date": "2026-11-01", "load": "other work ran beside it"},
        {
            "workload": "load",
            "peer": "mdt",
            "seconds": 1.25,
            "cpu_seconds": 2.0,
            "bytes": 5_000_000,
        },
        {"workload": "load", "peer": "lance", "seconds": 0.5},
        {"query": "Q1", "variant": "mdt", "times": 0.5},
        {"query": "Q2", "variant": "mdt", "times": 2.0},
        {"query": "Q2", "variant": "plain", "times": 1.0},
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    tables = (
        Table(("workload",), ("seconds", "bytes"), "peer", caption="Seconds"),
        Table(("query",), ("times",), only=("variant", ("mdt",)), has_mean=True),
        Table(("workload",), ("seconds",), unit=1000, names={"seconds": "ms"}),
    )
    text = "\n".join(section(Question("x", "Title", "-m x", tables, "Text.", "Bound.")))
    assert "| workload | mdt | lance |\n| --- | --- | --- |\n| load | 1.25 / 5 | 0.5 /  |" in text
    assert "| Q1 | 0.5 |\n| Q2 | 2 |\n| geometric mean | 1 |\n" in text
    assert "| workload | ms |\n| --- | --- |\n| load | 1,250 |\n| load | 500 |" in text
    assert text.endswith("Other work ran beside it.")
    assert section(Question("y", "Not measured", "-m y", tables, "Text.")) == []
