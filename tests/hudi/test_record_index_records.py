"""Records of the record index: their bytes, and reading them from a table of Hudi."""

import hashlib
import io
import json
import uuid
from datetime import UTC, datetime

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdt.errors import Corrupt, Unsupported
from mdt.hudi import hfile_writing, record_index_records, timeline
from mdt.hudi import metadata_table_files as table_files
from mdt.hudi.avro import NAMESPACE, field, mapping, optional, record
from mdt.hudi.metadata_record_schema import LOCATION
from mdt.hudi.metadata_table_files import RECORD_INDEX
from mdt.hudi.read import hfile, hfile_entries
from mdt.hudi.read.hfile_format import ENTRIES
from mdt.hudi.read.key_indexes import sampled_times
from mdt.hudi.record_index_records import LOCATIONS

GROUPS = [
    f"{uuid.UUID(int=0)}-0",
    f"{uuid.UUID(int=2**128 - 1)}-999999999",
    "af3e-7",
    "00000003-d7bc-446e-9a5b-6c2d0f3e8f11-0",
]
"""File ids with and without a UUID."""
SCHEMA = json.dumps(
    record(
        "HoodieMetadataRecord",
        field("key", "string"),
        field("type", "int"),
        optional("filesystemMetadata", mapping("string")),
        LOCATION,
        namespace=NAMESPACE,
    )
)


@given(
    st.dictionaries(
        st.text(min_size=1), st.tuples(st.sampled_from(["", "city=ø"]), st.sampled_from(GROUPS))
    ),
    st.datetimes(datetime(1980, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
)
def test_records_are_read_by_hudis_schema(places, time):
    instant_ms = int(time.timestamp()) * 1000 + time.microsecond // 1000
    instant = timeline.instant_text(1000 * instant_ms)
    rows = [[key, p, g, instant] for key, (p, g) in places.items()]
    columns = zip(*rows, strict=True) if rows else [[]] * len(LOCATIONS)
    locations = pa.table([list(column) for column in columns], schema=LOCATIONS)
    entries = record_index_records.entries(locations)
    assert entries["key"].to_pylist() == [key.encode() for key in places]
    parsed = fastavro.parse_schema(json.loads(SCHEMA))
    for key, value in zip(entries["key"].to_pylist(), entries["value"].to_pylist(), strict=True):
        stream = io.BytesIO(value)
        decoded = fastavro.schemaless_reader(stream, parsed)
        assert stream.read() == b"" and (decoded["key"], decoded["type"]) == ("", 5)
        info = decoded["recordIndexMetadata"]
        assert info["instantTime"] == instant_ms
        partition, group = places[key.decode()]
        assert info["partitionName"] == partition
        if info["fileIdEncoding"]:
            assert info["fileId"] == group == "af3e-7"
        else:
            halves = info["fileIdHighBits"], info["fileIdLowBits"]
            high, low = (half % 2**64 for half in halves)
            assert f"{uuid.UUID(int=high << 64 | low)}-{info['fileIndex']}" == group


@pytest.mark.parametrize("key", ["", "k" * 40_000])
def test_empty_keys_and_keys_too_long_for_an_hfile_are_refused(key):
    with pytest.raises(Unsupported, match="no keys without characters or of"):
        record_index_records.encoded(pa.array(["a", key]))


def test_the_bytes_of_a_log_file_do_not_change():
    places = [["a", "b"], ["city=x", ""], [GROUPS[3], "af3e-7"], ["20240229120000123"] * 2]
    located = record_index_records.entries(pa.table(places, schema=LOCATIONS))
    deleted = hfile_entries.deletions(pa.array(["c"], pa.large_binary()))
    entries = hfile_entries.sort([located, deleted])
    data = table_files.GROUPS[RECORD_INDEX].log_file(entries, "20240229120000123")
    assert hashlib.sha256(data).hexdigest()[:16] == "99040f9a6fb45dfa"


def test_a_null_location_with_a_union_field_is_corrupt_and_does_not_crash_the_process():
    location = record("Location", field("instantTime", ["string", "long"]))
    schema = json.dumps(record("R", field("key", "string"), optional(LOCATION["name"], location)))
    columns = pa.array([b"a", b"b"]), pa.array([b"\0\0", b"\0\2\2\x0a"])
    entries = pa.record_batch([c.cast(pa.large_binary()) for c in columns], schema=ENTRIES)
    data = hfile_writing.encode(entries, schema=schema, created_ms=0, is_compressed=False)
    with pytest.raises(Corrupt, match="no location"):
        sampled_times(hfile.open_bytes(data, "a"), schema)
