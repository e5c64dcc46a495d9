"""Fields of definitions and of records that are left out where they say nothing."""

from __future__ import annotations

from typing import Any


def present(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not empty.

    >>> present(plan=["bitmap(status)"], dropped=[])
    {'plan': ['bitmap(status)']}
    """
    return {name: value for name, value in fields.items() if value}
