"""What a commit record says that it takes in memory is about what it takes: a writer that commits
for months keeps no more than its limit.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import mdt

MEASURED = """
import sys
from pathlib import Path
from mdt.metadata import commit_log

def own():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

data = Path(sys.argv[1]).read_bytes()
kept = [commit_log.decode(data, seq=1, path="one") for _ in range(20)]
before = own()
kept = [commit_log.decode(data, seq=1, path="one") for _ in range(600)]
print(own() - before, sum(record.nbytes for record in kept))
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="asks Linux how much memory a process has"
)
def test_a_record_says_how_much_memory_it_takes(tmp_path: Path) -> None:
    table = mdt.create(
        tmp_path / "t", pa.schema([("id", pa.int64()), ("v", pa.int64())]), key=["id"]
    )
    table.upsert(pa.table({"id": [1], "v": [1]}))
    record = tmp_path / "t/.hoodie/.mdt/log" / f"{1:020d}"
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(record)], check=True, capture_output=True, text=True
    )
    taken, told = map(int, done.stdout.split())
    assert told / 2 < taken < 1.5 * told
