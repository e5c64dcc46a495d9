"""The secret of the key hash stands in the private metadata of the table, and nowhere else; forged
ones are refused.
"""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from old_tables import old_table
from typer.testing import CliRunner

import mdt
from mdt.cli.main import app
from mdt.metadata.files import paths
from mdt.metadata.log import commit_log
from mdt.metadata.log.commit_log import CommitRecord
from mdt.schema.definition import from_json
from mdt.stores.storage import LocalStorage, MemoryStorage

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])


def lived(path: Path) -> mdt.Table:
    table = mdt.create(path, SCHEMA, key=["id"], key_index="record", indexes=["bitmap(v)"])
    table.upsert([{"id": f"k{n}", "v": n} for n in range(50)])
    table.rekey()
    table.upsert([{"id": f"k{n}", "v": n} for n in range(25, 75)])
    table.compact()
    table.metadata.compact()
    return table


def secrets_of(path: Path) -> list[str]:
    """The secret of the table, and the one that it had before, in digits."""
    first, later = (commit_log.read(LocalStorage(path), seq) for seq in (0, 2))
    assert first is not None and later is not None
    return [first.header["definition"]["key_hash"]["secret"], later.header["key_hash"]["secret"]]


def shown(table: mdt.Table) -> list[object]:
    scan = table.scan("id = 'k7' and v < 9")
    return [
        repr(table),
        str(table),
        table._repr_html_(),
        repr(table.definition),
        repr(table.definition.key_hash),
        table.options,
        repr(table.snapshot()),
        table.history().to_pylist(),
        table.files().to_pylist(),
        table.stats(),
        table.indexes().to_pylist(),
        repr(scan),
        scan.explain(),
        repr(scan.explain()),
        str(table.check()),
        repr(table.metadata),
    ]


def test_nothing_that_a_table_shows_has_the_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    table = lived(tmp_path)
    text = json.dumps(shown(table), default=repr) + caplog.text
    for command in (["info"], ["history"], ["files"], ["check"], ["indexes"], ["stats"]):
        for json_flag in ([], ["--json"]):
            text += CliRunner().invoke(app, [*command, str(tmp_path), *json_flag]).output
    for secret in secrets_of(tmp_path):
        raw = bytes.fromhex(secret)
        for form in (secret, repr(raw)[2:-1], str(list(raw))[1:-1]):
            assert form not in text


def test_no_object_but_those_below_the_private_directory_has_the_secret(tmp_path: Path) -> None:
    lived(tmp_path)
    for secret in secrets_of(tmp_path):
        found = [
            path
            for path in tmp_path.rglob("*")
            if path.is_file()
            and any(form in path.read_bytes() for form in (secret.encode(), bytes.fromhex(secret)))
        ]
        assert found and all(path.is_relative_to(tmp_path / ".hoodie/.mdt") for path in found)


def test_a_pickled_table_finds_its_keys(tmp_path: Path) -> None:
    table = lived(tmp_path)
    assert pickle.loads(pickle.dumps(table.definition.key_hash)) == table.definition.key_hash


FORGED: list[Any] = [
    None,
    7,
    "00" * 32,
    {},
    {"name": "multilinear/1"},
    {"name": "multilinear/2", "secret": "00" * 32},
    {"name": "multilinear/1", "secret": 7},
    {"name": "multilinear/1", "secret": "5e" * 31},
    {"name": "multilinear/1", "secret": "5e" * 33},
    {"name": "multilinear/1", "secret": "5E" * 32},
    {"name": "multilinear/1", "secret": "5e" * 31 + "zz"},
    {"name": ["multilinear/1"], "secret": "5e" * 32},
]


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_key_hash_is_refused_and_not_shown(forged: Any) -> None:
    table = mdt.create(MemoryStorage(), SCHEMA, key=["id"])
    value = {**table.definition.to_json(), "key_hash": forged}
    with pytest.raises(mdt.Corrupt) as caught:
        from_json(value, path="p")
    assert "5e5e" not in str(caught.value).lower()
    table.rekey()
    record = table.metadata.record(1)
    assert record is not None
    data = commit_log.encode(CommitRecord(1, {**record.header, "key_hash": forged}, record.tables))
    with pytest.raises(mdt.Corrupt) as caught:
        commit_log.decode(data, seq=1, path="p")
    assert "5e5e" not in str(caught.value).lower()


@pytest.mark.parametrize("seed", [-1, 2**32, "7", 1.0, True, None])
def test_a_forged_seed_is_refused(seed: Any) -> None:
    definition = old_table(MemoryStorage(), SCHEMA, key=["id"]).definition.to_json()
    with pytest.raises(mdt.Corrupt):
        from_json({**definition, "hash_seed": seed}, path="p")


def without_maps(record: CommitRecord) -> CommitRecord:
    tables = {name: table for name, table in record.tables.items() if name != "maps"}
    return CommitRecord(record.seq, record.header, tables)


def with_maps(
    change: Callable[[dict[str, Any]], dict[str, Any]],
) -> Callable[[CommitRecord], CommitRecord]:
    def changed(record: CommitRecord) -> CommitRecord:
        rows = [change(row) for row in record.table("maps").to_pylist()]
        return CommitRecord(
            record.seq,
            record.header,
            {**record.tables, "maps": pa.Table.from_pylist(rows, schema=commit_log.MAPS)},
        )

    return changed


@pytest.mark.parametrize(
    "forge",
    [
        without_maps,
        with_maps(lambda row: {**row, "segment": 5 << 20}),
        with_maps(lambda row: {**row, "segment": -1}),
        with_maps(lambda row: {**row, "key_map_path": None}),
        with_maps(lambda row: {**row, "key_map_path": "../other"}),
        with_maps(lambda row: {**row, "key_map_offset": -8}),
        with_maps(lambda row: {**row, "page_map_crc": None}),
    ],
)
def test_forged_maps_are_refused(forge: Callable[[CommitRecord], CommitRecord]) -> None:
    storage = MemoryStorage()
    table = mdt.create(storage, SCHEMA, key=["id"])
    table.upsert([{"id": f"k{n}", "v": n} for n in range(50)])
    table.rekey()
    record = table.metadata.record(2)
    assert record is not None
    storage.replace(paths.commit(2), commit_log.encode(forge(record)))
    with pytest.raises(mdt.Corrupt):
        mdt.open(storage).get("k1")
