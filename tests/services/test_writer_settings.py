"""Tables of Hudi's writers with instants in local time, or with partition paths not encoded."""

from functools import partial

import pytest
from other_writer import OtherWriter
from refusals import refused
from shared_tables import batch, other_table, rows_of
from texts import columns

import mdt
from mdt.commit.upgrading import replace_properties
from mdt.errors import Conflict, Unsupported
from mdt.hudi import partitions
from mdt.hudi.properties import ENCODES_PATHS, TIME_ZONE
from mdt.metadata.history.foreign_writers import read_properties
from mdt.metadata.metadata import Metadata
from mdt.services.adoption import writer_settings
from mdt.stores.storage import MemoryStorage

versions = pytest.mark.parametrize("version", [6, 9])


def adopted_table(version, zone, **settings):
    """Return an adopted table with a time zone property, and its storage."""
    storage = MemoryStorage()
    theirs = other_table(storage, version=version)
    theirs.upsert(batch([1, 2, 3], 1))
    ours = mdt.adopt(storage, **settings)
    stored = {**read_properties(storage), TIME_ZONE: zone}
    if not zone:
        del stored[TIME_ZONE]
    replace_properties(Metadata(storage), stored)
    return ours, storage


@versions
@pytest.mark.parametrize("zone", ["LOCAL", ""])
def test_the_first_write_sets_the_time_zone_to_utc_if_no_instant_is_ahead(version, zone, caplog):
    ours, storage = adopted_table(version, zone)
    ours.upsert(batch([1], 2), dry_run=True)
    assert read_properties(storage).get(TIME_ZONE, "") == zone
    ours.upsert(batch([1], 2))
    assert read_properties(storage)[TIME_ZONE] == "UTC"
    assert caplog.text.count("hoodie.table.timeline.timezone=UTC") == 1
    mdt.open(OtherWriter(storage)).upsert(batch([1], 3))
    ours.upsert(batch([2], 4))
    assert caplog.text.count(TIME_ZONE) == 1
    assert rows_of(ours) == rows_of(mdt.open(storage))


@versions
def test_the_time_zone_is_kept_while_instants_are_ahead_of_utc(version, monkeypatch):
    ours, storage = adopted_table(version, "LOCAL")
    monkeypatch.setattr(writer_settings, "_now", lambda storage: "20200101000000000")
    ours.upsert(batch([1], 2))
    assert read_properties(storage)[TIME_ZONE] == "LOCAL"
    monkeypatch.undo()
    ours.upsert(batch([1], 3))
    assert read_properties(storage)[TIME_ZONE] == "UTC"


def test_a_write_is_refused_while_another_writer_holds_hudis_lock():
    provider = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
    options = {"hoodie.write.lock.provider": provider, "hoodie.write.lock.wait_time_ms": 100}
    ours, storage = adopted_table(6, "LOCAL", options=options)
    storage.create(".hoodie/lock", b"")
    refused("holds the lock", partial(ours.upsert, batch([1], 2)), kind=Conflict)
    assert read_properties(storage)[TIME_ZONE] == "LOCAL"
    storage.delete(".hoodie/lock")
    ours.upsert(batch([1], 2))
    assert read_properties(storage)[TIME_ZONE] == "UTC"


@versions
@pytest.mark.parametrize("stored", ["false", None])
def test_the_first_write_sets_the_property_that_partition_paths_are_encoded(version, stored):
    ours, storage = adopted_table(version, "UTC")
    properties = {**read_properties(storage), ENCODES_PATHS: stored}
    replace_properties(
        Metadata(storage), {name: text for name, text in properties.items() if text is not None}
    )
    ours.upsert(batch([1], 2), dry_run=True)
    assert read_properties(storage).get(ENCODES_PATHS) == stored
    ours.upsert(batch([4], 2, "L'Aquila"))
    assert read_properties(storage)[ENCODES_PATHS] == "true"


@versions
def test_an_unencoded_partition_path_is_readable_but_writes_are_refused_with_a_hint(
    version, monkeypatch
):
    ours, storage = adopted_table(version, "UTC")
    theirs = mdt.open(OtherWriter(storage))
    monkeypatch.setattr(partitions, "escape", str)
    theirs.upsert(batch([4], 2, "L'Aquila"))
    monkeypatch.undo()
    assert mdt.open(storage).scan("city = 'L''Aquila'").count() == 1
    way_out = 'let Hudi delete the partition "city=L\'Aquila" … urlencode=true'
    refused(way_out, partial(ours.upsert, batch([1], 2)), kind=Unsupported)
    theirs.anew().delete_partition("city=L'Aquila")
    ours.upsert(batch([4], 2, "L'Aquila"))
    assert rows_of(theirs.anew()) == rows_of(ours) and len(rows_of(ours)) == 4


def test_the_encoding_property_is_not_set_if_paths_need_no_encoding():
    storage = MemoryStorage()
    numbers = columns("id int64, n int64")
    mdt.create(OtherWriter(storage), numbers, ["id"], partition_by=["n"])
    ours = mdt.adopt(storage)
    replace_properties(Metadata(storage), {**read_properties(storage), ENCODES_PATHS: "false"})
    ours.upsert([{"id": 1, "n": 2}])
    assert read_properties(storage)[ENCODES_PATHS] == "false"
