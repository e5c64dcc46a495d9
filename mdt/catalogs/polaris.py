"""Entries in Apache Polaris, as generic tables.

The requests are those of its *Generic Table API*
(``spec/polaris-catalog-apis/generic-tables-api.yaml`` of Apache Polaris 1.0 to 1.7).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener

from mdt.catalogs.entry import Entry, split_url
from mdt.errors import Invalid, Unavailable

_FORMAT = "hudi"
_LEVELS = "\x1f"
"""Between the levels of a namespace in paths."""
_TIMEOUT_SECONDS = 60
_ANSWER_BYTES_MAX = 1 << 24
_LONG_ERROR = 300
_FORBIDDEN, _MISSING, _CONFLICT = (401, 403), 404, 409
_SERVER_ERRORS = 500


@dataclass(frozen=True, slots=True)
class Polaris:
    """A catalog of an Apache Polaris server.

    Attributes:
        url: URL of the server's catalog API, such as ``https://polaris.example.com/api/catalog``.
        catalog: Name of the catalog.
        token: Bearer token of the requests.
        credential: Client id and secret as ``"id:secret"``, for which a token is requested.

    >>> from mdt.catalogs import Polaris
    >>> Polaris("https://polaris.example.com/api/catalog", "lake", token="secret")
    Polaris(url='https://polaris.example.com/api/catalog', catalog='lake')
    """

    url: str
    catalog: str
    token: str | None = field(default=None, repr=False)
    credential: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Check the arguments. Raises Invalid."""
        parts = split_url(self.url)
        if parts is None or parts.scheme not in ("http", "https") or parts.query:
            raise Invalid(
                "the URL of a Polaris catalog begins with https:// or http://",
                hint="write 'https://polaris.example.com/api/catalog'",
            )
        if self.credential is not None and ":" not in self.credential:
            raise Invalid("a credential has a client id and a secret", hint="write 'id:secret'")
        if not self.catalog:
            raise Invalid("the name of the catalog is missing")

    def add(self, entry: Entry, namespace: str, name: str) -> None:
        """Enter a table. See :class:`mdt.catalogs.entry.Catalog`."""
        levels = quote(_LEVELS.join(namespace.split(".")), safe="")
        path = f"polaris/v1/{quote(self.catalog, safe='')}/namespaces/{levels}/generic-tables"
        token = self.token or self._new_token()
        kind = "MERGE_ON_READ" if entry.is_merge_on_read else "COPY_ON_WRITE"
        body = {
            "name": name,
            "format": _FORMAT,
            "base-location": entry.url,
            "properties": {"hoodie.table.type": kind},
        }
        status, _ = self._ask("POST", path, token, json.dumps(body).encode())
        if status == _CONFLICT:
            _, answer = self._ask("GET", f"{path}/{quote(name, safe='')}", token)
            _require_same(answer, entry, f"{namespace}.{name}")
        elif status == _MISSING:
            raise Invalid(
                f"the catalog {self.catalog!r} has no namespace {namespace!r}",
                hint="create it in the catalog first",
            )

    def _new_token(self) -> str | None:
        """Request a token for the credential, if there is one."""
        if self.credential is None:
            return None
        user, _, secret = self.credential.partition(":")
        form = {
            "grant_type": "client_credentials",
            "client_id": user,
            "client_secret": secret,
            "scope": "PRINCIPAL_ROLE:ALL",
        }
        _, answer = self._ask(
            "POST", "v1/oauth/tokens", None, urlencode(form).encode(), is_form=True
        )
        token = answer.get("access_token")
        if not isinstance(token, str):
            raise Unavailable(f"{self.url} answered without a token")
        return token

    def _ask(
        self,
        method: str,
        path: str,
        token: str | None,
        body: bytes | None = None,
        *,
        is_form: bool = False,
    ) -> tuple[int, Mapping[str, Any]]:
        """Send a request. Return the status and the answer's JSON object.

        Raises Unavailable without an answer and for errors of the server, and Invalid for a refused
        request other than a missing or existing thing.
        """
        url = f"{self.url.rstrip('/')}/{path}"
        kind = "application/x-www-form-urlencoded" if is_form else "application/json"
        headers = {"Accept": "application/json", "Content-Type": kind}
        if token is not None:
            if not (token.isascii() and token.isprintable()):
                raise Invalid("a token has printable ASCII characters only", hint="strip its end")
            headers["Authorization"] = f"Bearer {token}"
        request = Request(url, body, headers, method=method)
        try:
            with build_opener(_NoRedirects).open(request, timeout=_TIMEOUT_SECONDS) as answer:
                status, data = answer.status, answer.read(_ANSWER_BYTES_MAX)
        except HTTPError as error:
            with error:
                status, data = error.code, error.read(_ANSWER_BYTES_MAX)
        except (OSError, HTTPException) as error:
            raise Unavailable(f"{self.url} does not answer: {error}") from error
        found = _object(data)
        if status in (_MISSING, _CONFLICT) or status in range(200, 300):
            return status, found
        text = f"{self.url} refused the request with status {status}: {_reason(found)}"
        if status >= _SERVER_ERRORS:
            raise Unavailable(text)
        hint = "check the token or credential" if status in _FORBIDDEN else ""
        raise Invalid(text, hint=hint)


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect, which would send the token to another server."""

    def redirect_request(self, *_: Any) -> None:
        """Return None: the status is an error."""


def _object(data: bytes) -> Mapping[str, Any]:
    """Return a JSON object, empty if the data are something else."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _reason(answer: Mapping[str, Any]) -> str:
    error = answer.get("error")
    text = error.get("message") if isinstance(error, dict) else answer.get("error_description")
    return str(text or error or "no reason given")[:_LONG_ERROR]


def _require_same(answer: Mapping[str, Any], entry: Entry, name: str) -> None:
    """Raise Invalid unless the entry that exists is that of the table."""
    table = answer.get("table")
    found = table if isinstance(table, dict) else {}
    place = str(found.get("base-location", "")).rstrip("/")
    if place != entry.url or found.get("format") != _FORMAT:
        raise Invalid(
            f"{name} is another table in the catalog: {found.get('format')} at {place}",
            hint="drop it from the catalog, or choose another name",
        )
