"""The locks of this process are free in forked children, whatever its threads do."""

import os
import subprocess
import sys
from contextlib import suppress

import pytest
import s3

from mdt.forking import OwnLock

pytestmark = pytest.mark.skipif(
    not hasattr(os, "register_at_fork"), reason="no process is forked here"
)


def output_of(code, *arguments, **environment):
    """Run ``code`` in a separate process and return its output."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    env = {**os.environ, **environment}
    process = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, timeout=120, env=env
    )
    return process.stdout.strip()


_FORKS = """
import os, sys, threading, time, warnings
warnings.simplefilter("ignore")  # of Python, which warns of forks beside threads
import mdt, pyarrow as pa
from mdt.session import session
table = mdt.create(sys.argv[1], pa.schema([("id", pa.string())]), key=["id"])
table.upsert(pa.table({"id": ["a"]}))
table.upsert(pa.table({"id": ["b"]}))
holding, ended = threading.Event(), threading.Event()

def hold():
    while not ended.is_set():
        with session().memory.lock:
            holding.set()
            time.sleep(0.01)

thread = threading.Thread(target=hold)
thread.start()
holding.wait()
codes = []
for number in range(5):
    child = os.fork()
    if child == 0:
        free = session().memory.lock.acquire(timeout=20)
        session().memory.lock.release()
        mdt.open(sys.argv[1]).upsert(pa.table({"id": [f"c{number}"]}))
        os._exit(0 if free else 1)
    codes.append(os.waitpid(child, 0)[1])
ended.set()
thread.join()
print(codes, mdt.open(sys.argv[1]).scan().count())
"""


def test_a_child_forked_while_a_thread_uses_a_cache_can_read_and_write(
    tmp_path,
):
    assert output_of(_FORKS, tmp_path / "t") == "[0, 0, 0, 0, 0] 7"


_WRITER = """
import os, sys, warnings
warnings.simplefilter("ignore")
import mdt, pyarrow as pa
table = mdt.create(sys.argv[1], pa.schema([("id", pa.string())]), key=["id"])
with table.writer(max_seconds=3600) as writer:
    given = writer.upsert({"id": ["a"]})
    with writer._changed:  # as a thread of the parent may hold it
        child = os.fork()
        if child == 0:
            refused = 0
            for call in (lambda: writer.upsert({"id": ["b"]}), lambda: writer.delete({"id": ["a"]}), writer.flush):
                try:
                    call()
                except mdt.errors.Invalid:
                    refused += 1
            writer.close()
            os._exit(refused)
    told = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(told, given.result().inserted, table.scan().to_arrow().to_pylist())
"""


def test_a_writer_refuses_rows_in_a_forked_child(tmp_path):
    assert output_of(_WRITER, tmp_path / "t") == "3 1 [{'id': 'a'}]"


_HELD = """
import os, signal, sys, threading, warnings
warnings.simplefilter("ignore")
from mdt.forking import OwnLock, cached_property

class Slow:
    def __init__(self, wait=None):
        self.lock, self.wait = OwnLock(), wait or (lambda: None)

    @cached_property
    def answer(self):
        with self.lock:
            self.wait()
            return object()

held, ended = threading.Event(), threading.Event()
slow = Slow(lambda: (held.set(), ended.wait(60)))
thread = threading.Thread(target=lambda: slow.answer)
thread.start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    slow.wait = lambda: None
    os._exit(0 if Slow().answer and slow.answer is slow.answer else 1)
told = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
ended.set()
thread.join()
print(told)
"""


def test_a_child_forked_while_a_thread_computes_a_cached_property_computes_it_itself():
    assert output_of(_HELD) == "0"


_IMPORTS = """
import os, signal, sys, threading, time, warnings
warnings.simplefilter("ignore")
import mdt
mdt.__path__.append(sys.argv[1])
thread = threading.Thread(target=lambda: __import__("mdt.slow_module"))
thread.start()
while not os.path.exists(sys.argv[1] + "/begun"):
    time.sleep(0.01)
child = os.fork()
if child == 0:
    signal.alarm(20)
    from mdt.slow_module import there
    os._exit(0 if there else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
thread.join()
"""


def test_a_child_forked_while_a_thread_imports_an_mdt_module_can_import_it(
    tmp_path,
):
    late = (
        "import pathlib,"
        f" time\npathlib.Path({str(tmp_path / 'begun')!r}).touch()\ntime.sleep(1)\nthere = True\n"
    )
    (tmp_path / "slow_module.py").write_text(late)
    assert output_of(_IMPORTS, tmp_path) == "0"


_FAR = """
import os, sys, warnings
warnings.simplefilter("ignore")
import mdt, pyarrow as pa
place = "s3://trips-bucket/" + sys.argv[1]

def in_child(act):
    child = os.fork()
    if child == 0:
        try:
            act()
        except mdt.errors.Unsupported as error:
            os._exit(7 if "spawn" in error.hint else 8)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def first():
    mdt.create(place, pa.schema([("id", pa.string())]), key=["id"]).upsert({"id": ["a"]})

told = [in_child(first)]
table = mdt.open(place)
told += [in_child(lambda: table.scan().count()), in_child(lambda: mdt.open(place)), in_child(lambda: table.upsert({"id": ["b"]}))]
print(told, table.scan().count())
"""


def test_a_child_forked_after_an_object_store_was_used_is_refused_and_does_not_hang():
    with s3.mock_server() as endpoint:
        environment = {**s3.ENVIRONMENT, "AWS_ENDPOINT_URL": endpoint}
        assert output_of(_FAR, "forked", **environment) == "[0, 7, 7, 7] 1"


def test_an_interrupt_during_acquisition_leaves_the_lock_free():
    lock = OwnLock()

    def interrupt(frame, event, function):
        if event == "c_return" and function.__name__ in ("acquire", "__enter__"):
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        with suppress(KeyboardInterrupt), lock:
            pass
    finally:
        sys.setprofile(None)
    assert not lock._lock.locked()
