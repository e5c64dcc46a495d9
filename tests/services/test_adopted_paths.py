"""Adoption of tables with partition paths made from times, texts and custom key generators."""

import pytest
from hidden import HiddenMetadata
from other_writer import OtherWriter
from refusals import refused
from shared_tables import rows_of
from texts import columns

import mdt
from mdt.errors import Unsupported
from mdt.hudi import properties
from mdt.metadata.files import paths
from mdt.stores.storage import MemoryStorage

VERSIONS = (6, 9)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("unit", "us"), [("s", 1_000_000), ("ms", 1_000), ("us", 1)])
def test_partition_paths_of_times_equal_those_of_the_other_writer(version, unit, us):
    storage, schema = MemoryStorage(), columns("id int64, at int64, v int64")
    options = {
        "mdt.partition.time.pattern": "yyyy/MM/dd",
        "mdt.partition.time.unit": unit,
        "mdt.partition.time.zone": "Asia/Tokyo",
    }
    settings = {"partition_by": ["at"], "ordering": "v", "version": version, "options": options}
    theirs = mdt.create(OtherWriter(storage), schema, ["id"], **settings)
    day = 86_400_000_000 // us
    theirs.upsert([{"id": n, "at": n * day, "v": 1} for n in range(5)])
    ours = mdt.adopt(storage)
    ours.upsert([{"id": n, "at": n * day + 1, "v": 2} for n in (3, 4, 5)])
    assert "at=1970/01/06" in ours.files()["partition"].to_pylist()
    assert rows_of(theirs.anew()) == rows_of(ours) and len(rows_of(ours)) == 6
    before = set(ours.files()["partition"].to_pylist())
    ours.insert([{"id": 9, "at": None, "v": 1}])  # Hudi treats a null as 1
    assert "at=1970/01/01" in before == set(ours.files()["partition"].to_pylist())
    assert ours.get({"id": 9, "at": None}) == {"id": 9, "at": None, "v": 1}
    assert ours.scan("at is null").count() == 1 and ours.check().ok
    assert rows_of(mdt.open(HiddenMetadata(storage))) == rows_of(ours)


ZONES = {
    "both": ({"timezone": "Asia/Tokyo"}, "2024/01/16/02"),
    "of paths": ({"output.timezone": "Asia/Tokyo"}, "2024/01/16/02"),
    "of texts": ({"input.timezone": "Asia/Tokyo"}, "2024/01/16/02"),
    "none": ({}, "2024/01/15/19"),
}
"""Time zone properties, and the partition path of 2024-01-15T19:30:00.000+0200."""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("zones", "path"), ZONES.values(), ids=ZONES)
def test_partition_paths_of_texts_equal_those_of_the_other_writer(version, zones, path):
    storage, schema = MemoryStorage(), columns("id int64, at string, v int64")
    options = {
        "mdt.partition.time.pattern": "yyyy/MM/dd/HH",
        "mdt.partition.time.zone": "Asia/Tokyo" if zones else "",
        "mdt.partition.time.input": "yyyy-MM-dd'T'HH:mm:ss.SSSZ",
    }
    settings = {"partition_by": ["at"], "ordering": "v", "version": version, "options": options}
    theirs = mdt.create(OtherWriter(storage), schema, ["id"], **settings)
    theirs.upsert([{"id": 1, "at": "2024-01-15T19:30:00.000+0200", "v": 1}])
    change_properties(storage, "hoodie.keygen.timebased.", zones, without="timezone")
    ours = mdt.adopt(storage)
    assert ours.files()["partition"].to_pylist() == [f"at={path}"]
    ours.upsert([{"id": 1, "at": "2024-01-15T17:59:59.999Z", "v": 2}] * bool(zones))
    ours.upsert([{"id": 2, "at": "2024-01-14T00:00:00.000+0900", "v": 2}])
    assert rows_of(theirs.anew()) == rows_of(ours) and len(rows_of(ours)) == 2
    refused("is no time of the form", ours.upsert, [{"id": 3, "at": "2024-01-15", "v": 2}])
    assert ours.check().ok


def change_properties(storage, prefix, new, without=""):
    """Replace Hudi properties whose names begin with ``prefix``."""
    stored = properties.decode(storage.read(paths.PROPERTIES))
    stored.pop(prefix + without, None)
    stored |= {prefix + name: value for name, value in new.items()}
    storage.replace(paths.PROPERTIES, properties.encode(stored))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"timebased.output.timezone": "Asia/Tokyo", "timebased.input.timezone": "UTC"},
            "times of the zone UTC, and partition paths in Asia/Tokyo",
        ),
        ({"timebased.output.timezone": "UTC"}, "times of the zone of the machine"),
        ({"timebased.input.dateformat": "yyyy-MM-dd,yyyyMMdd"}, "is not a pattern of times"),
        ({"timebased.input.dateformat": "yyyyMMdd"}, "of the form"),
        ({"timebased.input.dateformat.list.delimiter.regex": ";"}, "not made of one column"),
        ({"timebased.timestamp.type": "MIXED"}, "not made of one column of texts"),
        ({"timebased.timestamp.type": "EPOCHMILLISECONDS"}, "not made of one column of texts"),
    ],
)
def test_tables_with_ambiguous_paths_of_texts_are_not_adopted(changes, reason):
    storage, schema = MemoryStorage(), columns("id int64, at string")
    options = {"mdt.partition.time.pattern": "yyyy/MM", "mdt.partition.time.input": "yyyy-MM-dd"}
    settings = {"partition_by": ["at"], "options": {**options, "mdt.partition.time.zone": ""}}
    mdt.create(OtherWriter(storage), schema, ["id"], **settings).upsert(
        [{"id": 1, "at": "2024-01-15"}]
    )
    change_properties(storage, "hoodie.keygen.", changes)
    refused(reason, mdt.adopt, storage, kind=Unsupported)
    assert mdt.open(storage).scan().count() == 1
    assert storage.size(paths.commit(0)) is None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("fields", "key"),
    [("city:SIMPLE,v:simple", ["id", "ts"]), ("city:SIMPLE", ["id"]), ("", ["id"])],
)
def test_custom_key_generators_of_simple_fields_are_adopted(version, fields, key):
    storage, schema = MemoryStorage(), columns("id int64, city string, ts int64, v int64")
    partition_by = [field.partition(":")[0] for field in fields.split(",") if field]
    theirs = mdt.create(
        OtherWriter(storage), schema, key, partition_by=partition_by, version=version
    )
    rows = [{"id": n, "city": "xy"[n % 2], "ts": n, "v": n % 3} for n in range(9)]
    theirs.upsert(rows[:6])
    custom = {
        "keygenerator.class": "org.apache.hudi.keygen.CustomKeyGenerator",
        "keygenerator.type": "CUSTOM",
        "partition.fields": fields,
    }
    change_properties(storage, "hoodie.table.", custom)
    ours = mdt.adopt(storage)
    ours.upsert(rows[4:])
    assert rows_of(ours) == rows_of(theirs.anew()) and len(rows_of(ours)) == 9
    assert ours.check().ok


@pytest.mark.parametrize("fields", ["city:SIMPLE,ts:TIMESTAMP", "city,ts", "city:OTHER,ts:SIMPLE"])
def test_other_custom_key_generators_are_not_adopted(fields):
    storage, schema = MemoryStorage(), columns("id int64, city string, ts int64")
    mdt.create(OtherWriter(storage), schema, ["id"], partition_by=["city", "ts"])
    custom = {
        "keygenerator.class": "org.apache.hudi.keygen.CustomKeyGenerator",
        "partition.fields": fields,
    }
    change_properties(storage, "hoodie.table.", custom)
    refused("its key generator CUSTOM", mdt.adopt, storage, kind=Unsupported)
