"""Checked access to decoded JSON or Avro, whose fields may be missing, null, or of any type."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from mdt.errors import Corrupt
from mdt.limits import COUNT_MAX
from mdt.stores.contract import is_path


class Fields:
    """The fields of one record of a stored object.

    A field that is missing or null reads as an empty value. Every method raises Corrupt, with the
    path of the object and the name of the field, if a value has another type.

    >>> fields = Fields({"files": ["a"], "size": 3}, "20240229120000123.clean")
    >>> fields.texts("files"), fields.number("size"), fields.text("policy")
    (['a'], 3, '')
    """

    __slots__ = ("path", "values")

    def __init__(self, values: Any, path: str) -> None:
        if not isinstance(values, dict):
            raise Corrupt(f"a record is expected, not {_kind(values)}", path=path)
        self.values = values
        self.path = path

    def text(self, name: str) -> str:
        """Return a string."""
        return self._text(self._value(name, str, ""), name)

    def number(self, name: str) -> int:
        """Return an integer."""
        value = self._value(name, int, 0)
        if isinstance(value, bool):
            raise self._wrong(name, value)
        if not -COUNT_MAX <= value <= COUNT_MAX:
            raise Corrupt(f"{name} is too large", path=self.path)
        return int(value)

    def flag(self, name: str) -> bool:
        """Return a boolean."""
        return bool(self._value(name, bool, False))

    def texts(self, name: str) -> list[str]:
        """Return a list of strings."""
        return [self._text(item, name) for item in self._value(name, list, [])]

    def record(self, name: str) -> Fields | None:
        """Return a record, or None if it is missing."""
        value = self._value(name, dict, None)
        return None if value is None else Fields(value, self.path)

    def records(self, name: str) -> Iterator[Fields]:
        """Yield the records of a list. Nulls are left out."""
        for item in self._value(name, list, []):
            if item is not None:
                yield Fields(item, self.path)

    def map(self, name: str) -> Fields:
        """Return a map, whose entries are read like fields."""
        return Fields(self._value(name, dict, {}), self.path)

    def names(self) -> list[str]:
        """Return the names of all fields, or the keys of a map."""
        return [self._text(name, "a key") for name in self.values]

    def file_path(self, name: str) -> str:
        """Return the path of an object of the table, relative to the table."""
        text = self.text(name)
        if not is_path(text):
            raise Corrupt(f"{name}={text[:200]!r} is not a path in the table", path=self.path)
        return text

    def file_names(self, name: str) -> frozenset[str]:
        """Return the names at the end of the paths in a list. Hudi stores absolute paths, too."""
        return frozenset(text.rpartition("/")[2] for text in self.texts(name))

    def _value(self, name: str, kind: type, default: Any) -> Any:
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, kind):
            raise self._wrong(name, value)
        return value

    def _text(self, value: Any, name: str) -> str:
        if not isinstance(value, str):
            raise self._wrong(name, value)
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise Corrupt(f"{name} is not valid Unicode", path=self.path) from error
        return value

    def _wrong(self, name: str, value: Any) -> Corrupt:
        return Corrupt(f"{name} has the wrong type, {_kind(value)}", path=self.path)


def parse_json(data: bytes, path: str) -> Fields:
    """Return the fields of a JSON object. Raises Corrupt, with ``path``, for anything else."""
    try:
        value = json.loads(data.decode())
    except (ValueError, RecursionError, MemoryError) as error:
        raise Corrupt(f"this is not JSON: {str(error)[:200]}", path=path) from error
    return Fields(value, path)


def _kind(value: Any) -> str:
    return type(value).__name__
