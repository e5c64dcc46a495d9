"""Hudi with its default options and mdt write to a table in turns, until Hudi has cleaned, archived
and used its metadata table. Some of Hudi's writes are killed.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hudi_session import HudiSession, Refused
from hudi_table import OPTIONS
from reader import bag
from test_turns import MISREAD, start_with_a_read

import mdt
from mdt.errors import Unsupported

CHOSEN = {name: None for name in OPTIONS if "datasource" not in name and "auto.upgrade" not in name}
"""Options that other tests set. None leaves them out, so that Hudi's defaults apply."""
CHOSEN["hoodie.datasource.write.hive_style_partitioning"] = None
TURNS = 45
COMPARED_EVERY = 4
KILLED = 0.1
KILLED_AFTER_SECONDS_MAX = 2.5
REFUSED_MAX = 0.4
"""Share of the turns that Hudi or mdt may refuse after a kill."""
WITH_METADATA = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("is_adopted", [True, False])
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_and_mdt_read_the_same_rows_after_writes_in_turns(kind, version, is_adopted, tmp_path):
    draw, refused = random.Random(f"{kind} {version}"), 0
    with HudiSession(tmp_path / "session", "America/New_York") as hudi:
        path = tmp_path / "t"
        ours = shared(hudi, path, kind, version, is_adopted)
        for turn in range(TURNS):
            seconds = None
            if draw.random() < KILLED:
                seconds = draw.uniform(0, KILLED_AFTER_SECONDS_MAX)
            method = draw.choice(["upsert", "upsert", "upsert", "delete"])
            try:
                with hudi.killed(seconds):
                    hudi.call(path, method, sorted(draw.sample(range(60), 12)), 2 * turn + 11)
            except Refused as error:
                refused += 1
                if MISREAD.search(str(error)):
                    start_with_a_read(hudi, path)
            rows = ours.scan().to_arrow()
            changed = draw.sample(rows.to_pylist(), min(8, len(rows)))
            changed = [{**row, "ts": 2 * turn + 12, "v": turn} for row in changed]
            try:
                ours.upsert(pa.Table.from_pylist(changed, rows.schema))
            except Unsupported:
                refused += 1
            if turn % COMPARED_EVERY == COMPARED_EVERY - 1:
                require_same_rows(hudi, path)
    assert refused <= REFUSED_MAX * 2 * TURNS


def shared(hudi, path, kind, version, is_adopted):
    """Return a table with rows of Hudi. Hudi has created it if ``is_adopted``, else mdt."""
    source = path if is_adopted else path.with_name("made")
    hudi.create(source, version, kind, CHOSEN)
    hudi.call(source, "upsert", list(range(30)), 10)
    if is_adopted:
        return mdt.adopt(path)
    rows = mdt.open(source).scan().to_arrow()
    table = mdt.create(
        path,
        rows.schema,
        key=["id"],
        partition_by=["city"],
        ordering="ts",
        table_type=kind,
        version=version,
    )
    table.insert(rows)
    hudi.create(path, version, kind, CHOSEN)
    return table


def require_same_rows(hudi, path):
    """Compare our rows with those of Hudi, with and without its metadata table."""
    ours = mdt.open(path)
    listed, with_metadata = hudi.rows(path), hudi.rows(path, **WITH_METADATA)
    names = [name for name in listed.column_names if not name.startswith("_hoodie_")]
    rows = bag(ours.scan(columns=names).to_arrow())
    assert bag(listed.select(names)) == rows
    assert bag(with_metadata.select(names)) == rows
    report = ours.check()
    assert report.ok, report
