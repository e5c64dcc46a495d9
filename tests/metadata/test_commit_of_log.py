"""The beginning of a commit record, and the memory that a record takes. A writer that commits for
months stays within its limit.
"""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from texts import columns

import mdt
from mdt.metadata.files import paths
from mdt.metadata.log import commit_log
from mdt.stores.storage import MemoryStorage


def test_a_record_begins_with_its_own_transaction_id():
    storage, names = MemoryStorage(), [f"column_{number}" for number in range(300)]
    table = mdt.create(storage, columns("id int64, " + " int64, ".join(names) + " int64"), ["id"])
    table.insert([dict.fromkeys(["id", *names], 1)])
    table.delete([{"id": 1}])
    txns = table.history()["txn"].to_pylist()
    for seq, txn in enumerate(txns):
        assert commit_log.begins_with(storage, seq, txn)
        assert not commit_log.begins_with(storage, seq, txns[seq - 1])
        assert (storage.size(paths.commit(seq)) or 0) > commit_log._TXN_WITHIN
    assert not commit_log.begins_with(storage, len(txns), txns[-1]), "there is no such record"


MEASURED = """
import sys
from pathlib import Path
from mdt.metadata.log import commit_log

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
def test_the_reported_size_of_a_record_is_close_to_its_memory_use(tmp_path):
    table = mdt.create(tmp_path / "t", columns("id int64, v int64"), key=["id"])
    table.upsert(pa.table({"id": [1], "v": [1]}))
    command = [sys.executable, "-c", MEASURED, str(tmp_path / "t" / paths.commit(1))]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    measured_bytes, reported_bytes = map(int, process.stdout.split())
    assert reported_bytes / 2 < measured_bytes < 1.5 * reported_bytes
