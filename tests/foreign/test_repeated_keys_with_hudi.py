"""Inserts of Hudi repeat keys, in one base file or in several. Hudi and mdt read the same rows
after writes of both.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from counting import count
from hudi_session import HudiSession

import mdt

SPREAD = {"hoodie.parquet.small.file.limit": "0"}
"""Makes each insert write new files."""


def values(rows) -> list[tuple[object, ...]]:
    columns = (rows[name].to_pylist() for name in ("id", "city", "ts", "v"))
    return sorted(zip(*columns, strict=True))


def compare(hudi: HudiSession, path: Path, table: mdt.Table) -> list[tuple[object, ...]]:
    table.refresh()
    ours = values(table.scan().to_arrow())
    assert ours == values(hudi.rows(path))
    count("states of tables with repeated keys")
    return ours


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("options", [{}, SPREAD], ids=["one-file", "files"])
def test_hudi_and_mdt_read_the_same_rows_after_inserts_of_hudi_repeat_keys(
    options, kind, version, tmp_path
):
    path = tmp_path / "table"
    with HudiSession(tmp_path / "session") as hudi:
        hudi.create(path, version, kind, {"hoodie.metadata.enable": "false"})
        for ts in (10, 20):
            hudi.call(path, "insert", list(range(12)), ts, ts, **options)
        table = mdt.adopt(path, options={"mdt.services.auto": "false"})
        rows = table.scan().to_arrow().to_pylist()
        assert len(compare(hudi, path, table)) == len(rows) == 24
        by_key = {row["id"]: row for row in rows}
        table.upsert([{**by_key[f"k{n:03}"], "ts": 100, "v": 100 + n} for n in (0, 1, 2)])
        compare(hudi, path, table)
        table.delete([{n: by_key[key][n] for n in ("id", "city")} for key in ("k000", "k003")])
        remaining = compare(hudi, path, table)
        if kind == "COPY_ON_WRITE" or options:
            assert not any(row[0] in ("k000", "k003") for row in remaining)
            assert sum(row[0] == "k001" for row in remaining) == 1
        hudi.call(path, "upsert", [2, 4], 200)
        compare(hudi, path, table)
        hudi.call(path, "delete", [5, 1], 10**6)
        compare(hudi, path, table)
        table.upsert([{**by_key[f"k{n:03}"], "ts": 10**6, "v": n} for n in (4, 5, 6)])
        compare(hudi, path, table)
        if kind == "MERGE_ON_READ":
            table.compact()
            compare(hudi, path, table)
        table.cluster(["v"])
        compare(hudi, path, table)
        table.upsert([{**row, "ts": 10**6 + 1} for row in by_key.values()])
        assert len(compare(hudi, path, table)) >= 12
