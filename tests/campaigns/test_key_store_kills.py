"""Writers that share an embedded key store are killed at random. After each kill the store has the
keys of the table.
"""

import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from counting import count
from key_stores import assert_knows_the_table
from texts import columns

import mdt

SCHEMA = columns("id int64, city string, x float64")

_WRITER = textwrap.dedent("""
    import sys
    import pyarrow as pa
    import mdt

    table = mdt.open(sys.argv[1], {"mdt.key.store.dir": sys.argv[3]})
    number = int(sys.argv[2])
    print("begun", flush=True)
    while True:
        number += 1
        ids = [(7 * number + 13 * n) % 5_000 for n in range(40)]
        rows = pa.table([ids, [f"c{i % 2}" for i in ids], [float(number)] * len(ids)], schema=table.schema)
        done = table.delete(rows) if number % 5 == 0 else table.upsert(rows)
        if number % 7 == 0:
            table.compact()
    """)


def kill_writer(table, number, draw):
    """Start a process that writes, and kill it while it does."""
    command = [
        sys.executable,
        "-c",
        _WRITER,
        table.path,
        str(1_000 * number),
        table.options.key_store_dir,
    ]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ))
    assert child.stdout is not None and child.stdout.readline() == b"begun\n"
    time.sleep(draw.uniform(0.0, 0.4))
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()


def campaign(folder, kills, seed):
    draw = random.Random(seed)
    keys = {"mdt.key.store.dir": str(folder / "keys")}
    options = {"mdt.durable": False, "mdt.rollback.after.seconds": 0}
    mdt.create(
        folder / "t", SCHEMA, ["id"], partition_by=["city"], key_index="lmdb", options=options
    )
    for number in range(kills):
        table = mdt.open(folder / "t", keys)
        kill_writer(table, number, draw)
        table.abort()
        before = table.scan().count()
        assert_knows_the_table(table)
        rows = table.scan(columns=["id", "city", "x"]).to_arrow()
        assert rows.num_rows == before
        if before:
            result = table.upsert(rows)
            assert (result.inserted, result.updated) == (0, before), (
                "no key is missing or stored twice"
            )
        count("writers with an embedded key store that were killed")


@pytest.mark.timeout(300)
def test_the_key_store_has_the_keys_of_the_table_after_five_kills(tmp_path):
    campaign(tmp_path, 5, seed=1)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_the_key_store_has_the_keys_of_the_table_after_two_hundred_kills(tmp_path):
    campaign(tmp_path, 200, seed=2)
