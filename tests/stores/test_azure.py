"""Tables on Azure's blob storage, as Azurite emulates it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path

import azure
import pyarrow as pa
import pytest
from reader import bag

import mdt
from mdt.stores.storage import open_storage

pytestmark = pytest.mark.nightly

INSTALLED = Path(__file__).resolve().parents[2] / ".spark-engines" / "azurite"
SCHEMA = pa.schema({"id": pa.int64(), "city": pa.string(), "ts": pa.int64(), "fare": pa.float64()})
CITIES = ("Oslo", "é/ö %2F+#")
HUDIS_LOCK = "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
_NUMBERS = count()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with azure.emulator(tmp_path_factory.mktemp("azure"), INSTALLED) as url:
        yield url


@pytest.fixture
def given(address):
    return {
        "account_name": azure.ACCOUNT,
        "account_key": azure.KEY,
        "endpoint": address,
        "allow_http": True,
    }


@pytest.fixture
def url(address):
    """The URL of a new table in a container of its own."""
    name = f"c{next(_NUMBERS)}-trips"
    azure.create_container(address, name)
    return f"az://{name}/a%20b/é+/t"


def trips(ids, ts, fare):
    columns = [list(ids), [CITIES[i % 2] for i in ids], [ts] * len(ids), [fare] * len(ids)]
    return pa.table(columns, schema=SCHEMA)


def create(url, given, **options):
    settings = {"key": ["id"], "partition_by": ["city"], "ordering": "ts"} | options
    return mdt.create(url, SCHEMA, storage_options=given, **settings)


def test_writers_with_different_url_schemes_write_the_same_table(url, given):
    create(url, given, formats=["hudi", "iceberg"])
    container, _, path = url.removeprefix("az://").partition("/")
    host = f"{container}@{azure.ACCOUNT}.dfs.core.windows.net"
    for ts, root in enumerate((f"az://{container}", f"abfss://{host}", f"azure://{container}")):
        t = mdt.open(f"{root}/{path}", storage_options=given)
        assert t.upsert(trips(range(ts + 1), ts, 1.0)).warnings == ()
        assert t.check().ok


@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_writes_reads_and_services_work_on_azure(url, given, kind):
    t = create(url, given, table_type=kind, indexes=["bitmap(city)"], formats=["hudi", "delta"])
    t.bulk_insert(trips(range(100), 1, 1.0))
    t.upsert(trips(range(50, 150), 2, 2.0))
    t.delete(trips(range(10), 0, 0.0))
    t.compact()
    t.upsert(trips(range(140, 160), 3, 3.0))
    t.clean(retain_commits=1)
    reopened = mdt.open(url, storage_options=given)
    expected = [trips(range(10, 50), 1, 1.0), trips(range(50, 140), 2, 2.0)]
    expected = pa.concat_tables([*expected, trips(range(140, 160), 3, 3.0)])
    assert bag(reopened.scan().to_arrow()) == bag(expected)
    assert reopened.scan("city = 'Oslo' and fare = 2").count() == 45
    assert reopened.get({"id": 151, "city": CITIES[1]})["fare"] == 3.0
    assert reopened.check().ok
    assert reopened.formats()["behind"].to_pylist() == [0, 0]


def test_the_storage_fulfils_its_contract(url, given):
    storage = open_storage(url, storage_options=given)
    assert storage.conditional_put
    assert storage.put_if_absent("a/b", b"1") and not storage.put_if_absent("a/b", b"2")
    data, version = storage.read_with_version("a/b", 9)
    second = storage.replace_version("a/b", b"3", version)
    assert data == b"1" and second not in (None, version)
    assert storage.replace_version("a/b", b"4", version) is None
    assert storage.replace_version("a/none", b"4", version) is None
    assert storage.read_with_version("a/b", 9) == (b"3", second)
    storage.create("large", bytes(9 << 20))
    assert storage.size("large") == 9 << 20 and storage.read("large", 5, 3) == bytes(3)
    with pytest.raises(mdt.Corrupt):
        storage.read("large", (9 << 20) - 1, 2)
    assert storage.read_if_exists("none") is None and storage.size("none") is None
    names = [f"many/{number:03} é%" for number in range(150)]
    storage.together(*(partial(storage.put_if_absent, name, b"x") for name in names))
    assert [info.path for info in storage.list_dir("many")] == names
    infos = storage.list_dir("many", after=names[20], before=names[23])
    assert [info.path for info in infos] == names[21:23]
    assert storage.children("") == [".hoodie", "a", "large", "many"]
    storage.delete_many([*names[:100], "many/none"])
    assert [info.path for info in storage.list("many")] == names[100:]


def test_one_of_many_concurrent_puts_wins(url, given):
    storage = open_storage(url, storage_options=given)
    with ThreadPoolExecutor(6) as pool:
        for turn in range(10):
            put = partial(storage.put_if_absent, f"race/{turn}")
            contents = [bytes([writer]) for writer in range(6)]
            winners = [c for c, won in zip(contents, pool.map(put, contents), strict=True) if won]
            assert winners == [storage.read(f"race/{turn}")]


@pytest.mark.parametrize("lock", ["", HUDIS_LOCK])
def test_concurrent_writers_all_commit(url, given, lock):
    options = {"hoodie.write.lock.provider": lock} if lock else {}
    create(url, given, options=options)

    def write(writer):
        t = mdt.open(url, storage_options=given)
        return [t.upsert(trips([writer, 9], 1, 10.0 * writer + n)).seq for n in range(3)]

    with ThreadPoolExecutor(3) as pool:
        seqs = [seq for written in pool.map(write, range(3)) for seq in written]
    t = mdt.open(url, storage_options=given)
    assert sorted(seqs) == list(range(1, 10))
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 9]
    assert t.check().ok


def test_a_missing_container_is_named_in_the_error(address, given):
    with pytest.raises(mdt.Invalid, match="no bucket 'nowhere'"):
        mdt.open("az://nowhere/t", storage_options=given)
