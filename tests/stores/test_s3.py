"""Tables on S3 (moto): the whole life of one, several writers, and what is said when something is
missing.
"""

import json
import os
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pyarrow as pa
import pytest
import s3
from obstore.store import S3Store
from refusals import refused as refused_with
from texts import columns

import mdt
from mdt import Invalid, Missing, Unavailable
from mdt.stores.storage import open_storage

SCHEMA = columns("id int64, city string, ts int64, fare double")
LOCK = ".hoodie/.locks/table_lock.json"
HUDIS_LOCK = "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
URL = f"s3://{s3.BUCKET}/"
SECONDS_MAX = 20
"""Longest wait for an error, with the retries that the tests allow."""


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    """Credentials and settings of whoever runs the tests play no part."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def endpoint():
    with s3.mock_server() as address:
        yield address


def options(endpoint, **more):
    return {
        **s3.ENVIRONMENT,
        "AWS_ENDPOINT_URL": endpoint,
        "max_retries": 2,
        "retry_timeout": "5s",
        **more,
    }


@pytest.fixture
def given(endpoint):
    return options(endpoint)


def trips(ids, ts, fare):
    columns = [
        list(ids),
        [("Oslo", "Rome")[i % 2] for i in ids],
        [ts] * len(ids),
        [fare] * len(ids),
    ]
    return pa.table(columns, schema=SCHEMA)


def create(name, given, **more):
    return mdt.create(
        URL + name,
        SCHEMA,
        ["id"],
        partition_by=["city"],
        ordering="ts",
        storage_options=given,
        **more,
    )


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_a_table_lives_on_s3(table_type, given):
    t = create(table_type, given, table_type=table_type, indexes=["bitmap(city)"])
    t.bulk_insert(trips(range(100), 1, 1.0))
    t.upsert(trips(range(50, 150), 2, 2.0))
    t.delete(trips(range(10), 0, 0.0))
    expected = {i: 2.0 if i >= 50 else 1.0 for i in range(10, 150)}
    again = opened(given, URL + table_type)
    for _ in range(2):
        rows = again.scan(columns=["id", "fare"]).to_arrow()
        assert dict(zip(rows["id"].to_pylist(), rows["fare"].to_pylist(), strict=True)) == expected
        assert again.scan("city = 'Oslo' and fare = 2").count() == 50
        assert again.check().ok
        again.compact()


def test_a_ready_store_and_the_environment_open_the_same_table(endpoint, given, monkeypatch):
    create("ready", given).upsert(trips(range(10), 1, 1.0))
    store = S3Store(
        s3.BUCKET,
        prefix="ready",
        endpoint=endpoint,
        region="us-east-1",
        access_key_id=s3.KEY,
        secret_access_key=s3.SECRET,
        client_options={"allow_http": True},
    )
    t = mdt.open(store)
    t.upsert(trips(range(5, 15), 2, 2.0))
    assert (t.path, t.scan().count()) == (URL + "ready", 15)
    for name, value in {**s3.ENVIRONMENT, "AWS_ENDPOINT_URL": endpoint}.items():
        monkeypatch.setenv(name, value)
    assert mdt.open(URL + "ready").scan().count() == 15


def test_two_writers_on_s3_both_commit_and_nothing_is_lost(given):
    create("two", given)

    def write(me):
        t = opened(given, URL + "two")
        return [t.upsert(trips(range(10), 1, 10.0 * me + n)).seq for n in range(4)]

    with ThreadPoolExecutor(2) as pool:
        seqs = [seq for found in pool.map(write, range(2)) for seq in found]
    t = opened(given, URL + "two")
    assert sorted(seqs) == list(range(1, 9))
    rows = t.scan(columns=["id", "fare"]).to_arrow().sort_by("id").to_pydict()
    assert rows["id"] == list(range(10))
    assert set(rows["fare"]) in ({3.0}, {13.0}), (
        "the last upsert of one of them came last, as a whole"
    )
    assert t.check().ok


def test_writers_that_name_the_table_by_other_schemes_write_one_table(given):
    create("schemes", given, formats=["hudi", "iceberg"])
    for ts, scheme in enumerate(("s3a", "s3", "s3a")):
        t = opened(given, f"{scheme}://{s3.BUCKET}/schemes")
        assert t.upsert(trips(range(ts + 1), ts, 1.0)).warnings == ()
        assert t.check().ok
    metadata = json.loads(t.storage.read("metadata/v3.metadata.json"))
    assert metadata["location"] == f"s3://{s3.BUCKET}/schemes"


@pytest.mark.parametrize("part", ["city", "/pending/", "/log/", "/attachments/", ".hoodie/2"])
def test_a_put_whose_reply_is_lost_and_which_the_store_tries_again_is_no_error(endpoint, part):
    name = "again" + part.strip("/.").replace("/", "-")
    with s3.losing_replies(endpoint, "PUT", part) as (address, lost):
        t = create(name, options(address))
        t.upsert(trips(range(10), 1, 1.0))
        assert lost
    t = opened(options(endpoint), URL + name)
    assert t.scan().count() == 10 and t.check().ok
    path = ".hoodie/hoodie.properties"
    refused("already exists", t.storage.create, path, b"another", kind=mdt.errors.Internal)


def refused(said, act, *given, **more):
    """Assert that a call is refused soon, Unavailable unless ``kind`` is given, and shows no secret
    anywhere.
    """
    started = time.monotonic()
    error = refused_with(said, act, *given, **{"kind": Unavailable, **more})
    assert time.monotonic() - started < SECONDS_MAX
    whole = "".join(traceback.format_exception(error))
    assert s3.SECRET not in whole and s3.KEY not in whole
    return error


def opened(given, url=URL + "t"):
    return mdt.open(url, storage_options=given)


def test_a_missing_bucket_is_named(given):
    said, url = (
        "no bucket 'no-such-bucket' … http://127.0.0.1 … hint: create it",
        "s3://no-such-bucket/t",
    )
    refused(said, opened, given, url, kind=Invalid)
    refused(said, mdt.create, url, SCHEMA, ["id"], storage_options=given, kind=Invalid)


def test_an_empty_place_in_a_bucket_is_no_table(given):
    said = "not an mdt table … hint: … mdt.create"
    refused(said, opened, given, URL + "nowhere", kind=Invalid)


@pytest.mark.parametrize("metadata", [s3.nobody, None], ids=["nothing listens", "no answer"])
def test_missing_credentials_are_said(endpoint, metadata):
    with s3.silent() as address:
        place = metadata() if metadata else address
        given = options(endpoint, metadata_endpoint=place, timeout="1s")
        del given["AWS_ACCESS_KEY_ID"], given["AWS_SECRET_ACCESS_KEY"]
        said = f"no credentials … s3://{s3.BUCKET}/t … hint: … AWS_ACCESS_KEY_ID"
        refused(said, opened, given)
        refused(said, create, "t", given)


SCOPE = s3.fault(
    "AuthorizationHeaderMalformed", "the region 'us-east-1' is wrong; expecting 'eu-west-3'"
)
UNAUTHORIZED = s3.fault("AuthorizationPermissionMismatch", "This request is not authorized")
DENIED = s3.fault("AccessDenied", "Access Denied")
ANSWERS = {
    "a redirect": (
        301,
        s3.fault("PermanentRedirect", "use the endpoint"),
        Invalid,
        "not in the requested region … hint: … region",
    ),
    "a wrong signature scope": (
        400,
        SCOPE,
        Invalid,
        "not in the requested region, but in eu-west-3 … 'region': 'eu-west-3'",
    ),
    "an unknown key": (
        403,
        s3.fault("InvalidAccessKeyId", f"the key {s3.KEY} does not exist"),
        Unavailable,
        "InvalidAccessKeyId: the key *** does not exist … hint: … check the credentials",
    ),
    "no rights": (403, DENIED, Unavailable, "AccessDenied … hint: … permissions on the bucket"),
    "no rights to list, as Azure says it": (
        403,
        UNAUTHORIZED,
        Unavailable,
        "the store refused … hint: … permissions on the bucket",
    ),
    "a busy store": (
        503,
        s3.fault("SlowDown", "Please reduce your request rate."),
        Unavailable,
        "SlowDown",
    ),
}


@pytest.mark.parametrize(("status", "body", "kind", "said"), ANSWERS.values(), ids=ANSWERS.keys())
def test_an_answer_of_s3_that_is(status, body, kind, said):
    with s3.answering(status, body) as address:
        refused(said, opened, options(address), kind=kind)


@contextmanager
def answered(status, body):
    """Yield a storage whose every request is answered alike."""
    with s3.answering(status, body) as address:
        yield open_storage(URL + "t", storage_options=options(address))


def test_which_right_lacks_is_said_for_every_kind_of_request():
    with answered(403, DENIED) as storage:
        for text, right, act, *given in (
            ("reading 'f'", "s3:GetObject", storage.read, "f"),
            ("writing 'f'", "s3:PutObject", storage.replace, "f", b""),
            ("deleting 'f'", "s3:DeleteObject", storage.delete, "f"),
            ("listing 'd'", "s3:ListBucket", storage.list_dir, "d"),
            ("listing '/'", "s3:ListBucket", storage.list, ""),
        ):
            hint = f"permissions on the bucket: {text.partition(' ')[0]} needs {right}"
            said = f"refused {text}: AccessDenied … hint: … {hint}"
            assert not refused(said, act, *given, kind=Unavailable).retryable
        refused("refused reading 'f' … hint: … (without the permission to list", storage.size, "f")


def test_deletes_that_are_refused_one_by_one_in_an_answer_of_success_are_refusals():
    body = "<DeleteResult><Error><Key>t/f</Key><Code>AccessDenied</Code><Message>no</Message></Error></DeleteResult>"
    with answered(200, body) as storage:
        refused("refused deleting 'f' … hint: … permissions on the bucket", storage.delete, "f")


def test_a_conflict_that_a_store_tells_of_any_request_is_unavailable():
    body = s3.fault("OperationAborted", "A conflicting operation is in progress.")
    with answered(409, body) as storage:
        for act, *given in (
            (storage.read, "f"),
            (storage.read, "f", 1, 2),
            (storage.list, "d"),
            (storage.delete, "f"),
            (storage.replace, "f", b""),
        ):
            refused("OperationAborted", act, *given)
        refused("409 Conflict", storage.size, "f")
        refused("concurrent write", storage.put_if_absent, "f", b"")


def test_a_put_that_meets_itself_under_way_is_made_again(endpoint, given):
    create("conflict", given)
    body = s3.fault("ConditionalRequestConflict", "conflict")
    with s3.losing_replies(endpoint, "PUT", "", 409, body, is_made=False) as (address, lost):
        t = opened(options(address), URL + "conflict")
        t.upsert(trips(range(10), 1, 1.0))
        assert lost and t.scan().count() == 10 and t.check().ok


def test_credentials_that_expire_are_named_by_ranges_and_sizes_too():
    with answered(400, s3.fault("ExpiredToken", "The provided token has expired.")) as storage:
        said = "refused reading 'f': ExpiredToken … hint: … credentials"
        refused(said, storage.read, "f", 2, 3)
        refused("refused reading 'f' … hint: … may have expired", storage.size, "f")


AZURE = {"account_name": "me", "account_key": "c2VjcmV0"}


@pytest.mark.parametrize(
    ("scheme", "code", "given", "name"),
    [
        ("az", "ContainerNotFound", AZURE, "endpoint"),
        ("gs", "NoSuchBucket", {"bearer_token": s3.SECRET}, "base_url"),
    ],
)
def test_a_container_and_a_bucket_of_other_services_are_named_too(scheme, code, given, name):
    with s3.answering(404, s3.fault(code, "It does not exist.")) as address:
        more = {**given, name: address, "allow_http": True}
        refused(
            "no bucket 'box' … hint: create it", opened, more, f"{scheme}://box/t", kind=Invalid
        )


def test_a_put_for_which_the_store_finds_no_place_says_that_the_bucket_may_not_exist():
    with answered(404, "<html>not here</html>") as storage:
        for act in (storage.create, storage.replace, storage.put_if_absent):
            said = "destination for 'f' … hint: … bucket 'trips-bucket' may not exist"
            refused(said, act, "f", b"1")
        said = "there is no such object … hint: … mdt check"
        refused(said, storage.read, "f", kind=Missing)


def test_an_endpoint_at_which_nothing_listens_or_nothing_answers_is_named():
    nobody = s3.nobody()
    error = refused(f"{nobody} … connection refused … 'endpoint'", opened, options(nobody))
    assert error.retryable
    with s3.silent() as address:
        said = f"{address} … no answer in time … hint: … 'endpoint'"
        refused(said, opened, options(address, timeout="1s"))


def test_an_endpoint_without_encryption_needs_leave(endpoint, monkeypatch):
    given = options(endpoint)
    del given["AWS_ALLOW_HTTP"]
    said = "not encrypted … hint: … allow_http"
    refused(said, opened, given, kind=Invalid)
    monkeypatch.setenv("AWS_ENDPOINT_URL", str(given.pop("AWS_ENDPOINT_URL")))
    refused(said, opened, given, kind=Invalid)


def test_a_data_file_that_somebody_deleted_is_named_with_what_to_do(
    given,
):
    t = create("gone", given)
    t.upsert(trips(range(10), 1, 1.0))
    (path,) = [info.path for info in t.storage.list("city=Oslo") if ".parquet" in info.path]
    t.storage.delete(path)
    for one in (t, opened(given, URL + "gone")):
        refused(f"{path} … hint: … mdt check", one.scan().to_arrow, kind=Missing)
        assert one.scan("city = 'Rome'").count() == 5
        assert not one.check().ok


def test_a_version_is_replaced_once(given):
    storage = open_storage(f"{URL}versions", storage_options=given)
    assert storage.has_versions and storage.read_with_version("lock", 9) is None
    assert storage.put_if_absent("lock", b"1")
    data, version = storage.read_with_version("lock", 9)
    second = storage.replace_version("lock", b"2", version)
    assert data == b"1" and second not in (None, version)
    assert storage.replace_version("lock", b"3", version) is None
    assert storage.read_with_version("lock", 9) == (b"2", second)
    storage.delete("lock")
    assert storage.replace_version("lock", b"4", second) is None


def test_writers_that_share_hudis_lock_wait_for_each_other(given):
    t = mdt.create(
        f"{URL}locked",
        SCHEMA,
        ["id"],
        storage_options=given,
        options={"hoodie.write.lock.provider": HUDIS_LOCK},
    )

    def write(number):
        return t.anew().upsert(trips([number], number, 1.0)).seq

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(write, range(8))) == list(range(1, 9))
    lock = json.loads(open_storage(f"{URL}locked", storage_options=given).read(LOCK))
    assert lock["expired"] and len(lock["owner"]) == 32
    assert t.scan().count() == 8
