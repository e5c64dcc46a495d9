"""Everything outside the process: bytes under names, listings, the clock, randomness.

This module and ``mdt.stores`` are the only ones that touch them.  ``open_storage`` picks the storage; the contract,
its law and its errors stand in :class:`Storage`.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from mdt import errors, lazy
from mdt.stores.contract import Buffer, Data, ObjectInfo, Storage
from mdt.stores.faulty import Crash, FaultyStorage
from mdt.stores.local import LocalStorage
from mdt.stores.memory import MemoryStorage

if TYPE_CHECKING:
    from mdt.stores import object_store, page_cache
    from mdt.stores.object_store import ObjectStorage
    from mdt.stores.page_cache import PageCache, open_page_cache
else:  # local tables need neither obstore nor lmdb; see mdt.lazy
    object_store = lazy.Module("mdt.stores.object_store")
    page_cache = lazy.Module("mdt.stores.page_cache")

__all__ = [
    "Buffer",
    "Crash",
    "Data",
    "FaultyStorage",
    "LocalStorage",
    "MemoryStorage",
    "ObjectInfo",
    "ObjectStorage",
    "PageCache",
    "Storage",
    "open_page_cache",
    "open_storage",
]

_SCHEMES = frozenset(("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "memory"))


def __getattr__(name: str) -> Any:
    """Load what only remote tables need."""
    if name in ("PageCache", "open_page_cache"):
        return getattr(page_cache, name)
    if name == "ObjectStorage":
        return object_store.ObjectStorage
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def open_storage(path_or_url: str | os.PathLike[str], *, durable: bool = True) -> Storage:
    """Return the storage whose root is a local path or a URL; nothing is read or written yet.

    ``file:///absolute/path`` (percent-encoded), ``s3://bucket/table``, ``gs://…``, ``az://…``, ``memory:///`` (new and
    empty at every call).  ``durable=False``: see :class:`LocalStorage`.  Raises ``errors.Invalid`` for an empty path
    or a file URL of another machine, ``errors.Unsupported`` for another scheme.
    """
    text = os.fspath(path_or_url)
    if not text:
        raise errors.Invalid("the path of the table is empty")
    # At least two letters, so that a drive such as C: is a path.
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", text)
    if found is None:
        return LocalStorage(text, durable=durable)
    scheme = found[1].lower()
    if scheme == "file":
        return LocalStorage(_path_of_file_url(text), durable=durable)
    if scheme not in _SCHEMES:
        raise errors.Unsupported(
            f"storage of the kind {scheme!r} is not supported: {text}",
            hint=f"use a local path, file, {', '.join(sorted(_SCHEMES))}",
        )
    return object_store.ObjectStorage("s3" + text[3:] if scheme == "s3a" else text)


def _path_of_file_url(url: str) -> str:
    """Return the path in ``file:/p``, ``file:///p`` or ``file://localhost/p``."""
    rest = url[len("file:") :]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise errors.Invalid(f"the URL {url} names the machine {host!r}", hint="write file:///absolute/path")
        rest = slash + path
    return unquote(rest)
