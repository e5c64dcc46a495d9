"""State of a process: session state and state for life, after clear, forks and interrupts."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Thread

import pytest
from worlds import make, rows

import mdt
from mdt.session import Budget, Recent, for_life, in_session, memo, session
from mdt.stores import key_store
from mdt.stores.storage import LocalStorage


@in_session
def numbers():
    return []


@for_life
def facts():
    return []


@memo(2)
def wrap_in_list(value):
    return [value]


def test_all_threads_share_one_instance_of_session_state():
    with ThreadPoolExecutor(8) as pool:
        instances = list(pool.map(lambda _: numbers(), range(64)))
    assert all(instance is instances[0] for instance in instances)


def test_clear_keeps_only_state_marked_for_life_and_open_tables_keep_working(tmp_path):
    table = make(LocalStorage(tmp_path / "t"), "MERGE_ON_READ", "record")
    table.upsert(rows(range(6), 1, 1.0))
    before = numbers(), facts(), wrap_in_list(1), table.scan().to_arrow()
    session().clear()
    assert session().memory.size == 0
    assert [numbers() is before[0], facts() is before[1], wrap_in_list(1) is before[2]] == [0, 1, 0]
    assert table.scan().to_arrow() == before[3]
    assert table.upsert(rows(range(3, 9), 2, 2.0)).inserted == 3
    assert table.check().ok


_FORKS = """
import os, sys, warnings
warnings.simplefilter("ignore")
import mdt
from mdt.session import for_life, in_session, session
numbers, facts = in_session(list), for_life(dict)
numbers().append(1)
facts()["parent"] = os.getpid()
table = mdt.open(sys.argv[1])
table.delete(["k0"])
child = os.fork()
if child == 0:
    kept = numbers() == [] and list(facts()) == ["parent"]
    os._exit(0 if kept and table.delete(["k1"]).deleted == 1 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), numbers())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process is forked here")
def test_a_forked_child_starts_with_new_session_state_and_can_write(tmp_path):
    table = make(LocalStorage(tmp_path / "t"), "MERGE_ON_READ", "record")
    table.upsert(rows(range(6), 1, 1.0))
    keys = rows(range(2), 2, 2.0).to_pylist()
    script = _FORKS.replace('["k0"]', repr(keys[:1])).replace('["k1"]', repr(keys[1:]))
    command = [sys.executable, "-c", script, str(tmp_path / "t")]
    completed = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert completed.stdout.strip() == "0 [1]", completed.stderr
    assert mdt.open(tmp_path / "t").scan().count() == 4


def _interrupt(act, is_locked):
    """Call ``act``, and raise KeyboardInterrupt at the first instruction with the lock held."""
    raised_in = []

    def interrupt(frame, event, argument):
        frame.f_trace_opcodes = True
        if not raised_in and is_locked():
            raised_in.append(frame.f_code.co_name)
            raise KeyboardInterrupt
        return interrupt

    sys.settrace(interrupt)
    try:
        with suppress(KeyboardInterrupt):
            act()
    finally:
        sys.settrace(None)
    assert raised_in, "no instruction ran with the lock held"


def _completes_in_time(act):
    thread = Thread(target=act, daemon=True)
    thread.start()
    thread.join(3)
    return not thread.is_alive()


def test_an_interrupted_open_leaves_a_shared_key_store_unlocked(tmp_path):
    def use():
        key_store.open_key_store(str(tmp_path / "keys"), durable=False)

    use()
    _interrupt(use, lambda: key_store._open_stores().lock._lock.locked())
    assert _completes_in_time(use)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_while_a_cache_is_released_leaves_the_budget_unlocked():
    budget = Budget(100)
    caches = [Recent(10, budget)]
    caches[0].put("Oslo", 4)
    _interrupt(caches.clear, budget.lock.locked)
    assert _completes_in_time(lambda: Recent(10, budget).put("Rome", 4))
    budget.check()
