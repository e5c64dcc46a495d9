"""Hudi's file of definitions of the indexes in the metadata table, ``index.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

DEFINITIONS = ".hoodie/.index_defs/index.json"
"""Path of the file, unless a property of the table names another."""
DEFINITIONS_PROPERTY = "hoodie.table.index.defs.path"
"""The property of a table with the path of the file."""


def with_definitions(
    data: bytes | None, definitions: Mapping[str, Mapping[str, Any]], dropped: str = ""
) -> bytes:
    """Return the file with ``definitions`` of indexes, by name, beside others that it has.

    Args:
        data: The file, or None if there is none. Damaged content is replaced.
        dropped: Others whose names begin with it are left out, "" for none.

    >>> with_definitions(None, {"a": {"indexName": "a"}}).split()
    [b'{', b'"indexDefinitions":', b'{', b'"a":', b'{', b'"indexName":', b'"a"', b'}', b'}', b'}']
    """
    try:
        others = dict(json.loads(data or b"{}")["indexDefinitions"])
        if dropped:
            others = {
                name: definition
                for name, definition in others.items()
                if not name.startswith(dropped)
            }
        return _encoded({**others, **definitions})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return _encoded(definitions)


def _encoded(definitions: Mapping[str, Any]) -> bytes:
    return json.dumps({"indexDefinitions": definitions}, indent=2).encode()
