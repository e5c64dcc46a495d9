"""Small objects that ask for much memory: each is refused before it is allocated, or answered
within a stated bound.

Every bomb goes off in a process of its own, whose largest resident size is compared with that
before; NumPy's, Arrow's and CRoaring's memory count alike.
"""

import os
import re
import resource
import struct
import subprocess
import sys
from contextlib import suppress
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
from mdt.services.reclaiming import cleaning
from mdt.stores.contract import check_size
from mdt.stores.storage import MemoryStorage

GROWTH_BYTES_MAX = 96 << 20
"""What a process may grow by while it meets a bomb: a few times the largest object here (9 MB), and
what its first scan, write and check import and keep.
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


def unfolding(body):
    """Return a table with a statistics section of 300 MB of zeros, compressed as a whole or in
    Arrow's own way.
    """
    storage, path = good(), paths.commit(1)
    header, sections = codec.unpack(
        codec.unframe(storage.read(path), commit_log.KIND, path=path, version_max=9), path=path
    )
    stats = codec.decode_ipc(sections["stats"], None, path=path)
    zeros = with_column(stats, "min", [bytes(300 << 20)] + [None] * (len(stats) - 1))
    sink = pa.BufferOutputStream()
    if body == "section":
        sink.write(codec.encode_ipc(zeros, compression="lz4"))
    else:
        with pa.ipc.new_stream(
            sink, zeros.schema, options=pa.ipc.IpcWriteOptions(compression=body)
        ) as writer:
            writer.write_table(zeros)
    raw = {name: bytes(section) for name, section in sections.items()} | {
        "stats": sink.getvalue().to_pybytes()
    }
    storage.replace(path, codec.frame(commit_log.KIND, 1, codec.pack(header, raw)))
    return storage


def meet(storage):
    """Do with a table what users do and return by how many bytes the process has grown."""
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
    """Meet the bomb whose table stands in ``folder``; called in a process of its own."""
    storage = MemoryStorage()
    for root, _, files in os.walk(folder):
        for file in files:
            whole = Path(root, file)
            storage.replace(str(whole.relative_to(folder)), whole.read_bytes())
    print(meet(storage))


def grown(storage, folder, name):
    """Return by how many bytes a new process grows that meets the table in ``storage``."""
    for info in storage.list(""):
        target = folder / info.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(storage.read(info.path))
    code = (
        f"import sys; sys.path[:] = {sys.path!r}\nfrom test_bombs import run\nrun({name!r},"
        f" {str(folder)!r})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return int(done.stdout)


@pytest.mark.parametrize("name", BOMBS)
def test_a_forged_record_takes_no_memory(name, tmp_path):
    seq, change = BOMBS[name]
    storage = good()
    forge(storage, seq, change)
    with pytest.raises(Corrupt):
        mdt.open(storage).scan().to_arrow()
    assert grown(storage, tmp_path, name) < GROWTH_BYTES_MAX


@pytest.mark.parametrize("body", ["section", "lz4", "zstd"])
def test_a_section_that_unfolds_to_much_takes_no_memory(body, tmp_path):
    storage = unfolding(body)
    with pytest.raises(Corrupt, match="decompresses to too many|compressed body"):
        mdt.open(storage)
    assert grown(storage, tmp_path, body) < GROWTH_BYTES_MAX


def test_a_section_may_not_claim_more_than_its_bytes_can_hold():
    data = b"MDTLZ4\0\0" + struct.pack("<Q", limits.LZ4_RATIO_MAX * 40 + 1) + bytes(40)
    with pytest.raises(Corrupt, match="claims too many bytes"):
        codec.decode_ipc(data, None, path="x")


@pytest.mark.parametrize(
    "path", [paths.hint(), paths.commit(4), paths.pending("20200101000000000"), paths.properties()]
)
def test_an_object_that_is_too_large_is_not_read(path):
    storage = good()
    read = []

    class Large(MemoryStorage):
        """Has one object of a terabyte, by what it says."""

        def read_whole(self, name, bytes_max):
            if name == path:
                raise Corrupt(
                    "the object is too large", path=name, expected=f"{bytes_max}", got=f"{1 << 40}"
                )
            return super().read_whole(name, bytes_max)

        def read(self, name, offset=0, length=None):
            read.append(name)
            return super().read(name, offset, length)

    large = Large()
    vars(large).update(vars(storage))
    large.replace(path, b"x")
    try:
        mdt.open(large).upsert(mdt.open(good()).scan().to_arrow())
    except MdtError:
        pass
    assert path not in read
    assert paths.commit(0) in read


def _cleaned():
    storage = MemoryStorage()
    table = mdt.create(storage, columns("id int64, p int64"), key=["id"], partition_by=["p"])
    for first in range(3):
        table.upsert({"id": [first, first + 1], "p": [0, 1]})
        table.metadata.compact()
    with patch.object(cleaning, "ARCHIVE_RECORDS_MIN", 1):
        table.clean(retain_commits=2)
    table.delete({"id": [1], "p": [1]})
    return storage


def test_services_read_no_object_that_has_grown():
    start = _cleaned()
    grown = [
        info.path for info in start.list("") if not info.path.startswith(paths.attachments_dir())
    ]
    assert {"manifest", "parquet", "hoodie_partition_metadata"} < {
        path.rpartition(".")[2] for path in grown
    }
    assert any(path.startswith(paths.archive_dir()) for path in grown)
    for path in {
        re.sub("[0-9a-f-]+", "", path): path for path in grown
    }.values():  # one of each kind

        class Large(MemoryStorage):
            """Has one object of a terabyte, by what it says."""

            def read_whole(self, name, bytes_max, path=path):
                check_size(name, 1 << 40 if name == path else 0, bytes_max)
                return super().read_whole(name, bytes_max)

            def read(self, name, offset=0, length=None, path=path):
                assert name != path or length is not None, f"all of {path} is read"
                return super().read(name, offset, length)

        for service in (
            mdt.Table.check,
            mdt.Table.history,
            mdt.Table.compact,
            mdt.Table.clean,
            mdt.Table.purge,
            mdt.Table.repair,
        ):
            large = Large()
            vars(large).update(vars(start.copy()))
            with suppress(MdtError):
                service(mdt.open(large))


def test_a_missing_record_is_named_with_what_to_do():
    for seq in (1, 2, 3):
        for later in (False, True):
            storage = good()
            for gone in range(seq, 4 if later else seq + 1):
                storage.delete(paths.commit(gone))
            storage.sleep(LATE_SECONDS_MAX)
            with pytest.raises(Corrupt, match="a commit record is missing") as caught:
                mdt.open(storage)
            assert paths.commit(seq) in str(caught.value)
            assert "backup" in caught.value.hint


def test_json_that_is_deep_or_long_is_corrupt():
    for text in (b"[" * 200_000, b'{"a":' * 100_000, b"1" * 100_000, b'"\\ud800"' * 2):
        with pytest.raises(Corrupt):
            codec.parse_json(text, path="x")
