"""Tables on S3 (moto): the whole life of one, several writers, and what is said when something is
missing.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import obstore
import pyarrow as pa
import pytest
import s3
from obstore.store import S3Store

import mdt
from mdt import Corrupt, Invalid, MdtError, Missing, Unavailable
from mdt.stores.storage import Storage, open_storage

SCHEMA = pa.schema(
    [("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.float64())]
)
URL = f"s3://{s3.BUCKET}/"
SECONDS_MAX = 20
"""Longest wait for an error, with the retries that the tests allow."""


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials and settings of whoever runs the tests play no part."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3.mock_server() as address:
        yield address


def options(endpoint: str, **more: object) -> dict[str, object]:
    return {
        **s3.ENVIRONMENT,
        "AWS_ENDPOINT_URL": endpoint,
        "max_retries": 2,
        "retry_timeout": "5s",
        **more,
    }


@pytest.fixture
def given(endpoint: str) -> dict[str, object]:
    return options(endpoint)


def trips(ids: range, ts: int, fare: float) -> pa.Table:
    columns = [
        list(ids),
        [("Oslo", "Rome")[i % 2] for i in ids],
        [ts] * len(ids),
        [fare] * len(ids),
    ]
    return pa.table(columns, schema=SCHEMA)


def create(name: str, given: dict[str, object], **more: Any) -> mdt.Table:
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
def test_a_table_lives_on_s3(table_type: str, given: dict[str, object]) -> None:
    t = create(table_type, given, table_type=table_type, indexes=["bitmap(city)"])
    t.bulk_insert(trips(range(100), 1, 1.0))
    t.upsert(trips(range(50, 150), 2, 2.0))
    t.delete(trips(range(10), 0, 0.0))
    expected = {i: 2.0 if i >= 50 else 1.0 for i in range(10, 150)}
    again = mdt.open(URL + table_type, storage_options=given)
    for _ in range(2):
        rows = again.scan(columns=["id", "fare"]).to_arrow()
        assert dict(zip(rows["id"].to_pylist(), rows["fare"].to_pylist(), strict=True)) == expected
        assert again.scan("city = 'Oslo' and fare = 2").count() == 50
        assert again.check().ok
        again.compact()


def test_a_ready_store_and_the_environment_open_the_same_table(
    endpoint: str, given: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_two_writers_on_s3_both_commit_and_nothing_is_lost(given: dict[str, object]) -> None:
    create("two", given)

    def write(me: int) -> list[int]:
        t = mdt.open(URL + "two", storage_options=given)
        return [t.upsert(trips(range(10), 1, 10.0 * me + n)).seq for n in range(4)]

    with ThreadPoolExecutor(2) as pool:
        seqs = [seq for found in pool.map(write, range(2)) for seq in found]
    t = mdt.open(URL + "two", storage_options=given)
    assert sorted(seqs) == list(range(1, 9))
    rows = t.scan(columns=["id", "fare"]).to_arrow().sort_by("id").to_pydict()
    assert rows["id"] == list(range(10))
    assert set(rows["fare"]) in ({3.0}, {13.0}), (
        "the last upsert of one of them came last, as a whole"
    )
    assert t.check().ok


@pytest.mark.parametrize("part", ["city", "/pending/", "/log/", "/attachments/", ".hoodie/2"])
def test_a_put_whose_reply_is_lost_and_which_the_store_tries_again_is_no_error(
    endpoint: str, part: str
) -> None:
    name = "again" + part.strip("/.").replace("/", "-")
    with s3.losing_replies(endpoint, "PUT", part) as (address, lost):
        t = create(name, options(address))
        t.upsert(trips(range(10), 1, 1.0))
        assert lost
    t = mdt.open(URL + name, storage_options=options(endpoint))
    assert t.scan().count() == 10 and t.check().ok
    with pytest.raises(mdt.errors.Internal, match="exists already"):
        t.storage.create(".hoodie/hoodie.properties", b"another")


def refused(kind: type[MdtError], action: Callable[[], object], *texts: str, hint: str) -> MdtError:
    """Assert that ``action`` raises ``kind`` soon, with ``texts`` and ``hint``, and shows no secret
    anywhere.
    """
    started = time.monotonic()
    with pytest.raises(kind) as caught:
        action()
    assert time.monotonic() - started < SECONDS_MAX
    assert all(text in caught.value.message for text in texts), caught.value
    assert hint in caught.value.hint, caught.value
    whole = "".join(traceback.format_exception(caught.value))
    assert s3.SECRET not in whole and s3.KEY not in whole
    return caught.value


def test_a_missing_bucket_is_named(given: dict[str, object]) -> None:
    for action in (
        lambda: mdt.open("s3://no-such-bucket/t", storage_options=given),
        lambda: mdt.create("s3://no-such-bucket/t", SCHEMA, ["id"], storage_options=given),
    ):
        refused(Invalid, action, "no bucket 'no-such-bucket'", "http://127.0.0.1", hint="create it")


def test_an_empty_place_in_a_bucket_is_no_table(given: dict[str, object]) -> None:
    refused(
        Invalid,
        lambda: mdt.open(URL + "nowhere", storage_options=given),
        "not a table of mdt",
        hint="mdt.create",
    )


@pytest.mark.parametrize("metadata", [s3.nobody, None], ids=["nothing listens", "no answer"])
def test_missing_credentials_are_said(endpoint: str, metadata: Callable[[], str] | None) -> None:
    with s3.silent() as address:
        place = metadata() if metadata else address
        given = options(endpoint, metadata_endpoint=place, timeout="1s")
        del given["AWS_ACCESS_KEY_ID"], given["AWS_SECRET_ACCESS_KEY"]
        for action in (
            lambda: mdt.open(URL + "t", storage_options=given),
            lambda: create("t", given),
        ):
            refused(
                Unavailable,
                action,
                "no credentials",
                f"s3://{s3.BUCKET}/t",
                hint="AWS_ACCESS_KEY_ID",
            )


ANSWERS: dict[str, tuple[int, str, type[MdtError], str, str]] = {
    "a redirect": (
        301,
        s3.fault("PermanentRedirect", "use the endpoint"),
        Invalid,
        "another region",
        "region",
    ),
    "a wrong signature scope": (
        400,
        s3.fault(
            "AuthorizationHeaderMalformed", "the region 'us-east-1' is wrong; expecting 'eu-west-3'"
        ),
        Invalid,
        "another region than the one that was asked: eu-west-3",
        "'region': 'eu-west-3'",
    ),
    "an unknown key": (
        403,
        s3.fault("InvalidAccessKeyId", f"the key {s3.KEY} does not exist"),
        Unavailable,
        "InvalidAccessKeyId: the key *** does not exist",
        "check the credentials",
    ),
    "no rights": (
        403,
        s3.fault("AccessDenied", "Access Denied"),
        Unavailable,
        "AccessDenied",
        "rights on the bucket",
    ),
    "no rights to list, as Azure says it": (
        403,
        s3.fault("AuthorizationPermissionMismatch", "This request is not authorized"),
        Unavailable,
        "the store refused",
        "rights on the bucket",
    ),
    "a busy store": (
        503,
        s3.fault("SlowDown", "Please reduce your request rate."),
        Unavailable,
        "SlowDown",
        "",
    ),
}


@pytest.mark.parametrize(
    ("status", "body", "kind", "text", "hint"), ANSWERS.values(), ids=ANSWERS.keys()
)
def test_an_answer_of_s3_that_is(
    status: int, body: str, kind: type[MdtError], text: str, hint: str
) -> None:
    with s3.answering(status, body) as address:
        refused(
            kind, lambda: mdt.open(URL + "t", storage_options=options(address)), text, hint=hint
        )


def test_which_right_lacks_is_said_for_every_kind_of_request() -> None:
    acts: dict[str, tuple[str, Callable[[Storage], object]]] = {
        "reading 'f'": ("s3:GetObject", lambda s: s.read("f")),
        "writing 'f'": ("s3:PutObject", lambda s: s.replace("f", b"")),
        "deleting 'f'": ("s3:DeleteObject", lambda s: s.delete("f")),
        "listing 'd'": ("s3:ListBucket", lambda s: s.list_dir("d")),
        "listing '/'": ("s3:ListBucket", lambda s: s.list("")),
    }
    with s3.answering(403, s3.fault("AccessDenied", "Access Denied")) as address:
        storage = open_storage(URL + "t", storage_options=options(address))
        for text, (right, act) in acts.items():
            hint = f"rights on the bucket: {text.partition(' ')[0]} needs {right}"
            refused(
                Unavailable, lambda a=act: a(storage), f"refused {text}: AccessDenied", hint=hint
            )
        refused(
            Unavailable,
            lambda: storage.size("f"),
            "refused reading 'f'",
            hint="(who may not list it",
        )


def test_deletes_that_are_refused_one_by_one_in_an_answer_of_success_are_refusals() -> None:
    body = "<DeleteResult><Error><Key>t/f</Key><Code>AccessDenied</Code><Message>no</Message></Error></DeleteResult>"
    with s3.answering(200, body) as address:
        storage = open_storage(URL + "t", storage_options=options(address))
        refused(
            Unavailable,
            lambda: storage.delete("f"),
            "refused deleting 'f'",
            hint="rights on the bucket",
        )


def test_a_conflict_that_a_store_tells_of_any_request_is_unavailable() -> None:
    with s3.answering(
        409, s3.fault("OperationAborted", "A conflicting operation is in progress.")
    ) as address:
        storage = open_storage(URL + "t", storage_options=options(address))
        acts = (
            lambda: storage.read("f"),
            lambda: storage.read("f", 1, 2),
            lambda: storage.list("d"),
            lambda: storage.delete("f"),
            lambda: storage.replace("f", b""),
        )
        for act in acts:
            refused(Unavailable, act, "OperationAborted", hint="")
        refused(Unavailable, lambda: storage.size("f"), "409 Conflict", hint="")
        refused(
            Unavailable, lambda: storage.put_if_absent("f", b""), "another put under way", hint=""
        )


def test_a_put_that_meets_itself_under_way_is_made_again(
    endpoint: str, given: dict[str, object]
) -> None:
    create("conflict", given)
    with s3.losing_replies(
        endpoint, "PUT", "", 409, s3.fault("ConditionalRequestConflict", "conflict"), is_made=False
    ) as (address, lost):
        t = mdt.open(URL + "conflict", storage_options=options(address))
        t.upsert(trips(range(10), 1, 1.0))
        assert lost and t.scan().count() == 10 and t.check().ok


def test_credentials_that_expire_are_named_by_ranges_and_sizes_too() -> None:
    with s3.answering(400, s3.fault("ExpiredToken", "The provided token has expired.")) as address:
        storage = open_storage(URL + "t", storage_options=options(address))
        refused(
            Unavailable,
            lambda: storage.read("f", 2, 3),
            "refused reading 'f': ExpiredToken",
            hint="credentials",
        )
        refused(
            Unavailable, lambda: storage.size("f"), "refused reading 'f'", hint="may have expired"
        )


def test_a_container_and_a_bucket_of_other_services_are_named_too() -> None:
    body = s3.fault("ContainerNotFound", "The specified container does not exist.")
    with s3.answering(404, body) as address:
        azure = {
            "account_name": "me",
            "account_key": "c2VjcmV0",
            "endpoint": address,
            "allow_http": True,
        }
        refused(
            Invalid,
            lambda: mdt.open("az://box/t", storage_options=azure),
            "no bucket 'box'",
            hint="create it",
        )
    with s3.answering(
        404, s3.fault("NoSuchBucket", "The specified bucket does not exist.")
    ) as address:
        google = {"bearer_token": s3.SECRET, "base_url": address, "allow_http": True}
        refused(
            Invalid,
            lambda: mdt.open("gs://box/t", storage_options=google),
            "no bucket 'box'",
            hint="create it",
        )


def test_a_put_for_which_the_store_finds_no_place_says_that_the_bucket_may_not_exist() -> None:
    with s3.answering(404, "<html>not here</html>") as address:
        storage = open_storage(URL + "t", storage_options=options(address))
        for act in (storage.create, storage.replace, storage.put_if_absent):
            refused(
                Unavailable,
                lambda act=act: act("f", b"1"),
                "write 'f'",
                hint="bucket 'trips-bucket' may not exist",
            )  # type: ignore[misc]
        refused(Missing, lambda: storage.read("f"), "there is no such object", hint="mdt check")


def test_an_endpoint_at_which_nothing_listens_or_nothing_answers_is_named() -> None:
    nobody = s3.nobody()
    error = refused(
        Unavailable,
        lambda: mdt.open(URL + "t", storage_options=options(nobody)),
        nobody,
        "connection refused",
        hint="'endpoint'",
    )
    assert error.retryable
    with s3.silent() as address:
        given = options(address, timeout="1s")
        refused(
            Unavailable,
            lambda: mdt.open(URL + "t", storage_options=given),
            address,
            "no answer in time",
            hint="'endpoint'",
        )


def test_an_endpoint_without_encryption_needs_leave(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options(endpoint)
    del given["AWS_ALLOW_HTTP"]
    refused(
        Invalid,
        lambda: mdt.open(URL + "t", storage_options=given),
        "no encryption",
        hint="allow_http",
    )
    monkeypatch.setenv("AWS_ENDPOINT_URL", str(given.pop("AWS_ENDPOINT_URL")))
    refused(
        Invalid,
        lambda: mdt.open(URL + "t", storage_options=given),
        "no encryption",
        hint="allow_http",
    )


def test_a_data_file_that_somebody_deleted_is_named_with_what_to_do(
    given: dict[str, object],
) -> None:
    t = create("gone", given)
    t.upsert(trips(range(10), 1, 1.0))
    name = (
        t.files().filter(pa.compute.equal(t.files()["partition"], "city=Oslo"))["name"][0].as_py()
    )
    obstore.delete(t.storage._store, f"city=Oslo/{name}")
    for opened in (t, mdt.open(URL + "gone", storage_options=given)):
        error = refused(
            Missing, lambda o=opened: o.scan().to_arrow(), f"city=Oslo/{name}", hint="mdt check"
        )
        assert isinstance(error, Corrupt)
        assert opened.scan("city = 'Rome'").count() == 5
        assert not opened.check().ok
