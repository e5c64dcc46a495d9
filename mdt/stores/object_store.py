"""Object stores: S3, Google Cloud Storage, Azure, or obstore's in-memory store.

``put_if_absent`` is a conditional put (``If-None-Match: *``). Some S3-compatible stores accept the
header and ignore it. The first write therefore tests it with an object of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import chain, takewhile
from typing import Any, TypeVar
from urllib.parse import unquote

import obstore
import pyarrow as pa
from obstore import exceptions
from obstore.store import from_url

from mdt import errors
from mdt.forking import this_process
from mdt.session import for_life
from mdt.stores.concurrent_io import StorageThreads
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
    infos_between,
    is_temporary,
    name_taken,
    to_bytes,
)
from mdt.stores.options import (
    AZURE,
    SERVICES,
    StoreOptions,
    is_without_secrets,
    parse_store_options,
    refuse_secrets,
)
from mdt.stores.positioned_file import RangeFile
from mdt.stores.store_errors import (
    Place,
    contains_secrets,
    convert_error,
    is_conflict,
    refused_options,
)

_PROBE_PATH = ".hoodie/.mdt/probe"
_PROBE_DATA = b"mdt puts this object twice to learn whether the store refuses the second one\n"
T = TypeVar("T")
_CONFLICTS_MAX = 4
_CONFLICT_SECONDS = 0.1
"""A conditional put that meets a concurrent put, possibly its own earlier try, is repeated up to
``_CONFLICTS_MAX`` times, because it is not yet known which put wins.
"""
_AZURE_ENVIRONMENT = {
    "AZURE_STORAGE_ACCOUNT_NAME": "account_name",
    "AZURE_STORAGE_ENDPOINT": "endpoint",
    "AZURE_ENDPOINT": "endpoint",
    "AZURE_STORAGE_USE_EMULATOR": "use_emulator",
    "AZURE_USE_FABRIC_ENDPOINT": "use_fabric_endpoint",
}
"""Variable of the environment that obstore reads -> its option, of those that name the place."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ObjectStorage(Storage):
    """The objects below a URL such as ``s3://bucket/table``.

    A pickle contains the URL and the options that are not secret.

    Args:
        store: A ready obstore store, e.g. with other kinds of credentials. By default it is made
            from the URL, ``options`` and the environment.
        options: See ``mdt.stores.options``. They take precedence over the environment.
    """

    is_remote = True

    def __init__(
        self, url: str, store: Any = None, options: Mapping[str, object] | None = None
    ) -> None:
        self.url = url.rstrip("/")
        scheme = url.partition(":")[0]
        if store is None:
            refuse_secrets(scheme, url)
        parsed = parse_store_options(scheme, options, os.environ)
        self.public_options = (
            dict(parsed.public) if store is None else _public_options(scheme, store)
        )
        self._place = Place(self.url, parsed.secrets)
        self._store = _create_store(url, parsed, self._place) if store is None else store
        self._location = _location(self.url, self._store, os.environ)
        self._conditional_put: bool | None = None
        self._lock = threading.Lock()
        self._at_once = StorageThreads()

    def __repr__(self) -> str:
        return f"<objects below {self.url}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the URL and the public options, but no secrets."""
        if self.url.startswith("memory:"):
            return super().__reduce__()  # raises Unsupported
        return ObjectStorage, (self.url, None, self.public_options)

    @property
    def conditional_put(self) -> bool:  # type: ignore[override]
        """True if the store refuses to overwrite an object.

        Tested once by one or two small puts, then cached.
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
            if length is None:
                length = check_range(path, offset, None, self._require_size(path))
            return self._read_range(path, offset, length)

    def read_whole(self, path: str, bytes_max: int) -> bytes:
        """See :class:`Storage`. One request; the size is checked before the body is read."""
        with self._translated(path):
            response = obstore.get(self._store, check_path(path))
            check_size(path, int(response.meta["size"]), bytes_max)
            return response.bytes().to_bytes()

    def open(self, path: str) -> Any:
        """See :class:`Storage`. Each read is one request, so use ``pre_buffer``."""
        return pa.PythonFile(RangeFile(self, path, self._require_size(path)), mode="r")

    def create(self, path: str, data: Data) -> None:
        """See :class:`Storage`. An existing object with the same bytes is accepted: it comes from
        an earlier try whose reply was lost.
        """
        if not self._put(path, data, mode="create") and self.read(path) != to_bytes(data):
            raise name_taken(path)

    def put_if_absent(self, path: str, data: Data) -> bool:
        """See :class:`Storage`."""
        return self._put(path, data, mode="create")

    has_versions = True

    def read_with_version(self, path: str, bytes_max: int) -> tuple[bytes, str] | None:
        """See :class:`Storage`. S3 and Azure compare ETags, Google Cloud Storage generations."""
        try:
            with self._translated(path):
                response = obstore.get(self._store, check_path(path))
                check_size(path, int(response.meta["size"]), bytes_max)
                return response.bytes().to_bytes(), _version_text(response.meta)
        except errors.Missing:
            return None

    def replace_version(self, path: str, data: Data, version: str) -> str | None:
        """See :class:`Storage`. A conditional put (``If-Match``)."""
        e_tag, _, generation = version.partition("\n")
        mode = {"e_tag": e_tag} | ({"version": generation} if generation else {})
        with self._translated(path):
            try:
                stored = obstore.put(
                    self._store,
                    check_path(path),
                    to_bytes(data),
                    mode=mode,  # type: ignore[arg-type]
                    use_multipart=False,
                )
            except (exceptions.PreconditionError, exceptions.NotFoundError):
                return None
            return _version_text(stored)

    def replace(self, path: str, data: Data) -> None:
        """See :class:`Storage`."""
        self._put(path, data, mode="overwrite")

    def delete(self, path: str) -> None:
        """See :class:`Storage`."""
        self.delete_many([path])

    def delete_many(self, paths: Iterable[str]) -> None:
        """See :class:`Storage`. Deletes many objects per request if the store supports it."""
        names = [check_path(path) for path in paths]
        if not names:
            return
        try:
            with self._translated(names[0]):
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
        self, prefix: str, *, after: str = "", before: str = "", skip: Container[str] = frozenset()
    ) -> Listing:
        """See :class:`Storage`. With ``after``, deeper objects are listed and filtered out, so pass
        a close ``before``.
        """
        directory = check_directory(prefix)
        with self._translated(prefix):
            if after:
                pages = obstore.list(self._store, directory or None, offset=after, chunk_size=1000)
                in_range = takewhile(lambda page: not before or page[0]["path"] < before, pages)
                infos = _infos(chain.from_iterable(in_range))
            else:
                infos = _infos(
                    obstore.list_with_delimiter(self._store, directory or None)["objects"]
                )
        return infos_between(infos, directory, after, before, skip)

    def children(self, prefix: str) -> Names:
        """See :class:`Storage`."""
        directory = check_directory(prefix)
        with self._translated(prefix):
            listing = obstore.list_with_delimiter(self._store, directory or None)
        paths = [*listing["common_prefixes"], *(entry["path"] for entry in listing["objects"])]
        return sorted(path.rpartition("/")[2] for path in paths if not is_temporary(path))

    def size(self, path: str) -> int | None:
        """See :class:`Storage`."""
        try:
            return self._require_size(path)
        except errors.Missing:
            return None

    def begin(self, act: Callable[[], T]) -> Callable[[], T]:
        """See :class:`Storage`. Runs in another thread."""
        return self._at_once.begin(act)

    @property
    def location(self) -> str:
        """See :class:`Storage`. The same for all schemes of a service."""
        return self._location

    def uri(self, path: str) -> str:
        """See :class:`Storage`. Hadoop's scheme for S3 is ``s3a``."""
        root = self._location
        if root.startswith("s3:"):
            root = "s3a" + root[2:]
        return f"{root}/{path}" if path else root

    def is_at(self, location: str) -> bool:
        """See :class:`Storage`. Earlier versions of mdt named the root by its URL."""
        return location in (self._location, unquote(self.url))

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        """Convert errors of obstore to the errors of ``mdt.errors``.

        An error whose text contains secrets is not attached as the cause.
        """
        _refuse_forked(self.url)
        try:
            yield
        except (exceptions.BaseError, OSError, NotImplementedError) as error:
            hides_cause = isinstance(error, FileNotFoundError) or contains_secrets(
                error, self._place
            )
            raise convert_error(error, path, self._place) from (None if hides_cause else error)

    def _put(self, path: str, data: Data, mode: Any) -> bool:
        content = to_bytes(data)
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
                    if not is_conflict(error):
                        return False
        raise errors.Unavailable(
            f"the store rejected every attempt to write {path!r} because of a concurrent write"
        )

    def _probe(self) -> bool:
        try:
            return not all(self._put(_PROBE_PATH, _PROBE_DATA, "create") for _ in range(2))
        except errors.Unsupported:
            return False

    def _require_size(self, path: str) -> int:
        with self._translated(path):
            return int(obstore.head(self._store, check_path(path))["size"])

    def _read_range(self, path: str, offset: int, count: int) -> bytes:
        """Return a byte range in one request. The size is only requested to explain a failure."""
        if count == 0:
            return b""
        try:
            data = obstore.get_range(
                self._store, check_path(path), start=offset, length=count
            ).to_bytes()
        except exceptions.GenericError:
            with suppress(errors.Unavailable):  # less informative than the first error
                check_range(path, offset, count, self._require_size(path))
            raise
        check_range(path, offset, count, offset + len(data))
        return data


@for_life
def _obstore_processes() -> set[int]:
    """Return the id of the process in which obstore started its threads, if any.

    A forked child does not have these threads and would wait forever.
    """
    return set()


def _refuse_forked(url: str) -> None:
    """Raise Unsupported in a process that was forked after its parent had used an object store."""
    process, speaking = this_process(), _obstore_processes()
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


def _version_text(meta: Mapping[str, Any]) -> str:
    """Return the ETag and the generation of an object, as far as the store has them."""
    return f"{meta.get('e_tag') or ''}\n{meta.get('version') or ''}"


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
    """Return the URL of an obstore store. Raises Unsupported if it is not an object store."""
    kind = type(store).__name__
    scheme, bucket = {
        "S3Store": ("s3", "bucket"),
        "GCSStore": ("gs", "bucket"),
        "AzureStore": ("az", "container_name"),
        "MemoryStore": ("memory", ""),
    }.get(kind, ("", ""))
    if not scheme:
        raise errors.Unsupported(
            f"a store of type {kind} cannot contain a table",
            hint="give an S3Store, GCSStore, AzureStore, or a path or URL",
        )
    if scheme == "memory":
        return "memory:///"
    return f"{scheme}://{store.config[bucket]}/{(store.prefix or '').replace('%', '%25')}".rstrip(
        "/"
    )


def _location(url: str, store: Any, environment: Mapping[str, str]) -> str:
    """Return the root by one scheme of its service: for Azure ``abfss``, which most readers know,
    or ``az`` at an endpoint that is not named after the account.

    The options of the store lack what obstore takes from the ``environment``.
    """
    if SERVICES.get(url.partition(":")[0]) is not AZURE:
        return unquote(url)
    given = {
        option: environment[name]
        for name, option in _AZURE_ENVIRONMENT.items()
        if name in environment
    }
    config = {**given, **store.config}
    root = f"az://{config['container_name']}"
    is_elsewhere = "endpoint" in config or _is_true(config, "use_emulator")
    if not is_elsewhere and "account_name" in config:
        domain = "core.windows.net"
        if _is_true(config, "use_fabric_endpoint"):
            domain = "fabric.microsoft.com"
        root = f"abfss://{config['container_name']}@{config['account_name']}.dfs.{domain}"
    return f"{root}/{store.prefix or ''}".rstrip("/")


def _is_true(config: Mapping[str, Any], name: str) -> bool:
    return str(config.get(name)).lower() in ("1", "true", "on", "yes", "y")


def _create_store(url: str, options: StoreOptions, place: Place) -> Any:
    """Return a new obstore store.

    Raises Invalid if obstore rejects the options or the environment. The error shows no values,
    because a rejected value may be a misplaced secret.
    """
    unseen = Place(place.url, sorted(options.config.values(), key=len, reverse=True))
    try:
        if url.startswith("memory:"):
            return from_url(url)
        return from_url(
            url,
            config=dict(options.config),  # type: ignore[call-overload]
            client_options=dict(options.client),
            retry_config=dict(options.retry),
        )
    except (exceptions.BaseError, OSError, ValueError, TypeError) as error:
        raise refused_options(error, unseen) from (
            None if contains_secrets(error, unseen) else error
        )


def _public_options(scheme: str, store: Any) -> dict[str, str]:
    """Return the options of a ready store that are not secret, for other processes."""
    service = SERVICES.get(scheme)
    if service is None or not hasattr(store, "config"):
        return {}
    settings = {**store.config, **(store.client_options or {})}
    texts = {
        name: str(value)
        for name, value in settings.items()
        if name in service.public or name == "allow_http"
    }
    return {name: text for name, text in texts.items() if is_without_secrets(text)}
