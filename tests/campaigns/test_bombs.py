"""Small objects that unpack to much memory are refused before it is allocated, or read within a
limit.

Each is read in a process of its own. The largest resident size of the process is compared with that
before, so the memory of NumPy, Arrow and CRoaring counts, too.
"""

import os
import re
import resource
import struct
import subprocess
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyroaring import BitMap
from test_forged import forge, good, with_column
from texts import columns

import mdt
from mdt import limits
from mdt.errors import Corrupt, MdtError
from mdt.limits import LATE_SECONDS_MAX
from mdt.metadata.files import paths
from mdt.metadata.log import codec, commit_log
from mdt.services.checking.problems import Kind
from mdt.services.reclaiming import cleaning
from mdt.stores.contract import check_size
from mdt.stores.storage import MemoryStorage

GROWTH_BYTES_MAX = 96 << 20
"""Largest growth of a process that reads such an object: a few times the largest object here (9 MB),
and the modules and caches of its first scan, write and check.
"""


def every_position(header, tables):
    bitmap = BitMap(range(2**32))
    bitmap.run_optimize()
    tables["vectors"] = with_column(
        tables["vectors"], "positions", [bitmap.serialize()] * len(tables["vectors"])
    )


def many_rows(header, tables):
    tables["files"] = with_column(tables["files"], "rows", [2**32 - 1] * len(tables["files"]))


def large_row_groups(header, tables):
    tables["files"] = with_column(
        tables["files"], "row_group_rows", [[2**31 - 1] * 1000] * len(tables["files"])
    )


def long_lists(header, tables):
    header["left_out"] = ["x"] * (limits.LIST_ITEMS_MAX + 1)


BOMBS = {
    "a vector of every position": (2, every_position),
    "rows of 2^32": (1, many_rows),
    "row groups of 2^31 rows": (1, large_row_groups),
    "a list of a million names": (1, long_lists),
}


def compressed_table(compression):
    """Return a table with a statistics section of 300 MB of zeros, compressed as a whole or by Arrow."""
    storage, path = good(), paths.commit(1)
    header, sections = codec.unpack(
        codec.unframe(storage.read(path), commit_log.KIND, path=path, version_max=9), path=path
    )
    stats = codec.decode_ipc(sections["stats"], None, path=path)
    zeros = with_column(stats, "min", [bytes(300 << 20)] + [None] * (len(stats) - 1))
    sink = pa.BufferOutputStream()
    if compression == "section":
        sink.write(codec.encode_ipc(zeros, compression="lz4"))
    else:
        with pa.ipc.new_stream(
            sink, zeros.schema, options=pa.ipc.IpcWriteOptions(compression=compression)
        ) as writer:
            writer.write_table(zeros)
    raw = {name: bytes(section) for name, section in sections.items()} | {
        "stats": sink.getvalue().to_pybytes()
    }
    storage.replace(path, codec.frame(commit_log.KIND, 1, codec.pack(header, raw)))
    return storage


def use_table(storage):
    """Use a table as users do. Return the growth of the process in bytes."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for act in (
        lambda t: t.scan().to_arrow(),
        lambda t: t.scan("v = 7").count(),
        lambda t: t.scan().count(),
        lambda t: t.check(),
    ):
        try:
            act(mdt.open(storage))
        except MdtError:
            continue
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


def run(name, folder):
    """Print the growth of this process, started for it, when it uses the table in ``folder``."""
    storage = MemoryStorage()
    for root, _, files in os.walk(folder):
        for file in files:
            path = Path(root, file)
            storage.replace(str(path.relative_to(folder)), path.read_bytes())
    print(use_table(storage))


def growth_of_process(storage, folder, name):
    """Return the growth in bytes of a new process that uses the table in ``storage``."""
    for info in storage.list(""):
        target = folder / info.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(storage.read(info.path))
    code = (
        f"import sys; sys.path[:] = {sys.path!r}\nfrom test_bombs import run\nrun({name!r},"
        f" {str(folder)!r})"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return int(process.stdout)


@pytest.mark.parametrize("name", BOMBS)
def test_a_forged_record_is_refused_without_allocating_much_memory(name, tmp_path):
    seq, change = BOMBS[name]
    storage = good()
    forge(storage, seq, change)
    with pytest.raises(Corrupt):
        mdt.open(storage).scan().to_arrow()
    assert growth_of_process(storage, tmp_path, name) < GROWTH_BYTES_MAX


@pytest.mark.parametrize("body", ["section", "lz4", "zstd"])
def test_a_section_that_decompresses_to_much_is_refused_without_allocating_it(body, tmp_path):
    storage = compressed_table(body)
    with pytest.raises(Corrupt, match="decompresses to too many|compressed body"):
        mdt.open(storage)
    assert growth_of_process(storage, tmp_path, body) < GROWTH_BYTES_MAX


def test_a_section_that_claims_more_bytes_than_it_can_contain_is_refused():
    data = b"MDTLZ4\0\0" + struct.pack("<Q", limits.LZ4_RATIO_MAX * 40 + 1) + bytes(40)
    with pytest.raises(Corrupt, match="claims too many bytes"):
        codec.decode_ipc(data, None, path="x")


class LargeObject(MemoryStorage):
    """Reports that the object ``large`` has a terabyte until it is replaced. Counts its refusals to
    read it whole.
    """

    def __init__(self, storage, large):
        super().__init__()
        vars(self).update(vars(storage.copy()))
        self.large, self.refusals, self.paths_read = large, 0, set()

    def read_whole(self, path, bytes_max):
        self.refusals += path == self.large
        check_size(path, 1 << 40 if path == self.large else 0, bytes_max)
        return super().read_whole(path, bytes_max)

    def replace(self, path, data):
        super().replace(path, data)
        if path == self.large:
            self.large = None

    def read(self, path, offset=0, length=None):
        assert path != self.large or length is not None, f"all of {path} is read"
        self.paths_read.add(path)
        return super().read(path, offset, length)


@pytest.mark.parametrize(
    ("path", "is_needed"),
    [
        (paths.HINT, False),
        (paths.commit(4), True),
        (paths.pending("20200101000000000"), False),
        (paths.PROPERTIES, True),
    ],
)
def test_a_write_reads_no_object_that_is_too_large_and_fails_only_if_it_needs_it(path, is_needed):
    start, data = good(), mdt.open(good()).scan().to_arrow()
    start.replace(path, b"x")
    large = LargeObject(start, path)
    with pytest.raises(Corrupt, match="too large") if is_needed else nullcontext():
        assert mdt.open(large).upsert(data).updated == len(data)
    assert path not in large.paths_read and paths.commit(0) in large.paths_read


def _cleaned_table():
    storage = MemoryStorage()
    table = mdt.create(storage, columns("id int64, p int64"), key=["id"], partition_by=["p"])
    for first in range(3):
        table.upsert({"id": [first, first + 1], "p": [0, 1]})
        table.metadata.compact()
    with patch.object(cleaning, "ARCHIVE_RECORDS_MIN", 1):
        table.clean(retain_commits=2)
    table.delete({"id": [1], "p": [1]})
    return storage


def _large_objects():
    """Return a table, and the path of one object of each kind except attachments."""
    start = _cleaned_table()
    enlarged = [
        info.path for info in start.list("") if not info.path.startswith(paths.ATTACHMENTS_DIR)
    ]
    assert {"manifest", "parquet", "hoodie_partition_metadata"} < {
        path.rpartition(".")[2] for path in enlarged
    }
    assert any(path.startswith(paths.ARCHIVE_DIR) for path in enlarged)
    return start, list({re.sub("[0-9a-f-]+", "", path): path for path in enlarged}.values())


def test_services_do_not_read_an_object_that_is_too_large_as_a_whole():
    start, enlarged = _large_objects()
    for path in enlarged:
        for service in (
            mdt.Table.check,
            mdt.Table.history,
            mdt.Table.compact,
            mdt.Table.clean,
            mdt.Table.purge,
            mdt.Table.repair,
        ):
            with suppress(MdtError):
                service(mdt.open(LargeObject(start, path)))


def test_a_check_reports_objects_that_are_too_large_and_a_repair_replaces_those_of_the_timeline():
    start, enlarged = _large_objects()
    reported = set()
    for path in enlarged:
        large = LargeObject(start, path)
        if path == paths.PROPERTIES or path.startswith(paths.LOG_DIR):
            with pytest.raises(Corrupt, match="too large"):
                mdt.open(large)
            continue
        problems = mdt.open(large).check().problems
        assert {problem.path for problem in problems} == ({path} if large.refusals else set())
        reported |= {problem.kind for problem in problems}
        if Kind.TIMELINE in [problem.kind for problem in problems]:
            assert mdt.repair(large).ok and mdt.open(large).check().ok
    assert reported == {Kind.ARCHIVE, Kind.CHECKPOINT, Kind.TIMELINE, Kind.ROWS}


def test_a_missing_commit_record_is_named_with_a_hint():
    for seq in (1, 2, 3):
        for later in (False, True):
            storage = good()
            for missing_seq in range(seq, 4 if later else seq + 1):
                storage.delete(paths.commit(missing_seq))
            storage.sleep(LATE_SECONDS_MAX)
            with pytest.raises(Corrupt, match="a commit record is missing") as error:
                mdt.open(storage)
            assert paths.commit(seq) in str(error.value)
            assert "backup" in error.value.hint


def test_json_that_is_nested_too_deeply_or_invalid_raises_corrupt():
    for text in (b"[" * 200_000, b'{"a":' * 100_000, b"1" * 100_000, b'"\\ud800"' * 2):
        with pytest.raises(Corrupt):
            codec.parse_json(text, path="x")
