"""Catalogs in which :func:`mdt.register` enters tables, so that other engines find them by name."""

from mdt.catalogs.hive import HiveMetastore
from mdt.catalogs.polaris import Polaris

__all__ = ["HiveMetastore", "Polaris"]
