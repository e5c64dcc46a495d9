"""Records of Hudi's metadata table, decoded into columns, equal fastavro's in every partition."""

from __future__ import annotations

import io
import json
from collections import defaultdict

import fastavro
import pyarrow as pa
import pytest
from metadata_tables import SCHEMA, listing, value
from test_avro_columns import plain
from test_hfile import TABLES, hfiles_of_hudi

from mdt.errors import Corrupt
from mdt.hudi.read import hfile
from mdt.hudi.read.hfile_format import ENTRIES
from mdt.hudi.read.metadata_records import decode_listings, decode_records

TEXT = json.dumps(SCHEMA)


def entries(*pairs: tuple[bytes, bytes]) -> pa.RecordBatch:
    keys, values = zip(*pairs, strict=True) if pairs else ((), ())
    types = ENTRIES.types
    return pa.record_batch([pa.array(keys, types[0]), pa.array(values, types[1])], schema=ENTRIES)


def with_empty_lists_as_maps(record: dict[str, object]) -> dict[str, object]:
    """Replace empty lists by empty maps, because both look the same in Arrow."""
    return {name: {} if item == [] else item for name, item in record.items()}


@pytest.mark.skipif(not TABLES, reason="no fixtures")
@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_records_written_by_hudi_are_decoded_as_by_fastavro(path):
    batches = defaultdict(list)
    for name, data in hfiles_of_hudi(path):
        file = hfile.open_bytes(data, name)
        batches[file.info["schema"].decode()].append(file.all())
    for schema, parts in batches.items():
        batch = pa.concat_batches(parts)
        parsed = fastavro.parse_schema(json.loads(schema))
        expected = []
        for key, data in zip(*batch.to_pydict().values(), strict=True):
            record = fastavro.schemaless_reader(io.BytesIO(data), parsed, None)
            expected.append(record | {"key": key.decode()})
        records = decode_records(batch, schema, "f.hfile")
        assert list(map(with_empty_lists_as_maps, plain(records.to_pylist()))) == expected


def test_empty_values_are_left_out_of_records_and_are_deletions_in_listings():
    batch = entries((b"a", b""), (b"b", value({"x": 1})), (b"c", b""), (b"d", value({})))
    assert decode_records(batch, TEXT, "f")["key"].to_pylist() == ["b", "d"]
    assert decode_records(batch.slice(1, 2), TEXT, "f")["key"].to_pylist() == ["b"]
    assert decode_records(entries(), TEXT, "f").num_rows == 0
    changes = dict(decode_listings(batch, TEXT, "f"))
    assert changes == {"a": None, "b": {"x": 1}, "c": None, "d": {}}


def test_a_record_without_file_names_is_an_empty_listing():
    schema = {**SCHEMA, "fields": [SCHEMA["fields"][0]]}
    batch = entries((b"a", b"\0"))
    assert list(decode_listings(batch, json.dumps(schema), "f")) == [("a", {})]


@pytest.mark.parametrize(
    ("key", "data", "schema"),
    [
        (b"\xff", value({"x": 1}), TEXT),
        (b"a", value({"x": 1})[:-1], TEXT),
        (b"a", value({"x": 1}) + b"\0", TEXT),
        (b"a", value({"x": 1}), ""),
        (b"a", value({"x": 1}), "{}"),
    ],
)
def test_damaged_records_are_corrupt_and_the_error_names_the_file(key, data, schema):
    for decode in (decode_records, decode_listings):
        with pytest.raises(Corrupt) as caught:
            list(decode(entries((key, data)), schema, "t/f.hfile"))
        assert caught.value.path == "t/f.hfile"


def map_of_records(**fields):
    """Return the Avro type of a map of records with these fields."""
    members = [{"name": name, "type": type} for name, type in fields.items()]
    return {"type": "map", "values": {"type": "record", "name": "info", "fields": members}}


@pytest.mark.parametrize(
    ("type", "names"),
    [
        ("long", 1),
        ({"type": "array", "items": "long"}, [1]),
        ({"type": "map", "values": "long"}, {"x": 1}),
        (map_of_records(size="long"), {"x": {"size": 1}}),
        (map_of_records(size="long", isDeleted="int"), {"x": {"size": 1, "isDeleted": 0}}),
        (
            map_of_records(size="double", isDeleted="boolean"),
            {"x": {"size": 1.5, "isDeleted": False}},
        ),
    ],
)
def test_file_names_in_a_field_of_an_unknown_type_are_corrupt(type, names):
    field = {"name": "filesystemMetadata", "type": type}
    schema = {"type": "record", "name": "r", "fields": [field]}
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), {field["name"]: names})
    with pytest.raises(Corrupt, match="unknown records"):
        dict(decode_listings(entries((b"a", data.getvalue())), json.dumps(schema), "f"))


def test_listings_have_file_sizes_and_deletions():
    records = listing({"p": {"x": 7, "y": None}, "": {}})
    batch = entries(*((key.encode(), value(names)) for key, names in records.items()))
    assert dict(decode_listings(batch, TEXT, "f")) == {
        "__all_partitions__": {"p": 0, ".": 0},
        "p": {"x": 7, "y": None},
        ".": {},
    }
