"""FORMAT.md is sufficient to read tables whose columns were altered."""

import base64

import pyarrow as pa
import trees
from test_format_doc import SCHEMA, assert_on_page, parquet_rows, record, rows


def names_of(version):
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(version["schema"]))).names


def test_rows_of_altered_tables_follow_from_schema_versions_and_column_ids(tmp_path):
    root = tmp_path / "t"
    table = trees.create(root, SCHEMA, key_index="record", table_type="COPY_ON_WRITE")
    table.upsert(rows(range(4), 1, 1.5))
    table.alter(drop=["city"], add={"n": "int32"}, defaults={"n": 7}, beyond_hudi=True)
    table.bulk_insert([{"id": "new", "ts": 2, "fare": 2.5, "n": 1}])
    changes = {"rename": {"fare": "price"}, "add": {"city": "int64"}, "widen": {"n": "int64"}}
    table.alter(**changes, beyond_hudi=True)
    first = record(root, 0)[0]["definition"]["schema"]
    versions, files = [{"since": 0, "schema": first, "ids": [0, 1, 2, 3]}], {}
    for seq in range(5):
        header, sections = record(root, seq)
        files |= {seq << 20 | row["segment"]: row for row in sections.get("files", ())}
        if "schema" in header:
            assert not sections
            assert_on_page(*header["schema"])
            versions.append({"since": seq, **header["schema"]})
    assert [version["ids"] for version in versions] == [[0, 1, 2, 3], [0, 2, 3, 4], [0, 2, 3, 4, 5]]
    newest, decoded = versions[-1], []
    defaults = pa.ipc.open_stream(base64.b64decode(newest["defaults"])).read_all().to_pylist()[0]
    for number, file in files.items():
        version_of_file = [version for version in versions if version["since"] <= number >> 20][-1]
        name_by_id = dict(zip(version_of_file["ids"], names_of(version_of_file), strict=True))
        for row in parquet_rows(root, file):
            values = []
            for id in newest["ids"]:
                values.append(row[name_by_id[id]] if id in name_by_id else defaults.get(str(id)))
            decoded.append(dict(zip(names_of(newest), values, strict=True)))
    assert sorted(decoded, key=repr) == sorted(table.scan().to_arrow().to_pylist(), key=repr)
    assert decoded[0] == {"id": "key 000", "ts": 1, "price": 1.5, "n": 7, "city": None}
    statistics = {row["column"] for row in record(root, 1)[1]["stats"]}
    table.upsert([{**decoded[0], "city": 5}])
    assert {row["column"] for row in record(root, 5)[1]["stats"]} - statistics == {"n", "city@5.4"}
