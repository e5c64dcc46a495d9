"""Tables that Apache Hudi wrote, from the fixtures beside the repository."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pyarrow as pa

from mdt.hudi.read import loading
from mdt.stores.storage import LocalStorage

FIXTURES = Path(__file__).resolve().parents[3] / "shared" / "fixtures"
ZIPS = [
    path for folder in ("hudi", "hudi_rs") for path in sorted((FIXTURES / folder).glob("*.zip"))
]


def unpacked(path: Path, folder: Path, *, only: str = "") -> Path:
    """Unpack a table, or its files with ``only`` in their paths, and return its directory."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if not name.startswith("__MACOSX") and only in name:
                archive.extract(name, folder)
    [properties] = folder.glob("*/.hoodie/hoodie.properties")
    return properties.parents[1]


def fixture(name: str, folder: Path) -> Path:
    """Unpack a table of hudi-rs' tests and return its directory."""
    return unpacked(FIXTURES / "hudi_rs" / f"{name}.zip", folder)


def bag(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


def instants(folder: Path) -> list[str]:
    """Return the instants of the completed writes, in the order of their completion."""
    storage = LocalStorage(str(folder))
    timeline = loading.load_timeline(storage, loading.load_properties(storage))
    return [write.time for write in timeline.writes()]
