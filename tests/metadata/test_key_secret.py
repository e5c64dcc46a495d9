"""The secret of the key hash stands in the private metadata of the table, and nowhere else; forged
ones are refused.
"""

import json
import logging
import pickle

import pyarrow as pa
import pytest
from command_line import shown
from old_tables import old_table
from refusals import refused
from texts import columns

import mdt
from mdt.metadata.files import paths
from mdt.metadata.log import commit_log
from mdt.metadata.log.commit_log import CommitRecord
from mdt.schema.definition import from_json
from mdt.stores.storage import LocalStorage, MemoryStorage

SCHEMA = columns("id string, v int64")


def lived(path):
    table = mdt.create(path, SCHEMA, key=["id"], key_index="record", indexes=["bitmap(v)"])
    table.upsert([{"id": f"k{n}", "v": n} for n in range(50)])
    table.rekey()
    table.upsert([{"id": f"k{n}", "v": n} for n in range(25, 75)])
    table.compact()
    table.metadata.compact()
    return table


def secrets_of(path):
    """The secret of the table, and the one that it had before, in digits."""
    first, later = (commit_log.read(LocalStorage(path), seq) for seq in (0, 2))
    assert first is not None and later is not None
    return [first.header["definition"]["key_hash"]["secret"], later.header["key_hash"]["secret"]]


def told_by(table):
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


def test_nothing_that_a_table_shows_has_the_secret(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    table = lived(tmp_path)
    text = json.dumps(told_by(table), default=repr) + caplog.text
    for command in ("info", "history", "files", "check", "index list", "stats"):
        text += shown(*command.split(), tmp_path) + shown(*command.split(), tmp_path, "--json")
    for secret in secrets_of(tmp_path):
        raw = bytes.fromhex(secret)
        for form in (secret, repr(raw)[2:-1], str(list(raw))[1:-1]):
            assert form not in text


def test_no_object_but_those_below_the_private_directory_has_the_secret(tmp_path):
    lived(tmp_path)
    for secret in secrets_of(tmp_path):
        forms = secret.encode(), bytes.fromhex(secret)
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        found = [path for path in files if any(form in path.read_bytes() for form in forms)]
        assert found and all(path.is_relative_to(tmp_path / ".hoodie/.mdt") for path in found)


def test_a_pickled_table_finds_its_keys(tmp_path):
    table = lived(tmp_path)
    assert pickle.loads(pickle.dumps(table.definition.key_hash)) == table.definition.key_hash


NAME, SECRET = "multilinear/1", "5e" * 32
FORGED = [
    None,
    7,
    SECRET,
    {},
    {"name": NAME},
    {"name": "multilinear/2", "secret": SECRET},
    {"name": NAME, "secret": 7},
    {"name": NAME, "secret": SECRET[2:]},
    {"name": NAME, "secret": SECRET + "5e"},
    {"name": NAME, "secret": SECRET.upper()},
    {"name": NAME, "secret": SECRET[2:] + "zz"},
    {"name": [NAME], "secret": SECRET},
]


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_key_hash_is_refused_and_not_shown(forged):
    table = mdt.create(MemoryStorage(), SCHEMA, key=["id"])
    value = {**table.definition.to_json(), "key_hash": forged}
    errors = [refused("", from_json, value, path="p", kind=mdt.Corrupt)]
    table.rekey()
    record = table.metadata.record(1)
    assert record is not None
    data = commit_log.encode(CommitRecord(1, {**record.header, "key_hash": forged}, record.tables))
    errors.append(refused("", commit_log.decode, data, seq=1, path="p", kind=mdt.Corrupt))
    assert not [error for error in errors if "5e5e" in str(error).lower()]


@pytest.mark.parametrize("seed", [-1, 2**32, "7", 1.0, True, None])
def test_a_forged_seed_is_refused(seed):
    definition = old_table(MemoryStorage(), SCHEMA, key=["id"]).definition.to_json()
    refused("", from_json, {**definition, "hash_seed": seed}, path="p", kind=mdt.Corrupt)


@pytest.mark.parametrize(
    "forged",
    [
        None,
        {"segment": 5 << 20},
        {"segment": -1},
        {"key_map_path": None},
        {"key_map_path": "../other"},
        {"key_map_offset": -8},
        {"page_map_crc": None},
    ],
    ids=str,
)
def test_forged_maps_are_refused(forged):
    storage = MemoryStorage()
    table = mdt.create(storage, SCHEMA, key=["id"])
    table.upsert([{"id": f"k{n}", "v": n} for n in range(50)])
    table.rekey()
    record = table.metadata.record(2)
    assert record is not None
    tables = dict(record.tables)
    maps = tables.pop("maps").to_pylist()
    if forged is not None:
        rows = [{**row, **forged} for row in maps]
        tables["maps"] = pa.Table.from_pylist(rows, schema=commit_log.MAPS)
    data = commit_log.encode(CommitRecord(record.seq, record.header, tables))
    storage.replace(paths.commit(2), data)
    with pytest.raises(mdt.Corrupt):
        mdt.open(storage).get("k1")
