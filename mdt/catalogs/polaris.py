"""Entries in Apache Polaris, as generic tables.

The requests are those of its *Generic Table API*
(``spec/polaris-catalog-apis/generic-tables-api.yaml`` of Apache Polaris 1.0 to 1.7).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import quote

from mdt.catalogs.entry import Entry
from mdt.catalogs.rest import CONFLICT, MISSING, ask, require_address, require_same
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
        example = "https://polaris.example.com/api/catalog"
        require_address(self.url, self.catalog, "a Polaris catalog", example)
        if self.credential is not None and ":" not in self.credential:
            raise Invalid("a credential has a client id and a secret", hint="write 'id:secret'")

    def add(self, entry: Entry, namespace: str, name: str) -> None:
        """Enter a table. See :class:`mdt.catalogs.entry.Catalog`."""
        levels = quote(_LEVELS.join(namespace.split(".")), safe="")
        path = f"polaris/v1/{quote(self.catalog, safe='')}/namespaces/{levels}/generic-tables"
        server = self.url.rstrip("/")
        token = self.token or _new_token(server, self.credential)
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
            table = answer.get("table")
            found = table if isinstance(table, dict) else {}
            form, place = found.get("format"), found.get("base-location")
            require_same(entry, f"{namespace}.{name}", _FORMAT, form, place)
        elif status == MISSING:
            raise Invalid(
                f"the catalog {self.catalog!r} has no namespace {namespace!r}",
                hint="create it in the catalog first",
            )


def _new_token(server: str, credential: str | None) -> str | None:
    """Request a token for a credential, if there is one."""
    if credential is None:
        return None
    user, _, secret = credential.partition(":")
    form = {
        "grant_type": "client_credentials",
        "client_id": user,
        "client_secret": secret,
        "scope": "PRINCIPAL_ROLE:ALL",
    }
    _, answer = ask(server, "POST", "v1/oauth/tokens", None, form, is_form=True)
    token = answer.get("access_token")
    if not isinstance(token, str):
        raise Unavailable(f"{server} answered without a token")
    return token
