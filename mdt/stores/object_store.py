"""An object store: S3, Google Cloud Storage, Azure, or obstore's own memory.

``put_if_absent`` is a conditional put (``If-None-Match: *``).  Stores that resemble S3 sometimes
accept the header and ignore it, so it is tried out once, on an object of its own, before the first
write.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any, TypeVar
from urllib.parse import unquote

import obstore
import pyarrow as pa
from obstore import exceptions
from obstore.store import from_url

from mdt import errors
from mdt.forking import this_process
from mdt.session import for_life
from mdt.stores.concurrent_io import AtOnce
from mdt.stores.contract import (
    Data,
    Listing,
    Names,
    ObjectInfo,
    Storage,
    check_directory,
    check_path,
    check_range,
    check_size,
    is_between,
    is_temporary,
    joined,
    name_taken,
)
from mdt.stores.options import (
    SERVICES,
    StoreOptions,
    is_without_secrets,
    parse_store_options,
    refuse_secrets,
)
from mdt.stores.positioned_file import RangeFile
from mdt.stores.store_errors import Place, explained, refused_options, says_conflict, shows_secrets

_PROBE_PATH = ".hoodie/.mdt/probe"
_PROBE_DATA = b"mdt puts this object twice to learn whether the store refuses the second one\n"
T = TypeVar("T")
_CONFLICTS_MAX = 4
_CONFLICT_SECONDS = 0.1
"""How often a conditional put is made that meets another one under way, perhaps its own earlier
try: nobody knows yet which is the first.
"""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ObjectStorage(Storage):
    """The objects below a URL such as ``s3://bucket/table``.

    ``store``: a ready obstore store, for credentials of another kind; without one it is made from
    the URL, ``options`` and the environment, options first.  A pickle has the URL and those options
    that are no secrets.
    """

    is_remote = True

    def __init__(
        self, url: str, store: Any = None, options: Mapping[str, object] | None = None
    ) -> None:
        self.url = url.rstrip("/")
        scheme = url.partition(":")[0]
        if store is None:
            refuse_secrets(scheme, url)
        given = parse_store_options(scheme, options, os.environ)
        self.public_options = (
            dict(given.public) if store is None else _public_options(scheme, store)
        )
        self._place = Place(self.url, given.secrets)
        self._store = _made(url, given, self._place) if store is None else store
        self._conditional_put: bool | None = None
        self._lock = threading.Lock()
        self._at_once = AtOnce()

    def __repr__(self) -> str:
        return f"<objects below {self.url}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle opens the same URL anew; it carries no secrets."""
        if self.url.startswith("memory:"):
            return super().__reduce__()  # which refuses
        return ObjectStorage, (self.url, None, self.public_options)

    @property
    def conditional_put(self) -> bool:  # type: ignore[override]
        """Whether the store refuses to put an object that exists; found out by one or two small
        puts, then known.
        """
        _refuse_forked(self.url)
        with self._lock:
            if self._conditional_put is None:
                self._conditional_put = self._probe()
            return self._conditional_put

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """See :class:`Storage`."""
        with self._translated(path):
            if offset == 0 and length is None:
                return obstore.get(self._store, check_path(path)).bytes().to_bytes()
            count = (
                check_range(path, offset, length, self._require_size(path))
                if length is None
                else length
            )
            return self._read_range(path, offset, count)

    def read_whole(self, path: str, bytes_max: int) -> bytes:
        """See :class:`Storage`; one request, whose answer begins with the size."""
        with self._translated(path):
            found = obstore.get(self._store, check_path(path))
            check_size(path, int(found.meta["size"]), bytes_max)
            return found.bytes().to_bytes()

    def open(self, path: str) -> Any:
        """See :class:`Storage`; each read is one request, so read with ``pre_buffer``."""
        return pa.PythonFile(RangeFile(self, path, self._require_size(path)), mode="r")

    def create(self, path: str, data: Data) -> None:
        """See :class:`Storage`; an object that is there may be this one, of an earlier try whose
        reply was lost.
        """
        if not self._put(path, data, mode="create") and self.read(path) != joined(data):
            raise name_taken(path)

    def put_if_absent(self, path: str, data: Data) -> bool:
        """See :class:`Storage`."""
        return self._put(path, data, mode="create")

    def replace(self, path: str, data: Data) -> None:
        """See :class:`Storage`."""
        self._put(path, data, mode="overwrite")

    def delete(self, path: str) -> None:
        """See :class:`Storage`."""
        self.delete_many([path])

    def delete_many(self, paths: Iterable[str]) -> None:
        """See :class:`Storage`; many in one request where the store can."""
        names = [check_path(path) for path in paths]
        try:
            with self._translated(names[0] if names else ""):
                if names:
                    obstore.delete(self._store, names)
        except errors.Missing:
            if len(names) > 1:
                for name in names:
                    self.delete(name)

    def list(self, prefix: str) -> Listing:
        """See :class:`Storage`."""
        directory = check_directory(prefix)
        with self._translated(prefix):
            return _infos(obstore.list(self._store, directory or None, chunk_size=1000).collect())

    def list_dir(
        self, prefix: str, *, after: str = "", before: str = "", known: Container[str] = frozenset()
    ) -> Listing:
        """See :class:`Storage`; with ``after`` what stands deeper is listed too, and left out: give
        a near ``before``.
        """
        directory = check_directory(prefix)
        with self._translated(prefix):
            if not after:
                found = _infos(
                    obstore.list_with_delimiter(self._store, directory or None)["objects"]
                )
            else:
                pages = obstore.list(self._store, directory or None, offset=after, chunk_size=1000)
                wanted = takewhile(lambda page: not before or page[0]["path"] < before, pages)
                found = _infos(
                    entry
                    for page in wanted
                    for entry in page
                    if _is_direct(entry["path"], directory)
                )
        return [
            info
            for info in found
            if is_between(info.path, after, before) and info.path not in known
        ]

    def children(self, prefix: str) -> Names:
        """See :class:`Storage`."""
        directory = check_directory(prefix)
        with self._translated(prefix):
            found = obstore.list_with_delimiter(self._store, directory or None)
        paths = [*found["common_prefixes"], *(entry["path"] for entry in found["objects"])]
        return sorted(path.rpartition("/")[2] for path in paths if not is_temporary(path))

    def size(self, path: str) -> int | None:
        """See :class:`Storage`."""
        try:
            return self._require_size(path)
        except errors.Missing:
            return None

    def begin(self, act: Callable[[], T]) -> Callable[[], T]:
        """See :class:`Storage`; in another thread."""
        return self._at_once.begin(act)

    def uri(self, path: str) -> str:
        """See :class:`Storage`; Hadoop calls S3 ``s3a``."""
        root = unquote("s3a" + self.url[2:] if self.url.startswith("s3://") else self.url)
        return f"{root}/{path}" if path else root

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        """Turn what obstore says into our kinds of error; a text with secrets in it is not kept as
        their cause.
        """
        _refuse_forked(self.url)
        try:
            yield
        except (exceptions.BaseError, OSError, NotImplementedError) as error:
            hidden = isinstance(error, FileNotFoundError) or shows_secrets(error, self._place)
            raise explained(error, path, self._place) from (None if hidden else error)

    def _put(self, path: str, data: Data, mode: Any) -> bool:
        content = joined(data)
        for attempt in range(_CONFLICTS_MAX):
            if attempt:
                self.sleep(_CONFLICT_SECONDS * attempt)
            with self._translated(path):
                try:
                    obstore.put(
                        self._store, check_path(path), content, mode=mode, use_multipart=False
                    )
                    return True
                except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
                    if mode != "create":
                        raise
                    if not says_conflict(error):
                        return False
        raise errors.Unavailable(
            f"the store refused writing {path!r} again and again: it tells of another put under way"
        )

    def _probe(self) -> bool:
        try:
            return not self._put(_PROBE_PATH, _PROBE_DATA, "create") or not self._put(
                _PROBE_PATH, _PROBE_DATA, "create"
            )
        except errors.Unsupported:
            return False

    def _require_size(self, path: str) -> int:
        with self._translated(path):
            return int(obstore.head(self._store, check_path(path))["size"])

    def _read_range(self, path: str, offset: int, count: int) -> bytes:
        """Return a range in one request; asks for the size only to explain a failure."""
        if count == 0:
            return b""
        try:
            data = obstore.get_range(
                self._store, check_path(path), start=offset, length=count
            ).to_bytes()
        except exceptions.GenericError:
            with suppress(errors.Unavailable):  # which tells less than this one
                check_range(path, offset, count, self._require_size(path))
            raise
        check_range(path, offset, count, offset + len(data))
        return data


@for_life
def _speaking() -> set[int]:
    """Return the process in which obstore has begun its threads, if it has: a forked child has none
    of them, and would wait for ever.
    """
    return set()


def _refuse_forked(url: str) -> None:
    """Raise Unsupported in a process that was forked from one that has spoken to a store."""
    process, speaking = this_process(), _speaking()
    if process not in speaking:
        if speaking:
            raise errors.Unsupported(
                f"{url} cannot be reached from a process that was forked after its parent had used"
                " an object store",
                hint=(
                    "start processes with multiprocessing.get_context('spawn') or 'forkserver', or"
                    " fork before the first use"
                ),
            )
        speaking.add(process)


def _is_direct(path: str, directory: str) -> bool:
    return path.rpartition("/")[0] == directory


def _infos(objects: Iterable[Any]) -> list[ObjectInfo]:
    infos = [
        ObjectInfo(
            entry["path"],
            entry["size"],
            (entry["last_modified"] - _EPOCH) // timedelta(microseconds=1),
        )
        for entry in objects
        if not is_temporary(entry["path"])
    ]
    return sorted(infos, key=lambda info: info.path)


def store_url(store: Any) -> str:
    """Return the URL of an obstore store.  Raises Unsupported for a kind that is no store of
    objects on a network.
    """
    kind = type(store).__name__
    scheme, bucket = {
        "S3Store": ("s3", "bucket"),
        "GCSStore": ("gs", "bucket"),
        "AzureStore": ("az", "container_name"),
        "MemoryStore": ("memory", ""),
    }.get(kind, ("", ""))
    if not scheme:
        raise errors.Unsupported(
            f"a store of the type {kind} cannot hold a table",
            hint="give an S3Store, GCSStore, AzureStore, or a path or URL",
        )
    if scheme == "memory":
        return "memory:///"
    return f"{scheme}://{store.config[bucket]}/{(store.prefix or '').replace('%', '%25')}".rstrip(
        "/"
    )


def _made(url: str, given: StoreOptions, place: Place) -> Any:
    """Return a new obstore store.  Raises Invalid if it refuses the options or what the environment
    says.

    A refused value may be a secret in a wrong place, so no value is shown then.
    """
    unseen = Place(place.url, sorted(given.config.values(), key=len, reverse=True))
    try:
        if url.startswith("memory:"):
            return from_url(url)
        return from_url(
            url,
            config=dict(given.config),  # type: ignore[call-overload]
            client_options=dict(given.client),
            retry_config=dict(given.retry),
        )
    except (exceptions.BaseError, OSError, ValueError, TypeError) as error:
        raise refused_options(error, unseen) from (None if shows_secrets(error, unseen) else error)


def _public_options(scheme: str, store: Any) -> dict[str, str]:
    """Return what another process may know of a ready store."""
    service = SERVICES.get(scheme)
    if service is None or not hasattr(store, "config"):
        return {}
    found = {**store.config, **(store.client_options or {})}
    texts = {
        name: str(value)
        for name, value in found.items()
        if name in service.public or name == "allow_http"
    }
    return {name: text for name, text in texts.items() if is_without_secrets(text)}
