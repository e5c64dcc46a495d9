"""Requests to catalogs that answer over HTTP with JSON objects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import urlencode
from urllib.request import HTTPErrorProcessor, Request, build_opener

from mdt.arguments import shown
from mdt.catalogs.entry import Entry, split_url
from mdt.errors import Invalid, Unavailable

MISSING, CONFLICT = 404, 409
"""Statuses of a missing thing, and of one that exists already."""
_FORBIDDEN = (401, 403)
_SERVER_ERRORS = 500
_TIMEOUT_SECONDS = 60
_ANSWER_BYTES_MAX = 1 << 24
_LONG_ERROR = 300


def require_address(url: str, catalog: str, kind: str, example: str) -> None:
    """Raise Invalid if ``url`` is not the HTTP address of a server, or if ``catalog`` is empty.

    Args:
        catalog: Name of the catalog on the server.
        kind: Name of the kind of catalog, for the message.
        example: A right address.
    """
    parts = split_url(url)
    if parts is None or parts.scheme not in ("http", "https") or parts.query:
        raise Invalid(
            f"the URL of {kind} begins with https:// or http://", hint=f"write {example!r}"
        )
    if not catalog:
        raise Invalid("the name of the catalog is missing")


def require_same(entry: Entry, name: str, expected: str, form: object, place: object) -> None:
    """Raise Invalid unless an entry that exists is that of the table.

    Args:
        expected: The format that the table has in the catalog.
        form, place: Format and URL of the entry that exists.
    """
    # local paths have one slash, or three
    places = {url.rstrip("/").replace("file:///", "file:/") for url in (str(place), entry.url)}
    if len(places) > 1 or form != expected:
        raise Invalid(
            f"{name} is another table in the catalog: {shown(form)} at {shown(place)}",
            hint="drop it from the catalog, or choose another name",
        )


def ask(
    server: str,
    method: str,
    path: str,
    token: str | None,
    body: Mapping[str, Any] | None = None,
    *,
    is_form: bool = False,
) -> tuple[int, Mapping[str, Any]]:
    """Send a request. Return the status and the answer's JSON object.

    Args:
        server: URL of the API, without a slash at the end.
        path: What follows it.
        token: Bearer token.
        body: Fields of a JSON object, or of a form.

    Raises Unavailable without an answer and for errors of the server, and Invalid for a refused
    request other than a missing or existing thing.
    """
    kind = "application/x-www-form-urlencoded" if is_form else "application/json"
    headers = {"Accept": "application/json", "Content-Type": kind}
    if token is not None:
        if not (token.isascii() and token.isprintable()):
            raise Invalid("a token has printable ASCII characters only", hint="strip its end")
        headers["Authorization"] = f"Bearer {token}"
    data = None
    if body is not None:
        data = (urlencode(body) if is_form else json.dumps(body)).encode()
    request = Request(f"{server}/{path}", data, headers, method=method)
    try:
        with build_opener(_AnyStatus).open(request, timeout=_TIMEOUT_SECONDS) as answer:
            status, data = answer.status, answer.read(_ANSWER_BYTES_MAX)
    except (OSError, HTTPException) as error:
        raise Unavailable(f"{server} does not answer: {error}") from error
    found = _object(data)
    if status in (MISSING, CONFLICT) or status in range(200, 300):
        return status, found
    text = f"{server} refused the request with status {status}: {_reason(found)}"
    if status >= _SERVER_ERRORS:
        raise Unavailable(text)
    hint = "check the token or credential" if status in _FORBIDDEN else ""
    raise Invalid(text, hint=hint)


class _AnyStatus(HTTPErrorProcessor):
    """Returns answers with any status. Follows no redirect, which would send the token to another
    server.
    """

    def http_response(self, request: Request, response: Any) -> Any:
        """Return the answer."""
        return response

    https_response = http_response


def _object(data: bytes | None) -> Mapping[str, Any]:
    """Return a JSON object, empty if the data are something else."""
    try:
        found = json.loads(data or b"")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _reason(answer: Mapping[str, Any]) -> str:
    """Return the text of an error of Polaris, of OAuth or of Unity Catalog."""
    error = answer.get("error")
    if isinstance(error, dict):
        error = error.get("message") or error
    text = answer.get("error_description") or error or answer.get("message")
    return str(text or "no reason given")[:_LONG_ERROR]
