"""FORMAT.md is enough to read the tombstones of deleted keys."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pyarrow as pa
from key_hash_reference import multilinear, path_hash
from test_format_doc import columns_of, private, record, table_of, unframed, unpacked

import mdt


def mark(secret: bytes, key: str, path: str) -> int:
    of_key, of_path = multilinear(secret, key.encode()), path_hash(secret, path)
    return (of_key[0] ^ of_path[0]) << 64 | (of_key[1] ^ of_path[1])


def test_tombstones_are_what_section_3_says(tmp_path: Path) -> None:
    rows = {"id": ["a", "b", "c"], "city": ["x", "x", "y"], "ts": [5, 6, 7]}
    options = {"mdt.delete.keeps.ordering": True}
    table = mdt.create(
        tmp_path,
        pa.table(rows).schema,
        ["id"],
        partition_by=["city"],
        ordering="ts",
        options=options,
    )
    table.upsert(rows)
    table.delete({"id": ["a", "c"], "city": ["x", "y"]})
    table.metadata.compact()
    secret = bytes.fromhex(record(tmp_path, 0)[0]["definition"]["key_hash"]["secret"])
    expected = {
        mark(secret, key, f"city={city}"): (1 << 63) + ts
        for key, city, ts in (("a", "x", 5), ("c", "y", 7))
    }
    found = record(tmp_path, 2)[1]["tombstones"]
    assert {row["hi"] << 64 | row["lo"]: row["ordering"] for row in found} == expected
    assert sorted(found, key=lambda row: (row["hi"], row["lo"])) == found
    header, sections = unpacked(
        unframed(private(tmp_path, f"checkpoints/{2:020}.manifest"), b"COLS")
    )
    stored = columns_of(tmp_path, header, table_of(sections["pages"]))[0]["tombstones"]
    assert [{name: row[name] for name in found[0]} for row in stored] == found
    instant = datetime.strptime(table.history()["instant"][2].as_py() + "000Z", "%Y%m%d%H%M%S%f%z")
    assert {row["deleted_us"] for row in stored} == {round(instant.timestamp() * 1e6)}
