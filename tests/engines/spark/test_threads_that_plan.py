"""Threads of the JVM that call Python come and go with queries: Py4J would keep a connection, and a
thread of Python's, for each of them.
"""

import threading

from texts import columns

import mdt

QUERIES = 12
THREADS = 4


def connections():
    """Return how many threads of Python, which have no name of their own, wait for calls of the
    JVM.
    """
    return sum(thread.name.startswith("Thread-") for thread in threading.enumerate())


def test_a_thread_that_planned_a_query_leaves_no_thread_of_python_behind(spark, tmp_path):
    t = mdt.create(tmp_path / "t", columns("id string, v int64"), key=["id"])
    t.upsert({"id": ["a", "b"], "v": [1, 2]})
    frame = mdt.read(spark, t.path)
    assert frame.where("v > 1").toArrow().num_rows == 1
    before = connections()
    for v in range(QUERIES):  # each is planned by a thread of its own
        assert frame.where(f"v > {v % 2}").toArrow().num_rows == 2 - v % 2
    assert connections() <= before


def test_threads_that_plan_at_a_time_do_not_share_a_connection(spark, tmp_path):
    t = mdt.create(tmp_path / "t", columns("id int64"), key=["id"])
    t.upsert({"id": list(range(100))})
    frame = mdt.read(spark, t.path)
    found = []

    def ask(low):
        found.extend(frame.where(f"id >= {low + n}").toArrow().num_rows for n in range(4))

    before = connections()
    threads = [
        threading.Thread(target=ask, args=(10 * n,), name=f"asks {n}") for n in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(
        100 - low - n for low in range(0, 10 * THREADS, 10) for n in range(4)
    )
    assert connections() <= before + THREADS
