"""Caches. Each drops its least recently used entries, and caches with a common budget drop the
least recently used entry of any table.
"""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from counting import count
from hypothesis import given
from hypothesis import strategies as st

import mdt
from mdt.limits import CACHES_BYTES_MAX
from mdt.session import Budget, Recent, session

OWN_MAX, SHARED_MAX, CACHES = 20, 30, 3


@pytest.fixture(autouse=True)
def _restore_limit():
    yield
    session().memory.limit(CACHES_BYTES_MAX)


class Model:
    """The entries of caches with a budget: a list of (cache, key, size), the newest last."""

    def __init__(self):
        self.kept: list[tuple[int, int, int]] = []

    def find(self, cache, key):
        return next((entry for entry in self.kept if entry[:2] == (cache, key)), None)

    def get(self, cache, key):
        entry = self.find(cache, key)
        if entry is not None:
            self.kept.remove(entry)
            self.kept.append(entry)
        return entry is not None

    def put(self, cache, key, size):
        if self.find(cache, key) is None:
            self.kept.append((cache, key, size))
        while sum(entry[2] for entry in self.kept) > SHARED_MAX and len(self.kept) > 1:
            self.kept.pop(0)
        while (
            sum(entry[2] for entry in self.kept if entry[0] == cache) > OWN_MAX
            and len(self.of(cache)) > 1
        ):
            self.kept.remove(self.of(cache)[0])

    def of(self, cache):
        return [entry for entry in self.kept if entry[0] == cache]


sizes = st.sampled_from((1, 5, 5, 9, 40))  # of an entry among others, and of one alone
steps = st.lists(
    st.tuples(st.booleans(), st.integers(0, CACHES - 1), st.integers(0, 3), sizes),
    min_size=20,
    max_size=60,
)


@given(steps)
def test_caches_with_a_budget_keep_the_most_recently_used_entries(
    steps,
):
    budget, model = Budget(SHARED_MAX), Model()
    caches = [Recent[int, int](OWN_MAX, budget) for _ in range(CACHES)]
    for is_put, cache, key, size in steps:
        if is_put:
            caches[cache].put(key, key, size)
            model.put(cache, key, size)
        else:
            is_kept = model.get(cache, key)
            count("reads of entries that caches keep", is_kept)
            assert (caches[cache].get(key) == key) == is_kept
        budget.check()
        for number, each in enumerate(caches):
            assert each.values() == [key for _, key, _ in model.of(number)]
        assert budget.size == sum(size for _, _, size in model.kept)


def test_the_budget_is_released_when_a_cache_is_deleted():
    budget = Budget(100)
    kept, lost = Recent[int, str](100, budget), Recent[int, str](100, budget)
    kept.put(1, "stays", 10)
    lost.put(1, "goes", 80)
    del lost
    gc.collect()
    assert budget.size == 10
    budget.check()


def test_a_cache_deleted_while_the_budget_is_locked_is_released_at_the_next_put():
    budget = Budget(100)
    kept, lost = Recent[int, str](100, budget), Recent[int, str](100, budget)
    lost.put(1, "goes", 80)
    with budget.lock:  # as if it were garbage-collected during a call of Budget
        del lost
        gc.collect()
    assert budget.size == 80
    kept.put(1, "comes", 90)
    assert (budget.size, kept.values()) == (90, ["comes"])


def test_a_smaller_limit_applies_at_once():
    budget = Budget(100)
    cache = Recent[int, int](100, budget)
    for number in range(10):
        cache.put(number, number, 10)
    budget.limit(35)
    assert (cache.values(), cache.dropped, budget.size) == ([7, 8, 9], 7, 30)


def test_threads_that_share_a_budget_keep_its_size_right():
    budget = Budget(500)

    def fill(seed):
        for turn in range(20):
            cache = Recent[int, int](300, budget)
            for number in range(60):
                cache.put(number, seed, (seed * number + turn) % 23)
                cache.get(number // 2)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(fill, range(1, 9)))
    gc.collect()
    budget.check()
    assert budget.size == 0


def create_table(path):
    ids, cities = [f"k{i:06d}" for i in range(5_000)], [f"c{i % 50}" for i in range(5_000)]
    rows = pa.table({"id": ids, "city": cities})
    options = {"mdt.max.file.bytes": 20_000}
    table = mdt.create(path, rows.schema, key=["id"], indexes=["bitmap(city)"], options=options)
    table.bulk_insert(rows)
    return table


def test_tables_of_one_process_share_the_memory_limit(tmp_path):
    tables = [create_table(tmp_path / f"t{i}") for i in range(4)]
    keys = [f"k{i:06d}" for i in range(0, 5_000, 49)]
    for table in tables:
        table.get(keys)
    session().memory.check()
    size_before = session().memory.size
    session().memory.limit(size_before // 2)
    for table in tables:
        cities = [f"c{i % 50}" for i in range(0, 5_000, 49)]
        assert table.get(keys)["city"].to_pylist() == cities
        assert table.scan("city = 'c7'").count() == 100
        assert session().memory.size <= size_before // 2
    session().memory.check()


def test_the_memory_limit_is_an_option_of_the_process_and_not_stored_in_the_table(
    tmp_path,
):
    create_table(tmp_path / "t")
    for options in ({"mdt.cache.memory.max": 12_345_678}, {}):
        mdt.open(tmp_path / "t", options)
        assert session().memory.size_max == 12_345_678
