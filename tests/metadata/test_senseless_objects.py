"""Small objects with invalid content, even if their checksums are right."""

import json

import pytest
from texts import columns

import mdt
from mdt.errors import Corrupt
from mdt.metadata.files import paths
from mdt.metadata.log import codec
from mdt.metadata.log.leases import _read
from mdt.metadata.log.tags import Tags
from mdt.metadata.snapshot.checkpoints import MANIFEST, VERSION
from mdt.metadata.statistics import usage
from mdt.stores.storage import MemoryStorage


@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "NaN"])
def test_a_usage_report_with_an_infinite_or_nan_count_is_malformed(number):
    report = f'{{"since_us": 1, "queries": {number}, "indexes": {{}}, "tests": {{}}}}'
    with pytest.raises(ValueError):
        usage.decode(report.encode())


def test_a_tag_that_is_added_again_is_no_longer_a_savepoint():
    saved = Tags({"a": 1, "b": 2}, {"a": "20260101000000000", "b": "20260101000000001"})
    assert saved.followed_by({"tags": {"add": {"a": 3}}}) == Tags(
        {"a": 3, "b": 2}, {"b": "20260101000000001"}
    )


@pytest.mark.parametrize("lost", ["last_instant", "definition"])
def test_a_manifest_without_a_required_field_is_corrupt(lost):
    table = mdt.create(MemoryStorage(), columns("id string"), ["id"])
    table.metadata.compact()
    storage, path = table.storage, paths.checkpoint_manifest(0)
    payload = codec.unframe(
        storage.read_whole(path, 1 << 20), MANIFEST, path=path, version_max=VERSION
    )
    header, sections = codec.unpack(payload, path=path)
    del header[lost]
    forged = codec.frame(MANIFEST, VERSION, codec.pack(header, sections))
    storage.replace(path, forged)
    with pytest.raises(Corrupt, match=lost):
        table.anew().metadata.checkpoints.open(0)


@pytest.mark.parametrize("seq", [-1, True, 1.5, "1", None])
def test_a_lease_with_an_invalid_seq_is_ignored(seq):
    storage = MemoryStorage()
    storage.put_if_absent("lease.json", json.dumps({"seq": seq, "until_us": 10}).encode())
    assert _read(storage, "lease.json") is None
