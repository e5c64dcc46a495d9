"""Access to everything outside the process: objects, listings, the clock and randomness.

Only this module and ``mdt.stores`` touch them. ``open_storage`` chooses a storage, and
:class:`Storage` defines the contract.
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
    """Import modules that only remote tables need."""
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
    """Return the storage for a local path, a URL, or a ready obstore store. Does no I/O.

    In a local path, a leading ``~/`` is the home directory. URLs are ``file:///absolute/path``
    (percent-encoded), ``s3://bucket/table``, ``gs://…``, ``az://…`` or ``memory:///`` (new and
    empty on every call). A :class:`Storage` is returned
    unchanged.

    Args:
        durable: See :class:`LocalStorage`.
        storage_options: See ``mdt.stores.options``; they have no effect on local paths.

    Raises ``errors.Invalid`` for an empty path, a path with a NUL, a file URL of another machine,
    and an object that is not a path. Raises ``errors.Unsupported`` for another URL scheme.

    >>> open_storage("/tables/trips").uri("log/7")
    'file:///tables/trips/log/7'
    """
    if isinstance(place, Storage) or type(place).__module__.partition(".")[0] == "obstore":
        if arguments.mapping("storage_options", storage_options):
            raise errors.Invalid(
                "storage_options cannot be combined with a ready store",
                hint="configure the store itself, or give a URL",
            )
        return place if isinstance(place, Storage) else _of_ready_store(place, durable)
    text = _path_text(place)
    if text == "~" or text.startswith("~/"):
        text = os.path.expanduser(text)
    # At least two letters, because C:/ is a path on a drive.
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", text)
    scheme = match[1].lower() if match else "file"
    if scheme != "file":
        refuse_secrets(scheme, text)
    if scheme != "file" and scheme not in _SCHEMES:
        raise errors.Unsupported(
            f"the URL scheme {scheme!r} is not supported: {text}",
            hint=f"use a local path, or a URL with file, {', '.join(sorted(_SCHEMES))}",
        )
    if scheme == "file":
        parse_store_options("", storage_options)
        return LocalStorage(_path_of_file_url(text) if match else text, durable=durable)
    from mdt.stores.object_store import ObjectStorage

    if scheme == "s3a":
        text = "s3" + text[3:]
    return ObjectStorage(text, None, storage_options)


def hadoop_path(text: str) -> str:
    """Convert a path in Hadoop's (and Spark's) form for :func:`open_storage`.

    In Hadoop's form a percent sign is part of a name.

    >>> hadoop_path("file:/tables/a%20b"), hadoop_path("s3a://bucket/a%20b")
    ('/tables/a%20b', 's3a://bucket/a%2520b')
    """
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):(//[^/]*)?(?=/)", text)
    if match is None:
        return text
    path = text[match.end() :]
    if match[1].lower() == "file" and match[2] in (None, "//"):
        return path
    return match[0] + quote(path, safe="/=")


def _path_text(path: Any) -> str:
    """Return a path or URL as text. Raises ``errors.Invalid`` if it cannot be a path."""
    try:
        text = os.fspath(path)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise errors.Invalid(
            f"the path of a table cannot be of type {type(path).__name__}",
            hint="give text, a pathlib.Path, a URL or an obstore store",
        )
    if not text:
        raise errors.Invalid("the path of the table is empty")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise errors.Invalid(
            f"the path {text!r} is not valid Unicode: {error.reason}",
            hint="file systems do not support such names",
        ) from None
    if "\0" in text:
        raise errors.Invalid(
            f"the path {text!r} contains a NUL character",
            hint="file systems do not support such names",
        )
    return text


def _of_ready_store(store: Any, durable: bool) -> Storage:
    from mdt.stores import object_store

    if type(store).__name__ == "LocalStore":
        return LocalStorage(store.prefix or "/", durable=durable)
    return object_store.ObjectStorage(object_store.store_url(store), store)


def _path_of_file_url(url: str) -> str:
    """Return the path in ``file:/p``, ``file:///p`` or ``file://localhost/p``."""
    remainder = url[len("file:") :]
    if remainder.startswith("//"):
        host, slash, path = remainder[2:].partition("/")
        if host not in ("", "localhost"):
            raise errors.Invalid(
                f"the URL {url} refers to another machine, {host!r}",
                hint="write file:///absolute/path",
            )
        remainder = slash + path
    return unquote(remainder)
