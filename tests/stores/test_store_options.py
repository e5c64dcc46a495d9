"""``storage_options``: accepted spellings of names, secrets that are never shown, and ready-made
stores.
"""

import pickle
import traceback
from datetime import timedelta
from urllib.parse import unquote

import pytest
from obstore.store import AzureStore, GCSStore, HTTPStore, LocalStore, MemoryStore, S3Store
from refusals import refused
from texts import columns

import mdt
from mdt.errors import Unsupported
from mdt.stores.options import AZURE, GCS, S3, SERVICES, parse_store_options
from mdt.stores.storage import LocalStorage, ObjectStorage, open_storage
from mdt.stores.store_errors import Place

SECRET = "wJalrXUtnFEMIsecret"

VALUES = {
    "access_key_id": "AKID",
    "secret_access_key": SECRET,
    "region": "eu-west-1",
    "endpoint_url": "http://localhost:9000",
    "allow_http": "true",
}
S3_SPELLINGS = {
    "deltalake": {f"AWS_{name}".upper(): value for name, value in VALUES.items()},
    "polars": {f"aws_{name}": value for name, value in VALUES.items()},
    "object_store": {**VALUES, "allow_http": True},
}


@pytest.mark.parametrize("given", S3_SPELLINGS.values(), ids=S3_SPELLINGS.keys())
def test_options_of_s3_are_accepted_in_the_spellings_of_other_libraries(given):
    parsed = parse_store_options("s3", given)
    expected = {**VALUES, "endpoint": VALUES["endpoint_url"]}
    del expected["endpoint_url"], expected["allow_http"]
    assert parsed.config == expected
    assert parsed.client["allow_http"] is True
    storage = open_storage("s3://bucket/table", storage_options=given)
    assert isinstance(storage, ObjectStorage)
    assert storage._store.config == {**parsed.config, "bucket": "bucket"}
    assert storage._store.client_options["allow_http"] == "true"


@pytest.mark.parametrize(
    ("url", "given", "config"),
    [
        ("gs://b/t", {"GOOGLE_BEARER_TOKEN": SECRET}, {"bearer_token": SECRET, "bucket": "b"}),
        ("gs://b/t", {"google_skip_signature": True}, {"skip_signature": "true", "bucket": "b"}),
        (
            "az://c/t",
            {"AZURE_STORAGE_ACCOUNT_NAME": "me", "azure_storage_access_key": "c2VjcmV0"},
            {"account_name": "me", "account_key": "c2VjcmV0", "container_name": "c"},
        ),
        (
            "abfss://c@me.dfs.core.windows.net/t",
            {"tenant_id": "t", "client_id": "i", "azure_client_secret": SECRET},
            {
                "account_name": "me",
                "tenant_id": "t",
                "client_id": "i",
                "client_secret": SECRET,
                "container_name": "c",
            },
        ),
    ],
)
def test_options_of_gcs_and_azure_are_passed_to_their_stores(url, given, config):
    storage = open_storage(url, storage_options=given)
    assert isinstance(storage, ObjectStorage)
    assert storage._store.config == config


def test_obstore_knows_every_option_name_that_mdt_accepts():
    for store, service, required in (
        (S3Store, S3, {}),
        (GCSStore, GCS, {}),
        (AzureStore, AZURE, {"account_name": "me"}),
    ):
        for name in set(service.names.values()):
            try:
                store("bucket", config={**required, name: "true"})  # type: ignore[arg-type, call-arg]
            except Exception as error:  # noqa: BLE001 - the value may be refused, the name may not
                assert "UnknownConfigurationKey" not in type(error).__name__, name


def test_durations_and_retries_are_parsed_and_have_limited_defaults():
    parsed = parse_store_options(
        "s3", {"timeout": "90s", "connect_timeout": 1.5, "max_retries": 2, "retry_timeout": "2m"}
    )
    assert parsed.client == {
        "timeout": timedelta(seconds=90),
        "connect_timeout": timedelta(seconds=1.5),
    }
    assert parsed.retry == {"max_retries": 2, "retry_timeout": timedelta(minutes=2)}
    defaults = parse_store_options("s3", None)
    assert defaults.retry["retry_timeout"] <= timedelta(minutes=1) and defaults.client[
        "timeout"
    ] <= timedelta(minutes=5)


def test_http_options_are_read_from_the_environment_too():
    environment = {
        "AWS_ALLOW_HTTP": "true",
        "AWS_TIMEOUT": "5s",
        "GOOGLE_TIMEOUT": "6s",
        "AWS_REGION": "obstore reads it",
    }
    parsed = parse_store_options("s3", {"endpoint": "http://x", "timeout": "7s"}, environment)
    assert parsed.client == {"allow_http": True, "timeout": timedelta(seconds=7)}
    assert parsed.public == {"endpoint": "http://x", "timeout": "7s"}
    assert parse_store_options("s3", {}, environment).client["timeout"] == timedelta(seconds=5)
    maybe = {"AWS_ALLOW_HTTP": "maybe"}
    refused("AWS_ALLOW_HTTP must be", parse_store_options, "s3", {}, maybe)


WRONG = {
    "an unknown name": (
        "s3",
        {"AWS_ACESS_KEY_ID": SECRET},
        "'AWS_ACESS_KEY_ID' for S3 … hint: … AWS_ACCESS_KEY_ID",
    ),
    "an unknown name in lower case": (
        "gs",
        {"google_servce_account": SECRET},
        "Google … hint: … google_service_account",
    ),
    "an option of another service": ("az", {"aws_region": "x"}, "'aws_region' for Azure"),
    "a name that is no text": ("s3", {5: "x"}, "'5' … hint: … S3 take"),
    "no mapping": ("s3", [("region", "x")], "takes a dict, not a list … storage_options={"),
    "a value of no use": ("s3", {"region": None}, "region is of type NoneType … hint: … text"),
    "bytes": ("s3", {"secret_access_key": SECRET.encode()}, "of type bytes … hint: … text"),
    "two values": ("s3", {"AWS_REGION": "a", "region": "b"}, "region is given twice"),
    "a bucket": ("s3", {"aws_bucket": "b"}, "the URL specifies"),
    "no bool": ("s3", {"allow_http": SECRET}, "allow_http must be true or false … 'true'"),
    "no duration": ("s3", {"timeout": SECRET}, "timeout must be a duration … hint: … 30s"),
    "no number": ("s3", {"max_retries": SECRET}, "max_retries must be a number … hint: … 3"),
    "no encryption": ("s3", {"endpoint": "http://x"}, "not encrypted … hint: … allow_http"),
    "an unknown name for a local path": ("", {"regoin": "x"}, "'regoin' … hint: … region"),
}


@pytest.mark.parametrize(("scheme", "given", "said"), WRONG.values(), ids=WRONG.keys())
def test_wrong_options_are_refused_without_showing_secrets(scheme, given, said):
    assert SECRET not in str(refused(said, parse_store_options, scheme, given))


def test_options_have_no_effect_on_a_local_path_but_are_checked(tmp_path):
    given = {"aws_region": "eu-west-1", "google_bearer_token": "x"}
    assert isinstance(open_storage(tmp_path, storage_options=given), LocalStorage)
    refused("'regio'", mdt.open, tmp_path, storage_options={"regio": "x"})


@pytest.mark.parametrize(
    ("url", "given", "text"),
    [
        ("s3://b/t", {"access_key_id": SECRET}, "incomplete"),
        ("s3://b/t", {"conditional_put": SECRET}, "cannot be created"),
        (
            "gs://b/t",
            {"service_account_key": f'{{"private_key": "{SECRET}"}}'},
            "cannot be created",
        ),
        ("az://b/t", {"account_name": "x", "sas_token": SECRET}, "cannot be created"),
        ("az://b/t", {}, "Account must be specified"),
    ],
)
def test_options_that_the_store_refuses_are_invalid_and_show_no_secret(url, given, text):
    error = refused(f"{text} … hint: ", open_storage, url, storage_options=given)
    assert SECRET not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    "url",
    [
        f"s3://me:{SECRET}@bucket/t",
        f"s3://{SECRET}@bucket/t",
        f"s3://bucket/t?X-Amz-Signature={SECRET}",
        f"s3a://bucket/t#{SECRET}",
        f"gs://bucket/t?{SECRET}",
        f"az://box/t?sv=1&sig={SECRET}",
        f"abfss://me:{SECRET}@account.dfs.core.windows.net/t",
        f"https://account.blob.core.windows.net/box/t?sig={SECRET}",
        f"https://me:{SECRET}@host/t",
    ],
)
def test_urls_with_users_passwords_and_queries_are_refused_and_not_shown(url):
    makers = [
        open_storage,
        mdt.open,
        lambda url: mdt.create(url, columns("id string"), ["id"]),
    ]
    for make in [*makers, *([] if url.startswith("https") else [ObjectStorage])]:
        error = refused("the URL of the table contains … hint: ", make, url)
        report = "".join(traceback.format_exception(error))
        assert SECRET not in report.replace(repr(url), "")
        assert SECRET not in str(error)


def test_the_container_in_an_azure_url_is_not_mistaken_for_a_user():
    given = {"account_key": "a2V5"}
    storage = open_storage("abfss://box@account.dfs.core.windows.net/t", storage_options=given)
    assert storage.url == "abfss://box@account.dfs.core.windows.net/t"


@pytest.mark.parametrize(
    "address",
    [f"https://me:{SECRET}@host", f"https://host?token={SECRET}", f"https://host/#{SECRET}"],
)
def test_secrets_in_an_endpoint_are_refused_and_not_shown(address):
    message = "endpoint contains a user, a password or a query"
    given = {"endpoint": address}
    assert SECRET not in str(refused(message, open_storage, "s3://b/t", storage_options=given))
    storage = ObjectStorage("s3://b/t", S3Store("b", endpoint=address, region="r"))
    assert SECRET.encode() not in pickle.dumps(storage) and storage.public_options == {
        "region": "r"
    }


def test_secrets_are_recognized_by_their_values_and_removed_from_texts(
    monkeypatch,
):
    given = {"secret_access_key": SECRET, "access_key_id": "AKIDAKID", "user_agent": SECRET}
    assert parse_store_options("s3", given).public == {}
    parsed = parse_store_options("s3", {}, {"AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "eu"})
    assert parsed.secrets == (SECRET,)
    place = Place("s3://b/t", parsed.secrets)
    text = f"Error performing GET http://me:pw@host/b/t?X-Amz-Signature=abc with {SECRET}"
    shown = "Error performing GET http://***@host/b/t?X-Amz-Signature=*** with ***"
    assert place.without_secrets(text) == shown


def test_neither_repr_nor_pickle_shows_a_secret():
    given = {
        "access_key_id": "AKIDAKID",
        "secret_access_key": SECRET,
        "region": "eu-west-1",
        "timeout": "5s",
        "proxy_url": SECRET,
    }
    options = parse_store_options("s3", given)
    assert options.public == {"region": "eu-west-1", "timeout": "5s"}
    assert set(options.secrets) == {"AKIDAKID", SECRET}
    storage = ObjectStorage("s3://b/t", None, given)
    data = pickle.dumps(storage)
    for text in (repr(options), repr(storage), repr(data), str(vars(storage)["_place"])):
        assert SECRET not in text and "AKIDAKID" not in text
    unpickled = pickle.loads(data)
    assert (unpickled.url, unpickled._store.config) == (
        "s3://b/t",
        {"bucket": "b", "region": "eu-west-1"},
    )
    refused("cannot be pickled", pickle.dumps, ObjectStorage("memory:///"), kind=Unsupported)


def test_a_ready_made_store_is_accepted_in_place_of_a_path(tmp_path):
    s3_store = S3Store(
        "b", prefix="x/t", access_key_id="AKIDAKID", secret_access_key=SECRET, region="eu-west-1"
    )
    storage = open_storage(s3_store)
    assert isinstance(storage, ObjectStorage)
    assert (storage.url, storage.public_options) == ("s3://b/x/t", {"region": "eu-west-1"})
    assert storage._store is s3_store
    assert SECRET not in repr(pickle.dumps(storage))
    assert open_storage(GCSStore("b", skip_signature=True)).url == "gs://b"
    assert open_storage(AzureStore("c", account_name="me", prefix="t")).url == "az://c/t"
    assert isinstance(open_storage(LocalStore(tmp_path)), LocalStorage)
    store = MemoryStore()
    mdt.create(store, columns("id string"), ["id"])
    assert mdt.open(store).scan().count() == 0
    http = HTTPStore.from_url("https://example.org/t")
    refused("HTTPStore", open_storage, http, kind=Unsupported)
    refused("ready store", open_storage, s3_store, storage_options={"region": "x"})


@pytest.mark.parametrize(
    ("urls", "given", "location", "hadoops"),
    [
        (["s3://b/a%20b", "s3a://b/a%20b"], {}, "s3://b/a b", "s3a://b/a b"),
        (["gs://b/t"], {}, "gs://b/t", "gs://b/t"),
        (
            ["az://c/a%20b", "azure://c/a%20b", "abfss://c@me.dfs.core.windows.net/a%20b"],
            {"account_name": "me", "account_key": "bm90"},
            "abfss://c@me.dfs.core.windows.net/a b",
            "abfss://c@me.dfs.core.windows.net/a b",
        ),
        (
            ["abfss://c@me.dfs.fabric.microsoft.com/t"],
            {"bearer_token": "x"},
            "abfss://c@me.dfs.fabric.microsoft.com/t",
            "abfss://c@me.dfs.fabric.microsoft.com/t",
        ),
        (["az://c/t", "abfs://c/t"], {"use_emulator": True}, "az://c/t", "az://c/t"),
        (["memory:///"], {}, "memory:", "memory:"),
    ],
)
def test_urls_with_different_schemes_of_a_service_have_the_same_location(
    urls, given, location, hadoops
):
    for url in urls:
        storage = open_storage(url, storage_options=given)
        assert (storage.location, storage.uri("")) == (location, hadoops)
        assert storage.is_at(location)
        assert storage.is_at(unquote(storage.url)), "as earlier versions of mdt named it"
        assert not storage.is_at(location + "x")


@pytest.mark.parametrize(
    ("environment", "given", "root"),
    [
        ({"ACCOUNT_NAME": "me"}, {}, "abfss://c@me.dfs.core.windows.net"),
        ({"ACCOUNT_NAME": "you"}, {"account_name": "me"}, "abfss://c@me.dfs.core.windows.net"),
        ({"ENDPOINT": "https://proxy.example"}, {"account_name": "me"}, "az://c"),
        ({"USE_EMULATOR": "1"}, {"account_name": "me"}, "az://c"),
        (
            {"USE_EMULATOR": "1"},
            {"account_name": "me", "use_emulator": "false"},
            "abfss://c@me.dfs.core.windows.net",
        ),
    ],
)
def test_the_environment_can_give_the_account_of_a_location_on_azure(
    environment, given, root, monkeypatch
):
    for name, value in environment.items():
        monkeypatch.setenv(f"AZURE_STORAGE_{name}", value)
    storage = open_storage("az://c/t", storage_options={"account_key": "bm90", **given})
    assert storage.location == f"{root}/t"
    assert storage.is_at(f"{root}/t")


@pytest.mark.parametrize("scheme", sorted(SERVICES))
def test_every_scheme_has_a_hint_for_credentials(scheme):
    assert "storage_options" in SERVICES[scheme].credentials
