"""Damaged tables of other writers give rows or an error of ours, and no other error."""

from __future__ import annotations

import random
import shutil

import pytest
from hudi_tables import FIXTURES, ZIPS, fixture

import mdt
from mdt.errors import MdtError

pytestmark = pytest.mark.skipif(not ZIPS, reason=f"no fixtures in {FIXTURES}")
NAMES = (
    "mor_avro_v8_trips_8i3u1d",
    "mor_avro_v9_txns_nonpart_meta",
    "mor_parquet_v6_nonpartitioned_rollback",
    "cow_v6_complexkeygen_hivestyle",
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "cases", [8, pytest.param(400, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])]
)
def test_changed_bytes_give_rows_or_an_error_of_ours(name, cases, tmp_path):
    folder = fixture(name, tmp_path)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    errors = 0
    for seed in range(cases):
        random_source = random.Random(f"{name} {seed}")
        path = random_source.choice(files)
        data = path.read_bytes()
        path.write_bytes(damage(random_source, data))
        try:
            t = mdt.open(folder)
            t.scan().to_arrow()
            t.check()
        except MdtError:
            errors += 1
        except BaseException as error:
            error.add_note(f"seed {seed}: {path.relative_to(folder)}")
            raise
        path.write_bytes(data)
    assert errors or cases < 100
    shutil.rmtree(folder)


def damage(random_source: random.Random, data: bytes) -> bytes:
    """Return ``data`` with bytes changed, cut off, repeated or set to ones."""
    start = random_source.randrange(len(data))
    size = random_source.choice([1, 1, 2, 8, 64])
    kind = random_source.randrange(4)
    if kind == 0:
        return data[:start]
    if kind == 1:
        return data[:start] + random_source.randbytes(size) + data[start + size :]
    if kind == 2:
        return data[:start] + b"\xff" * size + data[start + size :]
    return data[:start] + data[start : start + size] * 2 + data[start + size :]
