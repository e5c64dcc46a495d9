"""Counts what is asked of the storages that modules open."""

from mdt.stores.storage import open_storage
from mdt.testing.slow import CountingStorage


def counted_storages(monkeypatch, *modules):
    """Let ``modules``, which import ``open_storage``, open storages that count; return the list
    that these will be in.
    """
    made = []

    def opened(place, **more):
        made.append(CountingStorage(open_storage(place, **more)))
        return made[-1]

    for module in modules:
        monkeypatch.setattr(module, "open_storage", opened)
    return made
