"""An immutable mapping.  Adding items returns a new mapping that shares most of its data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_GROWTH = 2


class Layered(Generic[K, V]):
    """Dictionaries layered over each other, newest last.  The newest value of a key counts.

    Layer sizes at least halve from one layer to the next.  So a look-up searches O(log n)
    dictionaries, and an item is copied O(log n) times in all, as in a log-structured merge tree.

    >>> older = Layered[str, int]().with_items({"a": 1, "b": 2})
    >>> newer = older.with_items({"b": 3})
    >>> older.get("b"), newer.get("b"), newer.flat()
    (2, 3, {'a': 1, 'b': 3})
    """

    __slots__ = ("_layers",)

    def __init__(self, layers: tuple[dict[K, V], ...] = ()) -> None:
        self._layers = layers

    def __contains__(self, key: object) -> bool:
        return any(key in layer for layer in self._layers)

    def __len__(self) -> int:
        return len(self.flat())

    def __bool__(self) -> bool:
        return bool(self._layers)

    def get(self, key: K) -> V | None:
        """Return the value of ``key`` or None.  O(log n)."""
        for layer in reversed(self._layers):
            value = layer.get(key)
            if value is not None:
                return value
        return None

    def with_items(self, items: Mapping[K, V]) -> Layered[K, V]:
        """Return a mapping with ``items`` added or replaced.  O(items × log n), amortized."""
        if not items:
            return self
        layer, layers = dict(items), self._layers
        while layers and len(layers[-1]) <= _GROWTH * len(layer):
            layer = {**layers[-1], **layer}
            layers = layers[:-1]
        return Layered((*layers, layer))

    def flat(self) -> dict[K, V]:
        """Return all items as a new dictionary.  O(n)."""
        return {key: value for layer in self._layers for key, value in layer.items()}

    def items(self) -> Iterator[tuple[K, V]]:
        """Yield each key and its value, once.  O(n)."""
        yield from self.flat().items()
