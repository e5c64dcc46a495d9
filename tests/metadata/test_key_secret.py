"""The secret of the key hash is stored only in the private metadata of the table. Forged secrets
are refused.
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


def create_rekeyed_table(path):
    table = mdt.create(path, SCHEMA, key=["id"], key_index="record", indexes=["bitmap(v)"])
    table.upsert([{"id": f"k{n}", "v": n} for n in range(50)])
    table.rekey()
    table.upsert([{"id": f"k{n}", "v": n} for n in range(25, 75)])
    table.compact()
    table.metadata.compact()
    return table


def secrets_of(path):
    """Return the secrets of the table before and after the rekey, as hexadecimal digits."""
    first, later = (commit_log.read(LocalStorage(path), seq) for seq in (0, 2))
    assert first is not None and later is not None
    return [first.header["definition"]["key_hash"]["secret"], later.header["key_hash"]["secret"]]


def representations_of(table):
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


def test_no_representation_command_or_log_message_contains_the_secret(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    table = create_rekeyed_table(tmp_path)
    text = json.dumps(representations_of(table), default=repr) + caplog.text
    for command in ("info", "history", "files", "check", "index list", "stats"):
        text += shown(*command.split(), tmp_path) + shown(*command.split(), tmp_path, "--json")
    for secret in secrets_of(tmp_path):
        raw = bytes.fromhex(secret)
        for form in (secret, repr(raw)[2:-1], str(list(raw))[1:-1]):
            assert form not in text


def test_only_files_below_the_private_directory_contain_the_secret(tmp_path):
    create_rekeyed_table(tmp_path)
    for secret in secrets_of(tmp_path):
        forms = secret.encode(), bytes.fromhex(secret)
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        files_with_secret = [
            path for path in files if any(form in path.read_bytes() for form in forms)
        ]
        assert files_with_secret and all(
            path.is_relative_to(tmp_path / ".hoodie/.mdt") for path in files_with_secret
        )


def test_a_pickled_key_hash_equals_the_original(tmp_path):
    table = create_rekeyed_table(tmp_path)
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
def test_a_forged_key_hash_is_refused_and_not_shown_in_the_error(forged):
    table = mdt.create(MemoryStorage(), SCHEMA, key=["id"])
    forged_definition = {**table.definition.to_json(), "key_hash": forged}
    errors = [refused("", from_json, forged_definition, path="p", kind=mdt.Corrupt)]
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
def test_forged_maps_are_refused_when_a_key_is_read(forged):
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
