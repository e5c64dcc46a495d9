"""Optional fields of definitions and records, which are omitted if empty."""

from __future__ import annotations

from typing import Any


def present(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not empty.

    >>> present(plan=["bitmap(status)"], dropped=[])
    {'plan': ['bitmap(status)']}
    """
    return {name: value for name, value in fields.items() if value}
