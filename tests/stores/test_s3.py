"""Tables on S3 (moto): writes, reads and services, several writers, and the errors if something is
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
    """Hide the credentials and settings of the user who runs the tests."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def endpoint():
    with s3.mock_server() as address:
        yield address


def options(endpoint, **overrides):
    return {
        **s3.ENVIRONMENT,
        "AWS_ENDPOINT_URL": endpoint,
        "max_retries": 2,
        "retry_timeout": "5s",
        **overrides,
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


def create(name, given, **settings):
    return mdt.create(
        URL + name,
        SCHEMA,
        ["id"],
        partition_by=["city"],
        ordering="ts",
        storage_options=given,
        **settings,
    )


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_writes_reads_and_services_work_on_s3(table_type, given):
    t = create(table_type, given, table_type=table_type, indexes=["bitmap(city)"])
    t.bulk_insert(trips(range(100), 1, 1.0))
    t.upsert(trips(range(50, 150), 2, 2.0))
    t.delete(trips(range(10), 0, 0.0))
    expected = {i: 2.0 if i >= 50 else 1.0 for i in range(10, 150)}
    reopened = open_table(given, URL + table_type)
    for _ in range(2):
        rows = reopened.scan(columns=["id", "fare"]).to_arrow()
        assert dict(zip(rows["id"].to_pylist(), rows["fare"].to_pylist(), strict=True)) == expected
        assert reopened.scan("city = 'Oslo' and fare = 2").count() == 50
        assert reopened.check().ok
        reopened.compact()


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

    def write(writer):
        t = open_table(given, URL + "two")
        return [t.upsert(trips(range(10), 1, 10.0 * writer + n)).seq for n in range(4)]

    with ThreadPoolExecutor(2) as pool:
        seqs = [seq for written in pool.map(write, range(2)) for seq in written]
    t = open_table(given, URL + "two")
    assert sorted(seqs) == list(range(1, 9))
    rows = t.scan(columns=["id", "fare"]).to_arrow().sort_by("id").to_pydict()
    assert rows["id"] == list(range(10))
    assert set(rows["fare"]) in ({3.0}, {13.0}), (
        "all rows are of the last upsert of one of the writers"
    )
    assert t.check().ok


def test_writers_with_different_url_schemes_write_the_same_table(given):
    create("schemes", given, formats=["hudi", "iceberg"])
    for ts, scheme in enumerate(("s3a", "s3", "s3a")):
        t = open_table(given, f"{scheme}://{s3.BUCKET}/schemes")
        assert t.upsert(trips(range(ts + 1), ts, 1.0)).warnings == ()
        assert t.check().ok
    metadata = json.loads(t.storage.read("metadata/v3.metadata.json"))
    assert metadata["location"] == f"s3://{s3.BUCKET}/schemes"


@pytest.mark.parametrize("part", ["city", "/pending/", "/log/", "/attachments/", ".hoodie/2"])
def test_a_put_that_the_client_repeats_after_a_lost_reply_is_not_an_error(endpoint, part):
    name = "again" + part.strip("/.").replace("/", "-")
    with s3.losing_replies(endpoint, "PUT", part) as (address, lost):
        t = create(name, options(address))
        t.upsert(trips(range(10), 1, 1.0))
        assert lost
    t = open_table(options(endpoint), URL + name)
    assert t.scan().count() == 10 and t.check().ok
    path = ".hoodie/hoodie.properties"
    refused("already exists", t.storage.create, path, b"another", kind=mdt.errors.Internal)


def refused(message, act, *arguments, **keywords):
    """Assert that a call raises soon, Unavailable unless ``kind`` is given, and shows no secret
    anywhere.
    """
    started = time.monotonic()
    error = refused_with(message, act, *arguments, **{"kind": Unavailable, **keywords})
    assert time.monotonic() - started < SECONDS_MAX
    report = "".join(traceback.format_exception(error))
    assert s3.SECRET not in report and s3.KEY not in report
    return error


def open_table(given, url=URL + "t"):
    return mdt.open(url, storage_options=given)


def test_a_missing_bucket_is_named_in_the_error(given):
    message, url = (
        "no bucket 'no-such-bucket' … http://127.0.0.1 … hint: create it",
        "s3://no-such-bucket/t",
    )
    refused(message, open_table, given, url, kind=Invalid)
    refused(message, mdt.create, url, SCHEMA, ["id"], storage_options=given, kind=Invalid)


def test_an_empty_prefix_in_a_bucket_is_not_a_table(given):
    message = "not an mdt table … hint: … mdt.create"
    refused(message, open_table, given, URL + "nowhere", kind=Invalid)


@pytest.mark.parametrize(
    "metadata", [s3.closed_endpoint, None], ids=["nothing listens", "no answer"]
)
def test_missing_credentials_are_named_in_the_error(endpoint, metadata):
    with s3.silent() as address:
        metadata_url = metadata() if metadata else address
        given = options(endpoint, metadata_endpoint=metadata_url, timeout="1s")
        del given["AWS_ACCESS_KEY_ID"], given["AWS_SECRET_ACCESS_KEY"]
        message = f"no credentials … s3://{s3.BUCKET}/t … hint: … AWS_ACCESS_KEY_ID"
        refused(message, open_table, given)
        refused(message, create, "t", given)


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
def test_error_responses_raise_errors_with_hints(status, body, kind, said):
    with s3.answering(status, body) as address:
        refused(said, open_table, options(address), kind=kind)


@contextmanager
def storage_with_response(status, body):
    """Yield a storage whose requests all get the same response."""
    with s3.answering(status, body) as address:
        yield open_storage(URL + "t", storage_options=options(address))


def test_the_missing_permission_is_named_for_every_kind_of_request():
    with storage_with_response(403, DENIED) as storage:
        for text, permission, act, *arguments in (
            ("reading 'f'", "s3:GetObject", storage.read, "f"),
            ("writing 'f'", "s3:PutObject", storage.replace, "f", b""),
            ("deleting 'f'", "s3:DeleteObject", storage.delete, "f"),
            ("listing 'd'", "s3:ListBucket", storage.list_dir, "d"),
            ("listing '/'", "s3:ListBucket", storage.list, ""),
        ):
            hint = f"permissions on the bucket: {text.partition(' ')[0]} needs {permission}"
            message = f"refused {text}: AccessDenied … hint: … {hint}"
            assert not refused(message, act, *arguments, kind=Unavailable).retryable
        refused("refused reading 'f' … hint: … (without the permission to list", storage.size, "f")


def test_a_delete_that_is_refused_within_a_successful_response_raises():
    body = "<DeleteResult><Error><Key>t/f</Key><Code>AccessDenied</Code><Message>no</Message></Error></DeleteResult>"
    with storage_with_response(200, body) as storage:
        refused("refused deleting 'f' … hint: … permissions on the bucket", storage.delete, "f")


def test_a_conflict_response_to_any_request_raises_unavailable():
    body = s3.fault("OperationAborted", "A conflicting operation is in progress.")
    with storage_with_response(409, body) as storage:
        for act, *arguments in (
            (storage.read, "f"),
            (storage.read, "f", 1, 2),
            (storage.list, "d"),
            (storage.delete, "f"),
            (storage.replace, "f", b""),
        ):
            refused("OperationAborted", act, *arguments)
        refused("409 Conflict", storage.size, "f")
        refused("concurrent write", storage.put_if_absent, "f", b"")


def test_a_put_with_a_conditional_request_conflict_is_repeated(endpoint, given):
    create("conflict", given)
    body = s3.fault("ConditionalRequestConflict", "conflict")
    with s3.losing_replies(endpoint, "PUT", "", 409, body, is_made=False) as (address, lost):
        t = open_table(options(address), URL + "conflict")
        t.upsert(trips(range(10), 1, 1.0))
        assert lost and t.scan().count() == 10 and t.check().ok


def test_expired_credentials_are_named_by_errors_of_range_reads_and_sizes_too():
    with storage_with_response(
        400, s3.fault("ExpiredToken", "The provided token has expired.")
    ) as storage:
        message = "refused reading 'f': ExpiredToken … hint: … credentials"
        refused(message, storage.read, "f", 2, 3)
        refused("refused reading 'f' … hint: … may have expired", storage.size, "f")


AZURE = {"account_name": "me", "account_key": "c2VjcmV0"}


@pytest.mark.parametrize(
    ("scheme", "code", "given", "name"),
    [
        ("az", "ContainerNotFound", AZURE, "endpoint"),
        ("gs", "NoSuchBucket", {"bearer_token": s3.SECRET}, "base_url"),
    ],
)
def test_a_missing_container_or_bucket_of_other_services_is_named_too(scheme, code, given, name):
    with s3.answering(404, s3.fault(code, "It does not exist.")) as address:
        settings = {**given, name: address, "allow_http": True}
        refused(
            "no bucket 'box' … hint: create it",
            open_table,
            settings,
            f"{scheme}://box/t",
            kind=Invalid,
        )


def test_a_put_with_a_404_response_hints_that_the_bucket_may_not_exist():
    with storage_with_response(404, "<html>not here</html>") as storage:
        for act in (storage.create, storage.replace, storage.put_if_absent):
            message = "destination for 'f' … hint: … bucket 'trips-bucket' may not exist"
            refused(message, act, "f", b"1")
        message = "there is no such object … hint: … mdt check"
        refused(message, storage.read, "f", kind=Missing)


def test_an_endpoint_that_refuses_connections_or_does_not_answer_is_named():
    closed_endpoint = s3.closed_endpoint()
    error = refused(
        f"{closed_endpoint} … connection refused … 'endpoint'", open_table, options(closed_endpoint)
    )
    assert error.retryable
    with s3.silent() as address:
        message = f"{address} … no answer in time … hint: … 'endpoint'"
        refused(message, open_table, options(address, timeout="1s"))


def test_an_unencrypted_endpoint_requires_allow_http(endpoint, monkeypatch):
    given = options(endpoint)
    del given["AWS_ALLOW_HTTP"]
    message = "not encrypted … hint: … allow_http"
    refused(message, open_table, given, kind=Invalid)
    monkeypatch.setenv("AWS_ENDPOINT_URL", str(given.pop("AWS_ENDPOINT_URL")))
    refused(message, open_table, given, kind=Invalid)


def test_a_deleted_data_file_is_named_with_a_hint(
    given,
):
    t = create("gone", given)
    t.upsert(trips(range(10), 1, 1.0))
    (path,) = [info.path for info in t.storage.list("city=Oslo") if ".parquet" in info.path]
    t.storage.delete(path)
    for handle in (t, open_table(given, URL + "gone")):
        refused(f"{path} … hint: … mdt check", handle.scan().to_arrow, kind=Missing)
        assert handle.scan("city = 'Rome'").count() == 5
        assert not handle.check().ok


def test_a_version_of_an_object_can_be_replaced_only_once(given):
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
