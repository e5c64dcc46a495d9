"""Catalogs in which :func:`mdt.register` enters tables, so that other engines find them by name."""

from mdt.catalogs.hive import HiveMetastore
from mdt.catalogs.polaris import Polaris
from mdt.catalogs.unity import Unity

__all__ = ["HiveMetastore", "Polaris", "Unity"]
