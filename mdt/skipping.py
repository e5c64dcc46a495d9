"""Skipping indexes of a table, by their specifications."""

from __future__ import annotations

from indexes import registry
from indexes.base import SkippingIndex


def find_index(spec: registry.IndexSpec) -> SkippingIndex | str:
    """Return the index of a specification, or why it cannot be used."""
    cls = registry.find(spec.kind)
    if isinstance(cls, registry.Unknown):
        return cls.reason
    if not issubclass(cls, SkippingIndex):
        return f"{spec.kind} is not a skipping index"
    try:
        return cls(**spec.options)
    except (TypeError, ValueError) as error:
        return f"its options are not possible: {error}"
