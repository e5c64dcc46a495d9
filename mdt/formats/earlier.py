"""Objects of earlier versions of a format, from which later versions are derived."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mdt.session import Recent
from mdt.stores.storage import Storage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Earlier:
    """Reads objects of earlier versions.

    Attributes:
        decoded: Path of an object whose content never changes -> the object, decoded.
        derived: Path -> content of objects that were derived again, instead of stored ones.
        mends: True if damaged or foreign objects are derived again.
    """

    storage: Storage
    decoded: Recent[str, Any]
    derived: dict[str, bytes] = field(default_factory=dict)
    mends: bool = False

    def read(self, path: str) -> bytes | None:
        """Return an object, or None if it is absent."""
        content = self.derived.get(path)
        return self.storage.read_if_exists(path) if content is None else content

    def decode(self, path: str, decode: Callable[[str, bytes | None], T]) -> T:
        """Return an object whose content never changes, decoded. ``decode`` gets its path and
        content.
        """
        key = f"{path}#derived" if path in self.derived else path
        found: T | None = self.decoded.get(key)
        if found is None:
            content = self.read(path)
            found = self.decoded.put(key, decode(path, content), len(content or b""))
        return found
