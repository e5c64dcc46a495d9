"""Entries in Unity Catalog, as external tables of Delta.

The requests are those of its *Tables API* (``api/all.yaml`` of Unity Catalog 0.2 to 0.7).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from mdt.catalogs.entry import Entry, sql_type
from mdt.catalogs.rest import MISSING, ask, require_address, require_same
from mdt.errors import Invalid, Unsupported

_API = "api/2.1/unity-catalog"
_DELTA = "DELTA"


@dataclass(frozen=True, slots=True)
class Unity:
    """A catalog of a Unity Catalog server, for tables with the format delta.

    Attributes:
        url: URL of the server, such as ``https://unity.example.com``.
        catalog: Name of the catalog.
        token: Bearer token of the requests.

    >>> from mdt.catalogs import Unity
    >>> Unity("https://unity.example.com", "lake", token="secret")
    Unity(url='https://unity.example.com', catalog='lake')
    """

    url: str
    catalog: str
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Check the arguments. Raises Invalid."""
        example = "https://unity.example.com"
        require_address(self.url, self.catalog, "a Unity Catalog server", example)

    def add(self, entry: Entry, namespace: str, name: str) -> None:
        """Enter a table. See :class:`mdt.catalogs.entry.Catalog`.

        An entry that exists is left as it is: engines take columns from the Delta log.

        Raises Unsupported for a table without the format delta.
        """
        if not entry.delta_columns:
            raise Unsupported(
                "Unity Catalog has no name for Hudi's format, and takes tables of Delta",
                hint='t.alter(formats=["hudi", "delta"])',
            )
        server = f"{self.url.rstrip('/')}/{_API}"
        quoted = ".".join(quote(part, safe="") for part in (self.catalog, namespace, name))
        status, found = ask(server, "GET", f"tables/{quoted}", self.token)
        if status != MISSING:
            form, place = found.get("data_source_format"), found.get("storage_location")
            full_name = f"{self.catalog}.{namespace}.{name}"
            require_same(entry, full_name, _DELTA, form, place)
            return
        body = {
            "name": name,
            "catalog_name": self.catalog,
            "schema_name": namespace,
            "table_type": "EXTERNAL",
            "data_source_format": _DELTA,
            "storage_location": entry.url,
            "columns": list(_columns(entry)),
        }
        status, _ = ask(server, "POST", "tables", self.token, body)
        if status == MISSING:
            raise Invalid(
                f"the catalog {self.catalog!r} or its schema {namespace!r} does not exist",
                hint="create it in the catalog first",
            )
        if status not in range(200, 300):
            raise Invalid(f"{namespace}.{name} was entered by another program at the same time")


def _columns(entry: Entry) -> Iterator[Mapping[str, Any]]:
    """Yield the columns as Unity Catalog describes them."""
    for position, column in enumerate(entry.delta_columns):
        text = sql_type(column["type"])
        described = {
            "name": column["name"],
            "type_text": text,
            "type_json": json.dumps(column["type"], separators=(",", ":")),
            "type_name": _type_name(column["type"]),
            "position": position,
            "nullable": True,
        }
        if text.startswith("decimal("):
            digits, scale = text[len("decimal(") : -1].split(",")
            described |= {"type_precision": int(digits), "type_scale": int(scale)}
        if column["name"] in entry.delta_partition_by:
            described["partition_index"] = entry.delta_partition_by.index(column["name"])
        yield described


def _type_name(type: str | Mapping[str, Any]) -> str:
    """Return the name of a type in the list of Unity Catalog.

    >>> _type_name("integer"), _type_name("decimal(9,2)"), _type_name({"type": "array"})
    ('INT', 'DECIMAL', 'ARRAY')
    """
    name = type if isinstance(type, str) else str(type["type"])
    return {"integer": "INT"}.get(name, name.partition("(")[0].upper())
