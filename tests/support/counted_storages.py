"""Counts the requests to the storages that modules open."""

from mdt.stores.storage import open_storage
from mdt.testing.slow import CountingStorage


def counted_storages(monkeypatch, *modules):
    """Make ``modules``, which import ``open_storage``, open storages that count. Return the list of
    these storages.
    """
    storages = []

    def open_counting(location, **more):
        storages.append(CountingStorage(open_storage(location, **more)))
        return storages[-1]

    for module in modules:
        monkeypatch.setattr(module, "open_storage", open_counting)
    return storages
