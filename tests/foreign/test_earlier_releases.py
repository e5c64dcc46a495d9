"""Earlier releases of Hudi and mdt write to a table in turns."""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa
import pytest
from compare_states import EQUAL, difference
from follower import rows_of
from hudi_session import HudiSession
from test_default_options_with_hudi import CHOSEN, WITH_METADATA, require_same_rows

import mdt

COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
RELEASES = (
    ("0.15.0", 6, COW),
    ("0.15.0", 6, MOR),
    ("1.0.2", 8, MOR),
    ("1.1.1", 9, COW),
    ("1.1.1", 9, MOR),
)
"""Release of Hudi, its newest table version, and the type of the table."""
TURNS = 3
BY_INDEX = {"hoodie.index.type": "RECORD_INDEX"}
STATISTICS = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
}
CLUSTERING = "call run_clustering(table => '{t}', order => 'v')"
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(("release", "version", "kind"), RELEASES)
def test_hudi_and_mdt_read_the_same_rows_after_writes_in_turns(release, version, kind, tmp_path):
    path = tmp_path / "t"
    with HudiSession(tmp_path / "session", release=release) as hudi:
        hudi.create(path, version, kind, CHOSEN)
        hudi.call(path, "upsert", list(range(30)), 10)
        ours = mdt.adopt(path)
        ours.create_index(["bitmap(v)"])  # a commit without files
        for turn in range(TURNS):
            hudi.call(path, "upsert", list(range(4 * turn, 4 * turn + 12)), 20 + 2 * turn)
            hudi.call(path, "delete", [40 - turn, 2 * turn], 20 + 2 * turn)
            if turn % 2:
                hudi.call(path, "sql", CLUSTERING)
            require_all_columns(hudi, path)
            rows = ours.scan().to_arrow()
            changed = [{**row, "ts": 21 + 2 * turn} for row in rows.to_pylist()[turn : turn + 9]]
            ours.upsert(pa.Table.from_pylist(changed, rows.schema))
            require_same_rows(hudi, path)


def require_all_columns(hudi, path):
    """Require that Hudi and mdt read equal rows. Hudi 0.15 puts partition columns last."""
    rows = rows_of(mdt.open(path))
    assert difference(rows, hudi.rows(path).select(rows.column_names)) == EQUAL


def test_hudi_0_15_writes_to_our_table_with_a_record_index(tmp_path):
    keys = {"hoodie.metadata.enable": "true", "hoodie.metadata.record.index.enable": "true"}
    source, path = tmp_path / "made", tmp_path / "t"
    with HudiSession(tmp_path / "session", release="0.15.0") as hudi:
        hudi.create(source, 6, MOR, CHOSEN)
        hudi.call(source, "upsert", list(range(4)), 10)
        rows = mdt.open(source).scan().to_arrow()
        ours = mdt.create(
            path, rows.schema, key=["id"], ordering="ts", table_type=MOR, options=keys
        )
        ours.insert(rows)
        flat = {"hoodie.datasource.write.partitionpath.field": ""}
        hudi.create(path, 6, MOR, CHOSEN | keys | flat | BY_INDEX)
        for ts in (20, 30):
            hudi.call(path, "upsert", [1, 2, ts], ts)
            require_same_rows(hudi, path)
            ours.delete([{"id": "k001"}])
            require_same_rows(hudi, path)
            answer = json.loads(hudi.call(path, "query", f"id = 'k{ts:03}'", **keys))
            assert answer["keys"] == [f"k{ts:03}"]
        hudi.call(path, "sql", "select count(*) from {t}")  # enters the table in a catalog
        assert mdt.open(path).check().ok


@pytest.mark.parametrize("kind", [COW, MOR])
def test_hudi_0_15_sql_changes_a_table_that_was_in_its_catalog_before_our_writes(kind, tmp_path):
    """Hudi 0.15 stores bounds of all columns, including its meta columns."""
    path = tmp_path / "t"
    with HudiSession(tmp_path / "session", release="0.15.0") as hudi:
        hudi.create(path, 6, kind, CHOSEN | STATISTICS)
        hudi.call(path, "upsert", list(range(20)), 10)
        hudi.call(path, "sql", "select count(*) from {t}")
        ours = mdt.adopt(path)
        rows = ours.scan().to_arrow()
        changed = [{**row, "ts": 20} for row in rows.to_pylist()[:9]]
        ours.upsert(pa.Table.from_pylist(changed, rows.schema))
        ours.compact()
        hudi.call(path, "sql", "update {t} set v = -1 where id = 'k003'")
        hudi.call(path, "sql", "delete from {t} where id = 'k004'")
        require_same_rows(hudi, path)
        names = Counter(hudi.rows(path)["_hoodie_file_name"].to_pylist())
        for name, count in names.items():
            where = f"_hoodie_file_name = '{name}'"
            answer = json.loads(hudi.call(path, "query", where, **WITH_METADATA))
            assert len(answer["keys"]) == count
