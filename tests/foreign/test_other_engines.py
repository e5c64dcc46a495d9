"""The script for engines that cannot be run here reports answers that differ from ours."""

import sys

import other_engines
import pytest

RIGHT = """
import sys, mdt, pyarrow.compute as pc
name, _, where = sys.argv[2].partition("from default.")[2].partition(" ")
values = mdt.open(f"{sys.argv[1]}/{name}").scan(where=where.removeprefix("where ") or None)
values = values.to_arrow()["v"]
print("Query finished")
print(f'"{len(values)}","{pc.sum(values).as_py()}"')
"""


@pytest.mark.nightly
def test_script_compares_the_answers_of_an_engine_with_ours(tmp_path, capsys):
    assert other_engines.main(["make", str(tmp_path)]) == 0
    engine = tmp_path / "engine.py"
    for text, code, verdict in ((RIGHT, 0, "equal"), ("print('1,2')", 1, "DIFFERS: [1, 2], not")):
        engine.write_text(text)
        command = f"{sys.executable} {engine} {tmp_path}"
        assert other_engines.main(["check", str(tmp_path), "--command", command]) == code
        lines = capsys.readouterr().out.splitlines()
        verdicts = [line for line in lines if not line.startswith("made")]
        assert len(verdicts) == 16 and all(verdict in line for line in verdicts)
