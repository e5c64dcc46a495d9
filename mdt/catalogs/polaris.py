"""Entries in Apache Polaris, as generic tables.

The requests are those of its *Generic Table API*
(``spec/polaris-catalog-apis/generic-tables-api.yaml`` of Apache Polaris 1.0 to 1.7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from mdt.catalogs.entry import Entry
from mdt.catalogs.rest import CONFLICT, MISSING, ask, require_url
from mdt.errors import Invalid, Unavailable

_FORMAT = "hudi"
_LEVELS = "\x1f"
"""Between the levels of a namespace in paths."""


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
        require_url(self.url, "a Polaris catalog", "https://polaris.example.com/api/catalog")
        if self.credential is not None and ":" not in self.credential:
            raise Invalid("a credential has a client id and a secret", hint="write 'id:secret'")
        if not self.catalog:
            raise Invalid("the name of the catalog is missing")

    def add(self, entry: Entry, namespace: str, name: str) -> None:
        """Enter a table. See :class:`mdt.catalogs.entry.Catalog`."""
        levels = quote(_LEVELS.join(namespace.split(".")), safe="")
        path = f"polaris/v1/{quote(self.catalog, safe='')}/namespaces/{levels}/generic-tables"
        server, token = self.url.rstrip("/"), self.token or self._new_token()
        kind = "MERGE_ON_READ" if entry.is_merge_on_read else "COPY_ON_WRITE"
        body = {
            "name": name,
            "format": _FORMAT,
            "base-location": entry.url,
            "properties": {"hoodie.table.type": kind},
        }
        status, _ = ask(server, "POST", path, token, body)
        if status == CONFLICT:
            _, answer = ask(server, "GET", f"{path}/{quote(name, safe='')}", token)
            _require_same(answer, entry, f"{namespace}.{name}")
        elif status == MISSING:
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
        server = self.url.rstrip("/")
        _, answer = ask(server, "POST", "v1/oauth/tokens", None, form, is_form=True)
        token = answer.get("access_token")
        if not isinstance(token, str):
            raise Unavailable(f"{self.url} answered without a token")
        return token


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
