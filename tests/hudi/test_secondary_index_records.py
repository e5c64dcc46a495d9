"""Records of secondary indexes: Hudi's schema reads them, and their keys can be split."""

from __future__ import annotations

import io
import json
import random

import fastavro
import pyarrow as pa
import pytest

from mdt.errors import Unsupported
from mdt.hudi import secondary_index_records
from mdt.hudi.metadata_record_schema import TABLE_SCHEMA
from mdt.hudi.metadata_table_files import SECONDARY_SCHEMA
from mdt.hudi.read.index_partition import group_numbers
from mdt.hudi.read.key_indexes import SecondaryIndex, split_key

PARTS = ("a", "$", "\\", "\0", "é", "\U0001f600", "k1")


def decoded(value):
    schema = fastavro.parse_schema(json.loads(SECONDARY_SCHEMA))
    reader_schema = fastavro.parse_schema(json.loads(TABLE_SCHEMA))
    return fastavro.schemaless_reader(io.BytesIO(value), schema, reader_schema)


def test_the_value_of_a_record_is_read_by_hudis_schema():
    record = decoded(secondary_index_records.VALUE)
    assert record["key"] == "" and record["type"] == 7
    assert record["SecondaryIndexMetadata"] == {"isDeleted": False}
    others = {name for name, value in record.items() if value is None}
    assert others == record.keys() - {"key", "type", "SecondaryIndexMetadata"}


def test_keys_are_split_into_the_value_and_the_record_key():
    draw = random.Random(1)
    texts = ["".join(draw.choices(PARTS, k=draw.randrange(5))) for _ in range(2_000)]
    rows = pa.table({"key": [text + "k" for text in texts], "value": [*texts[1:], None]})
    [keys] = secondary_index_records.keys(rows)
    split = [split_key(key) for key in keys.to_pylist()]
    assert split == [(row["value"], row["key"]) for row in rows.to_pylist()]


def test_keys_with_the_same_value_are_in_one_file_group_from_index_version_2_on():
    rows = pa.table({"key": [f"k$\\{n}" for n in range(500)], "value": ["a$\\b"] * 500})
    [keys] = secondary_index_records.keys(rows)
    for version, groups in (("V1", 10), ("V2", 1)):
        index = SecondaryIndex("secondary_index_v", "v", version)
        assert len({*group_numbers(index.hashed(keys.to_pylist()), 10).tolist()}) == groups


def test_a_key_that_is_too_long_is_refused():
    with pytest.raises(Unsupported, match="no keys of over"):
        secondary_index_records.entries(pa.array(["v" * 40_000 + "$k"]))
