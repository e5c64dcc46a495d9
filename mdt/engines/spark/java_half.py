"""The Java half of this package (folder ``java``), compiled once per user, package version and
Spark.

Compiling takes most of the time of the first use in a new session. The JAR is therefore cached in
the user's cache directory (:mod:`mdt.stores.trusted_cache`), under a name derived from its sources
and the versions of Spark and Java.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib import resources
from io import BytesIO
from typing import Any
from weakref import WeakKeyDictionary
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from pyspark import SparkContext

from mdt.engines.spark import private
from mdt.errors import Unsupported
from mdt.limits import JARS_MAX
from mdt.session import Guarded, for_life
from mdt.stores.trusted_cache import OwnFiles

JAR_CACHE = OwnFiles("jars-1", JARS_MAX)
_FIRST = "mdt/spark/Jar.class"
_SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"


@for_life
def _factories() -> Guarded[WeakKeyDictionary[Any, Any]]:
    """Return the factories by JVM, keyed by its gateway."""
    return Guarded(WeakKeyDictionary())


def java_sources() -> dict[str, str]:
    """Return the Java sources: file name -> text. All folders form a single Java package, so file
    names are unique.
    """
    sources: dict[str, str] = {}
    for room in resources.files(__package__).joinpath("java").iterdir():
        for file in room.iterdir() if room.is_dir() else ():
            if file.name.endswith(".java"):
                assert file.name not in sources, "two classes of one name"
                sources[file.name] = file.read_text("utf-8")
    return sources


def factory_of(context: SparkContext) -> Any:
    """Return the JVM's ``Factory``, loaded at the first call. Raises Unsupported for Spark releases
    that lack a required class or method.
    """
    gateway = private.gateway(context)
    factories = _factories()
    with factories.lock:
        if gateway not in factories.value:
            factories.value[gateway] = _create_factory(context)
        return factories.value[gateway]


def jar_name(sources: Mapping[str, str], platform: str) -> str:
    """Return the file name of the JAR for these sources on a platform
    (:func:`mdt.engines.spark.private.platform`).
    """
    digest = hashlib.sha256()
    for text in (platform, *(part for source in sorted(sources.items()) for part in source)):
        data = text.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return f"{digest.hexdigest()}.jar"


def pack_jar(classes: Mapping[str, bytes]) -> bytes:
    """Return a JAR of classes (file name -> bytes). Equal classes give equal bytes."""
    jar = BytesIO()
    with ZipFile(jar, "w", ZIP_DEFLATED) as archive:
        for name, data in [*sorted(classes.items()), (_SERVICE, b"mdt.spark.MdtSource\n")]:
            archive.writestr(ZipInfo(name), data, ZIP_DEFLATED)
    return jar.getvalue()


def _load(context: SparkContext, jar: bytes) -> Any:
    """Return the Factory of a JAR. Raises Unsupported, or KeyError or BadZipFile if the bytes are
    not such a JAR.
    """
    with ZipFile(BytesIO(jar)) as archive:
        first = archive.read(_FIRST)
    return private.load_jar(context, jar, first)


def _create_factory(context: SparkContext) -> Any:
    """Return a Factory from the cached JAR. Compiles if there is none or if it cannot be used."""
    sources, platform = java_sources(), private.platform(context)
    name = jar_name(sources, platform)
    cached = JAR_CACHE.get(name) if platform else None
    if cached is not None:
        try:
            return _load(context, cached)
        except (Unsupported, BadZipFile, KeyError):
            # This session may still find the dropped classes first, the next one will not.
            JAR_CACHE.drop(name)
    _, classes = private.compile_java(context, sources)
    jar = pack_jar({str(file): classes[file] for file in classes})
    factory = _load(context, jar)
    if platform:
        JAR_CACHE.put(name, jar)
    return factory
