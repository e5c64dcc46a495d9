"""Everything outside the process: bytes under names, listings, the clock, randomness.

This module and ``mdt.stores`` are the only ones that touch them.  ``open_storage`` picks the
storage; the contract, its law and its errors stand in :class:`Storage`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from mdt import arguments, errors
from mdt.stores.contract import Buffer, Data, ObjectInfo, Storage
from mdt.stores.local import LocalStorage
from mdt.stores.memory import MemoryStorage
from mdt.stores.options import parse_store_options, refuse_secrets

if TYPE_CHECKING:
    from mdt.stores.object_store import ObjectStorage
    from mdt.stores.page_cache import PageCache, open_page_cache

__all__ = [
    "Buffer",
    "Data",
    "LocalStorage",
    "MemoryStorage",
    "ObjectInfo",
    "ObjectStorage",
    "PageCache",
    "Storage",
    "hadoop_path",
    "open_page_cache",
    "open_storage",
]

_SCHEMES = frozenset(("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "memory"))


def __getattr__(name: str) -> Any:
    """Load what only remote tables need."""
    if name in ("PageCache", "open_page_cache"):
        from mdt.stores import page_cache

        return getattr(page_cache, name)
    if name == "ObjectStorage":
        from mdt.stores.object_store import ObjectStorage

        return ObjectStorage
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def open_storage(
    place: str | os.PathLike[str] | Any,
    *,
    durable: bool = True,
    storage_options: Mapping[str, object] | None = None,
) -> Storage:
    """Return the storage whose root is a local path, a URL, or a ready obstore store; nothing is
    read or written yet.

    ``file:///absolute/path`` (percent-encoded), ``s3://bucket/table``, ``gs://…``, ``az://…``,
    ``memory:///`` (new and empty at every call).  ``durable=False``: see :class:`LocalStorage`.
    ``storage_options``: see ``mdt.stores.options``; those of a local path have no effect.  A
    :class:`Storage` is returned as it is.  Raises ``errors.Invalid`` for an empty path, one with a
    NUL, a file URL of another machine, and anything that is no path; ``errors.Unsupported`` for
    another scheme.
    """
    from mdt.stores import object_store

    if isinstance(place, Storage) or type(place).__module__.partition(".")[0] == "obstore":
        if arguments.mapping("storage_options", storage_options):
            raise errors.Invalid(
                "storage_options and a ready store are given",
                hint="give the store its options, or give a URL",
            )
        return place if isinstance(place, Storage) else _of_ready_store(place, durable)
    text = _path_text(place)
    # At least two letters, so that a drive such as C: is a path.
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", text)
    scheme = found[1].lower() if found else "file"
    if scheme != "file":
        refuse_secrets(scheme, text)
    if scheme != "file" and scheme not in _SCHEMES:
        raise errors.Unsupported(
            f"storage of the kind {scheme!r} is not supported: {text}",
            hint=f"use a local path, file, {', '.join(sorted(_SCHEMES))}",
        )
    if scheme == "file":
        parse_store_options("", storage_options)
        return LocalStorage(_path_of_file_url(text) if found else text, durable=durable)
    return object_store.ObjectStorage(
        "s3" + text[3:] if scheme == "s3a" else text, None, storage_options
    )


def hadoop_path(text: str) -> str:
    """Return what :func:`open_storage` takes for a path as Hadoop, and so Spark, writes it: a
    percent sign there is part of a name.

    >>> hadoop_path("file:/tables/a%20b"), hadoop_path("s3a://bucket/a%20b")
    ('/tables/a%20b', 's3a://bucket/a%2520b')
    """
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):(//[^/]*)?(?=/)", text)
    if found is None:
        return text
    rest = text[found.end() :]
    if found[1].lower() == "file" and found[2] in (None, "//"):
        return rest
    return found[0] + quote(rest, safe="/=")


def _path_text(path: Any) -> str:
    """Return a path or URL as text.  Raises ``errors.Invalid`` for what cannot be one."""
    try:
        text = os.fspath(path)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise errors.Invalid(
            f"the path of a table is of type {type(path).__name__}",
            hint="give text, a pathlib.Path, a URL or an obstore store",
        )
    if not text:
        raise errors.Invalid("the path of the table is empty")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise errors.Invalid(
            f"the path {text!r} is not Unicode: {error.reason}",
            hint="no file system knows such a name",
        ) from None
    if "\0" in text:
        raise errors.Invalid(
            f"the path {text!r} has a NUL in it", hint="no file system knows such a name"
        )
    return text


def _of_ready_store(store: Any, durable: bool) -> Storage:
    from mdt.stores import object_store

    if type(store).__name__ == "LocalStore":
        return LocalStorage(store.prefix or "/", durable=durable)
    return object_store.ObjectStorage(object_store.store_url(store), store)


def _path_of_file_url(url: str) -> str:
    """Return the path in ``file:/p``, ``file:///p`` or ``file://localhost/p``."""
    rest = url[len("file:") :]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise errors.Invalid(
                f"the URL {url} names the machine {host!r}", hint="write file:///absolute/path"
            )
        rest = slash + path
    return unquote(rest)
