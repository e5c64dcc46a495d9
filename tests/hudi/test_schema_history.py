"""Tables whose columns were renamed are refused."""

from __future__ import annotations

import json

import pytest
from foreign_tables import time

from mdt.errors import Corrupt, Unsupported
from mdt.hudi.read.schema_history import refuse_renamed_columns
from mdt.stores.storage import MemoryStorage

STRUCT = {"type": "record", "fields": [{"id": 5, "name": "x", "type": "int"}]}
LIST = {"type": "array", "element_id": 6, "element": STRUCT, "element_optional": True}
MAP = {"type": "map", "key_id": 7, "key": "string", "value_id": 8, "value": LIST}


def schema(**fields):
    """Return a schema: name -> number, or number and type."""
    members = []
    for name, given in fields.items():
        number, type = given if isinstance(given, tuple) else (given, "string")
        members.append({"id": number, "name": name, "optional": True, "type": type})
    return {"max_column_id": 9, "version_id": 1, "type": "record", "fields": members}


def history(*schemas, number=1):
    storage = MemoryStorage()
    path = f".hoodie/.schema/{time(number)}.schemacommit"
    storage.create(path, json.dumps({"schemas": schemas}).encode())
    return storage


def renamed(type, old, new):
    return json.loads(json.dumps(type).replace(f'"{old}"', f'"{new}"'))


def test_columns_may_be_added_dropped_reordered_and_widened():
    schemas = [
        schema(c=(2, MAP), a=(0, "long"), d=3),
        schema(a=(0, "int"), b=1, c=(2, MAP)),
        schema(a=(0, "int")),
    ]
    refuse_renamed_columns(history(*schemas))
    refuse_renamed_columns(MemoryStorage())


@pytest.mark.parametrize(
    "schemas",
    [
        [schema(b=0), schema(a=0)],
        [schema(a=1), schema(), schema(a=0)],
        [schema(c=(2, renamed(MAP, "x", "y"))), schema(c=(2, MAP))],
        [schema(c=(2, renamed(STRUCT, "x", "y"))), schema(c=(2, STRUCT))],
    ],
    ids=["renamed", "added again", "in a map", "in a struct"],
)
def test_a_renamed_column_is_refused(schemas):
    with pytest.raises(Unsupported, match="mdt cannot read"):
        refuse_renamed_columns(history(*schemas))


def test_the_newest_history_counts():
    storage = history(schema(b=0), schema(a=0), number=2)
    storage.create(f".hoodie/.schema/{time(1)}.schemacommit", b"{}")
    storage.create(f".hoodie/.schema/{time(3)}.schemacommit.inflight", b"")
    with pytest.raises(Unsupported):
        refuse_renamed_columns(storage)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"schemas": 1}',
        b'{"schemas": [1]}',
        b'{"schemas": [{"fields": 1}]}',
        b'{"schemas": [{"fields": [{"id": "1", "name": "a"}]}]}',
        b'{"schemas": [{"fields": [{"id": 1, "name": 2}]}]}',
        b'{"schemas": ' + b'[{"fields": [{"id": 1, "name": "a", "type": ' * 9000,
    ],
    ids=range(8),
)
def test_a_damaged_history_is_corrupt(data):
    storage = MemoryStorage()
    path = f".hoodie/.schema/{time(1)}.schemacommit"
    storage.create(path, data)
    with pytest.raises(Corrupt) as caught:
        refuse_renamed_columns(storage)
    assert caught.value.path == path
