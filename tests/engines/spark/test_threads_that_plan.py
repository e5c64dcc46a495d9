"""JVM threads that call Python start and end with queries. Py4J alone would keep a connection and a
Python thread for each of them.
"""

import threading

from texts import columns

import mdt

QUERIES = 12
THREADS = 4


def connections():
    """Return how many unnamed Python threads wait for calls of the JVM."""
    return sum(thread.name.startswith("Thread-") for thread in threading.enumerate())


def test_threads_that_planned_queries_leave_no_python_threads_behind(spark, tmp_path):
    t = mdt.create(tmp_path / "t", columns("id string, v int64"), key=["id"])
    t.upsert({"id": ["a", "b"], "v": [1, 2]})
    frame = mdt.read(spark, t.path)
    assert frame.where("v > 1").toArrow().num_rows == 1
    before = connections()
    for v in range(QUERIES):  # each query is planned in its own thread
        assert frame.where(f"v > {v % 2}").toArrow().num_rows == 2 - v % 2
    assert connections() <= before


def test_queries_planned_in_concurrent_threads_are_right_and_leave_few_connections(spark, tmp_path):
    t = mdt.create(tmp_path / "t", columns("id int64"), key=["id"])
    t.upsert({"id": list(range(100))})
    frame = mdt.read(spark, t.path)
    row_counts = []

    def count_rows(low):
        row_counts.extend(frame.where(f"id >= {low + n}").toArrow().num_rows for n in range(4))

    before = connections()
    threads = [
        threading.Thread(target=count_rows, args=(10 * n,), name=f"asks {n}")
        for n in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(row_counts) == sorted(
        100 - low - n for low in range(0, 10 * THREADS, 10) for n in range(4)
    )
    assert connections() <= before + THREADS
