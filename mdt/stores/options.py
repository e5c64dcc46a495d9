"""``storage_options``: settings of an object store, under the names that object_store, deltalake
and polars use.

Names are case-insensitive and may have the prefix of their service (``AWS_REGION``, ``aws_region``,
``region``). Values may be secrets. No message of this module shows a secret, and pickles omit them:
the process that unpickles a storage takes secrets from its own environment.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NoReturn

from mdt.arguments import mapping
from mdt.errors import Invalid
from mdt.limits import STORE_RETRIES_MAX, STORE_RETRY_SECONDS, STORE_TIMEOUT_SECONDS


@dataclass(frozen=True, slots=True)
class Service:
    """A storage service.

    Attributes:
        prefixes: Optional prefixes of option names.
        names: Option name -> obstore's name.
        public: Options whose values are not secret.
        credentials: Hint for missing credentials.
        rights: Permission needed for reading, listing, writing and deleting.
    """

    name: str
    prefixes: tuple[str, ...]
    names: Mapping[str, str]
    public: frozenset[str]
    credentials: str
    rights: Mapping[str, str]


def _names(names: str, **synonyms: str) -> dict[str, str]:
    return {**{name: name for name in names.split()}, **synonyms}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_AZURE_READS, _AZURE_WRITES = (
    "the role Storage Blob Data Reader",
    "the role Storage Blob Data Contributor",
)
S3 = Service(
    "S3",
    ("aws_",),
    _names(
        "access_key_id secret_access_key session_token region default_region endpoint"
        " virtual_hosted_style_request skip_signature unsigned_payload request_payer"
        " conditional_put copy_if_not_exists checksum_algorithm disable_tagging imdsv1_fallback"
        " metadata_endpoint container_credentials_relative_uri container_credentials_full_uri"
        " container_authorization_token_file web_identity_token_file role_arn role_session_name"
        " endpoint_url_sts server_side_encryption sse_kms_key_id sse_bucket_key_enabled"
        " sse_customer_key_base64 s3_express",
        token="session_token",
        endpoint_url="endpoint",
        endpoint_url_s3="endpoint",
        sts_endpoint="endpoint_url_sts",
        requester_pays="request_payer",
    ),
    _words(
        "region default_region endpoint virtual_hosted_style_request skip_signature"
        " unsigned_payload request_payer conditional_put checksum_algorithm disable_tagging"
        " metadata_endpoint endpoint_url_sts s3_express"
    ),
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, or give"
    " storage_options={'access_key_id': …, 'secret_access_key': …}; a public bucket needs"
    " 'skip_signature': 'true'; profiles in ~/.aws are not read",
    {
        "reading": "s3:GetObject",
        "listing": "s3:ListBucket",
        "writing": "s3:PutObject",
        "deleting": "s3:DeleteObject",
    },
)
GCS = Service(
    "Google Cloud Storage",
    ("google_", "gcs_", "gcp_"),
    _names(
        "service_account service_account_key application_credentials bearer_token base_url"
        " skip_signature",
        service_account_path="service_account",
    ),
    _words("base_url skip_signature"),
    "set GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT in the environment, or give"
    " storage_options={'service_account': path of its JSON file}; a public bucket needs"
    " 'skip_signature': 'true'",
    {
        "reading": "storage.objects.get",
        "listing": "storage.objects.list",
        "writing": "storage.objects.create",
        "deleting": "storage.objects.delete",
    },
)
AZURE = Service(
    "Azure",
    ("azure_storage_", "azure_"),
    _names(
        "account_name account_key client_id client_secret tenant_id authority_host sas_key token"
        " use_emulator use_fabric_endpoint endpoint msi_endpoint object_id msi_resource_id"
        " federated_token_file use_azure_cli skip_signature disable_tagging credential_type"
        " encryption_key fabric_token_service_url fabric_workload_host fabric_session_token"
        " fabric_cluster_identifier",
        access_key="account_key",
        master_key="account_key",
        sas_token="sas_key",
        authority_id="tenant_id",
        bearer_token="token",
    ),
    _words(
        "account_name authority_host use_emulator use_fabric_endpoint endpoint msi_endpoint"
        " use_azure_cli skip_signature disable_tagging"
    ),
    "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY in the environment, or give"
    " storage_options={'account_name': …, 'account_key': …} (or 'sas_token', or 'client_id',"
    " 'client_secret', 'tenant_id')",
    {
        "reading": _AZURE_READS,
        "listing": _AZURE_READS,
        "writing": _AZURE_WRITES,
        "deleting": _AZURE_WRITES,
    },
)
SERVICES: Mapping[str, Service] = {
    "s3": S3,
    "s3a": S3,
    "gs": GCS,
    "az": AZURE,
    "azure": AZURE,
    "abfs": AZURE,
    "abfss": AZURE,
    "adl": AZURE,
}
"""URL scheme -> service."""

_CLIENT = {
    "allow_http": bool,
    "allow_invalid_certificates": bool,
    "http1_only": bool,
    "http2_only": bool,
    "connect_timeout": timedelta,
    "timeout": timedelta,
    "read_timeout": timedelta,
    "pool_idle_timeout": timedelta,
    "pool_max_idle_per_host": int,
    "proxy_url": str,
    "proxy_ca_certificate": str,
    "proxy_excludes": str,
    "root_certificate": str,
    "user_agent": str,
}
"""Options of the HTTP client, common to all services."""
_RETRY = {"max_retries": int, "retry_timeout": timedelta}
"""Options of retries, common to all services."""
_NOT_SECRET = frozenset({*_CLIENT, *_RETRY} - {"proxy_url"})
_ADDRESS = {"bucket", "bucket_name", "container", "container_name"}


_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/+([^/?#]*)")
_WITH_CONTAINER = ("abfs", "abfss")
"""Schemes with the container before an @: ``abfss://container@account.dfs.core.windows.net``."""


def refuse_secrets(scheme: str, url: str) -> None:
    """Raise Invalid if the URL of a table has a user, a password, a query or a fragment.

    These may contain secrets, so the message does not show them.

    >>> refuse_secrets("s3", "s3://bucket/trips")
    >>> refuse_secrets("s3", "s3://key:secret@bucket/trips")
    Traceback (most recent call last):
        ...
    mdt.errors.Invalid: the URL of the table contains a user or password...
    """
    match = _AUTHORITY.match(url)
    user, at, _ = (match[1] if match is not None else "").rpartition("@")
    secret_part = ""
    if ":" in user or (at and scheme not in _WITH_CONTAINER):
        secret_part = "a user or password"
    elif "?" in url or "#" in url:
        secret_part = "a query or fragment (? or #)"
    if secret_part:
        raise Invalid(
            f"the URL of the table contains {secret_part}",
            hint=(
                "give credentials in storage_options, such as {'sas_token': …}, or in the"
                " environment; write ? and # in names as %3F and %23"
            ),
        )


def is_without_secrets(text: str) -> bool:
    """Return True if the value of a public option has no user, password, query or fragment.

    >>> is_without_secrets("https://minio:9000"), is_without_secrets("https://u:p@minio:9000")
    (True, False)
    """
    match = _AUTHORITY.match(text)
    return match is None or ("@" not in match[1] and "?" not in text and "#" not in text)


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Checked options, in obstore's form.

    Attributes:
        config: Options of the service.
        client: Options of the HTTP client.
        retry: Options of retries.
        public: The given options that are not secret, under names that :func:`parse_store_options`
            accepts.
    """

    config: Mapping[str, str] = field(repr=False, default_factory=dict)
    client: Mapping[str, Any] = field(repr=False, default_factory=dict)
    retry: Mapping[str, Any] = field(repr=False, default_factory=dict)
    public: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = field(repr=False, default=())
    """Values that no message may show, longest first."""


def parse_store_options(
    scheme: str,
    options: Mapping[str, object] | None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> StoreOptions:
    """Return the options for a URL.

    Args:
        scheme: Scheme of the URL. "" is a local path: only the names of its options are checked.
        given: ``storage_options``, or None.
        environment: Source of HTTP options that are not given, e.g. AWS_ALLOW_HTTP. obstore reads
            the other options from the environment itself, but ignores these if any HTTP option is
            passed to it.

    Raises ``errors.Invalid`` if ``options`` is not a mapping, for an unknown name (suggesting the
    closest one), an option given twice with different values, a value of a wrong type, and an
    unencrypted endpoint without allow_http.

    >>> dict(parse_store_options("s3", {"AWS_REGION": "eu-west-1"}).config)
    {'region': 'eu-west-1'}
    """
    options = mapping("storage_options", options)
    services = (SERVICES[scheme],) if scheme in SERVICES else (S3, GCS, AZURE)
    texts: dict[str, str] = {}
    typed: dict[str, Any] = {}
    for name, value in options.items():
        option, kind = _find_option(name, services)
        text = _text(name, value)
        if texts.setdefault(option, text) != text:
            raise Invalid(
                f"the storage option {option} is given twice, with different values",
                hint=f"{name} is one of them",
            )
        typed[option] = _parse(name, text, kind)
    if scheme not in SERVICES:
        return StoreOptions()
    return _checked_options(SERVICES[scheme], texts, typed, environment)


def _checked_options(
    service: Service,
    texts: Mapping[str, str],
    typed: Mapping[str, Any],
    environment: Mapping[str, str],
) -> StoreOptions:
    config = {
        name: value for name, value in texts.items() if name not in _CLIENT and name not in _RETRY
    }
    client = {
        "timeout": timedelta(seconds=STORE_TIMEOUT_SECONDS),
        **_client_of(service, environment),
        **{name: value for name, value in typed.items() if name in _CLIENT},
    }
    retry = {
        "max_retries": STORE_RETRIES_MAX,
        "retry_timeout": timedelta(seconds=STORE_RETRY_SECONDS),
        **{name: value for name, value in typed.items() if name in _RETRY},
    }
    if config.get("endpoint", "").lower().startswith("http:") and "allow_http" not in client:
        raise Invalid(
            "the endpoint is not encrypted: its address begins with http:",
            hint="use https, or allow it: storage_options={'allow_http': 'true', …}",
        )
    public_texts = {
        name: text for name, text in texts.items() if name in service.public or name in _NOT_SECRET
    }
    for name, text in public_texts.items():
        if not is_without_secrets(text):
            raise Invalid(
                f"the address in the storage option {name} contains a user, a password or a query",
                hint=(
                    "give credentials under their own names, such as access_key_id and"
                    " secret_access_key"
                ),
            )
    secrets = {text for name, text in texts.items() if name not in public_texts} | _secrets_in(
        service, environment
    )
    public = {name: text for name, text in public_texts.items() if text not in secrets}
    return StoreOptions(
        config, client, retry, public, tuple(sorted(secrets, key=len, reverse=True))
    )


def _secrets_in(service: Service, environment: Mapping[str, str]) -> set[str]:
    """Return secrets in the environment that the store reads itself, so that messages can hide
    them.
    """
    names = {name for name, option in service.names.items() if option not in service.public}
    values = (
        environment.get((prefix + name).upper(), "")
        for prefix in service.prefixes
        for name in names
    )
    return set(filter(None, values))


def _client_of(service: Service, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the HTTP options set in the environment."""
    names = {prefix.upper() + name.upper(): name for prefix in service.prefixes for name in _CLIENT}
    return {
        names[name]: _parse(name, text, _CLIENT[names[name]])
        for name, text in environment.items()
        if name in names
    }


def _find_option(name: object, services: tuple[Service, ...]) -> tuple[str, type]:
    """Return obstore's name and the type of an option."""
    if isinstance(name, str):
        for service in services:
            for short in _without_prefix(name.lower(), service.prefixes):
                if short in _ADDRESS:
                    raise Invalid(
                        f"the storage option {name!r} is not needed: the URL specifies the location"
                    )
                if short in _CLIENT or short in _RETRY:
                    return short, {**_CLIENT, **_RETRY}[short]
                if short in service.names:
                    return service.names[short], str
    return _refuse(name, services)


def _without_prefix(name: str, prefixes: tuple[str, ...]) -> list[str]:
    return [name, *(name.removeprefix(prefix) for prefix in prefixes if name.startswith(prefix))]


def _refuse(name: object, services: tuple[Service, ...]) -> NoReturn:
    text = str(name)
    valid_names: list[str] = []
    for service in services:
        valid_names += service.names
        valid_names += [service.prefixes[0] + name for name in service.names]
    valid_names += [*_CLIENT, *_RETRY]
    kinds = " and ".join(service.name for service in services)
    hint = f"{kinds} take {', '.join(valid_names[:6])} …"
    close_names = difflib.get_close_matches(text.lower(), valid_names, n=2, cutoff=0.5)
    if text.isupper():
        close_names = [name.upper() for name in close_names]
    if close_names:
        hint = f"did you mean {' or '.join(close_names)}?"
    raise Invalid(f"unknown storage option {text[:80]!r} for {kinds}", hint=hint)


def _text(name: str, value: object) -> str:
    """Return a value as text, in the form of an environment variable."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, timedelta):
        return f"{value.total_seconds()}s"
    if isinstance(value, (int, float)) or hasattr(value, "__fspath__"):
        return str(value)
    if not isinstance(value, str):
        raise Invalid(
            f"the storage option {name} is of type {type(value).__name__}",
            hint="give text, a number or a bool",
        )
    return value


def _parse(name: str, text: str, kind: type) -> Any:
    """Return the value of an HTTP or retry option in obstore's type.

    Messages do not show the text, since it may be a misplaced secret.
    """
    if kind is bool and text.lower() not in ("true", "false"):
        raise Invalid(
            f"the storage option {name} must be true or false", hint=f"give {name}='true'"
        )
    if kind is bool:
        return text.lower() == "true"
    if kind is int:
        if not re.fullmatch(r"[0-9]{1,3}", text):
            raise Invalid(
                f"the storage option {name} must be a number from 0 to 999", hint=f"give {name}='3'"
            )
        return int(text) if name.lower().endswith("retries") else text
    if kind is timedelta:
        return _duration(name, text)
    return text


_UNITS = {
    "": 1.0,
    "s": 1.0,
    "sec": 1.0,
    "seconds": 1.0,
    "ms": 1e-3,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
}


def _duration(name: str, text: str) -> timedelta:
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?([a-z]*)", text.strip())
    if match is None or match[2] not in _UNITS:
        raise Invalid(
            f"the storage option {name} must be a duration",
            hint=f"give {name}='30s', '500ms' or '2m'",
        )
    return timedelta(seconds=float(match[1]) * _UNITS[match[2]])
