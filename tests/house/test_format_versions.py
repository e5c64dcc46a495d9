"""FORMAT.md is enough to read tables whose columns were altered."""

from __future__ import annotations

import base64
from pathlib import Path

import pyarrow as pa
import trees
from test_format_doc import PAGE, SCHEMA, parquet_rows, record, rows


def test_rows_of_altered_tables_follow_from_versions_and_ids(tmp_path: Path) -> None:
    table = trees.create(tmp_path / "t", SCHEMA, key_index="record", table_type="COPY_ON_WRITE")
    table.upsert(rows(range(4), 1, 1.5))
    table.alter(drop=["city"], add={"n": "int32"}, defaults={"n": 7}, beyond_hudi=True)
    table.bulk_insert(
        pa.table({"id": ["new"], "ts": [2], "fare": [2.5], "n": pa.array([1], pa.int32())})
    )
    table.alter(
        rename={"fare": "price"}, add={"city": "int64"}, widen={"n": "int64"}, beyond_hudi=True
    )
    root = tmp_path / "t"
    first = record(root, 0)[0]["definition"]
    versions = [{"since": 0, "schema": first["schema"], "ids": [0, 1, 2, 3]}]
    files = {}
    for seq in range(5):
        header, sections = record(root, seq)
        files |= {seq << 20 | row["segment"]: row for row in sections.get("files", ())}
        if "schema" in header:
            assert not sections and all(f"`{name}`" in PAGE for name in header["schema"])
            versions.append({"since": seq, **header["schema"]})
    assert [version["ids"] for version in versions] == [[0, 1, 2, 3], [0, 2, 3, 4], [0, 2, 3, 4, 5]]
    newest = versions[-1]
    names = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(newest["schema"]))).names
    defaults = pa.ipc.open_stream(base64.b64decode(newest["defaults"])).read_all().to_pylist()[0]
    found = []
    for number, file in files.items():
        own = [version for version in versions if version["since"] <= number >> 20][-1]
        called = dict(
            zip(
                own["ids"],
                pa.ipc.read_schema(pa.py_buffer(base64.b64decode(own["schema"]))).names,
                strict=True,
            )
        )
        for row in parquet_rows(root, file):
            values = [
                row[called[id]] if id in called else defaults.get(str(id)) for id in newest["ids"]
            ]
            found.append(dict(zip(names, values, strict=True)))
    assert sorted(found, key=repr) == sorted(table.scan().to_arrow().to_pylist(), key=repr)
    assert found[0] == {"id": "key 000", "ts": 1, "price": 1.5, "n": 7, "city": None}
    statistics = {row["column"] for row in record(root, 1)[1]["stats"]}
    table.upsert([{**found[0], "city": 5}])
    assert {row["column"] for row in record(root, 5)[1]["stats"]} - statistics == {"n", "city@5.4"}
