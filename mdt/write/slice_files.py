"""Writes the slices of a transaction: data files on threads, and an object with their metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from pyroaring import BitMap

from indexes.base import KeyIndex
from mdt.commit.operation import Changes, Claim
from mdt.errors import MdtError
from mdt.hudi import properties
from mdt.hudi.partitions import partition_depth
from mdt.limits import FAR_FILES_READ_AT_ONCE, FAR_OBJECT_WHOLE_BYTES_MAX, INLINE_SUMMARY_BYTES_MAX
from mdt.metadata import key_indexes
from mdt.metadata.files import paths
from mdt.metadata.files.attachments import AttachmentWriter
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.key_parts import KeyPart
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.progress import Progress, report_each
from mdt.stores.contract import wait_all
from mdt.write.marked_files import FileTarget
from mdt.write.new_files import WriteJob, Written
from mdt.write.slices import Slice
from mdt.write.summarize import Indexed, form_shards, stats_of_small_files

T = TypeVar("T", bound=FileTarget)

_MANY_FILES = 64
_SMALL_FILE_ROWS = 1000
"""If at least :data:`_MANY_FILES` files have fewer rows on average, a single thread makes them."""


def write_slices(
    shared: WriteJob,
    targets: Sequence[T],
    slice_of: Callable[[T], Slice],
    progress: Progress | None = None,
    *,
    read: Sequence[int],
    part: str = "",
    rows: int | None = None,
) -> Changes:
    """Write the slices of ``targets`` on a thread pool, then the summaries. Return the changes to
    commit.

    Many small files are made by one thread while others store them. Making them is mostly Python
    code, and threads that share the GIL cost more than a single one. If rows are read from remote
    storage, all threads are used, because they mostly wait.

    Args:
        slice_of: Called in the writing thread, so that the rows of a slice are gathered only when
            needed.
        read: File groups whose rows are read.
        part: As for :func:`collect`.
        rows: Approximate number of rows in all slices, if known.
    """
    threads = _threads(shared, read)
    shared.marked.mark(enumerate(targets))

    def written(task: int, target: T) -> Written:
        return shared.run(task, slice_of(target))

    try:
        if len(targets) == 1:  # avoids the start of a thread, about 1 ms
            return collect(
                shared,
                report_each(map(written, (0,), targets), 1, progress),
                threads=threads,
                part=part,
            )
        are_small = (
            rows is not None
            and len(targets) >= _MANY_FILES
            and rows < _SMALL_FILE_ROWS * len(targets)
        )
        # If no rows are read, the rows to write are in memory already, so another thread costs
        # hardly any memory.
        extra_threads = rows is not None and not read and not are_small and _waits_for_disk(shared)
        with ThreadPoolExecutor(threads + extra_threads) as pool:
            finished: Iterable[Written]
            if are_small and threads == shared.options.threads("writer"):
                shared = shared.storing_on(pool)
                finished = map(written, range(len(targets)), targets)
            else:
                finished = pool.map(written, range(len(targets)), targets)
            return collect(
                shared, report_each(finished, len(targets), progress), threads=threads, part=part
            )
    except Exception:
        with suppress(MdtError):  # uploads must end before their files are removed
            shared.stop()
        raise


def _waits_for_disk(shared: WriteJob) -> bool:
    """Return True if each writing thread waits for disk flushes and the number of threads is not
    set by an option.
    """
    storage = shared.metadata.storage
    return not storage.is_remote and storage.is_durable and not shared.options.writer_threads


def _threads(shared: WriteJob, read: Sequence[int]) -> int:
    """Return the number of writing threads. More threads read small remote files, because they
    mostly wait.

    Args:
        read: File groups whose rows are read.
    """
    options, snapshot = shared.options, shared.snapshot
    threads = options.threads("writer")
    if not read or options.writer_threads or not shared.metadata.storage.is_remote:
        return threads
    members = np.concatenate([snapshot.file_groups.members(group) for group in read])
    largest = int(snapshot.files.numpy("size")[members].max(initial=0))
    return (
        max(threads, FAR_FILES_READ_AT_ONCE) if largest <= FAR_OBJECT_WHOLE_BYTES_MAX else threads
    )


def new_partitions(
    metadata: Metadata, snapshot: Snapshot, claim: Claim, partitions: Sequence[str]
) -> None:
    """Put Hudi's partition metadata where missing. Harmless if the transaction fails.

    Hudi's cleaner removes that of a partition without live files. Then only the storage knows.
    """
    missing = list(partitions)
    if not snapshot.is_shared:
        missing = [
            partition
            for partition in partitions
            if not snapshot.file_groups.has_partition(partition)
        ]

    def put(partition: str) -> None:
        content = properties.partition_metadata(claim.instant, partition_depth(partition))
        metadata.storage.put_if_absent(paths.partition_metadata(partition), content)

    if metadata.storage.is_remote:
        metadata.storage.together(*(partial(put, partition) for partition in missing))
        return
    with ThreadPoolExecutor(metadata.options(snapshot.definition).threads("writer")) as pool:
        for _ in pool.map(put, missing):
            continue


def collect(
    shared: WriteJob, finished: Iterable[Written], *, threads: int, part: str = ""
) -> Changes:
    """Write the summaries and maps of finished slices. Return the changes to commit.

    Args:
        finished: Consumed one by one, so that the index input of slices does not accumulate.
        part: Suffix of the object name, for transactions that write several.
    """
    claim = shared.claim
    objects = AttachmentWriter(
        paths.attachment(claim.instant, f"{claim.token}{part}"), shared.store_attachments
    )
    locations: list[dict[str, Any]] = []
    slices: list[Written] = []
    removed: list[int] = []
    vectors: dict[int, BitMap] = {}
    light = ((replace(w, indexed=Indexed()), w.indexed) for w in finished)
    for w, shard, first_row in form_shards(objects, light, threads=threads):
        keys = pages = None
        if w.key_map is not None:
            keys = objects.add(w.key_map)
            shared.metadata.objects.keep_key_map(keys, w.key_map)
        if w.page_map is not None:
            pages = objects.add(w.page_map)
        objects.settle()
        locations.append(
            {"shard": shard, "first_row": first_row, "key_map": keys, "page_map": pages}
        )
        slices.append(w)
        removed += w.removed
        vectors |= w.vectors
    small = [
        (location, w.few_stats)
        for location, w in zip(locations, slices, strict=True)
        if w.few_stats is not None
    ]
    stats_of_files = stats_of_small_files(shared.snapshot.definition, [few for _, few in small])
    for (location, _), stats in zip(small, stats_of_files, strict=True):
        location["stats"] = stats
    files = [replace(w.file, **location) for w, location in zip(slices, locations, strict=True)]
    key_parts = []
    grown = [w for w in slices if len(w.gained)]
    if grown and key_indexes.is_kept_in_table(shared.snapshot.definition.key_index):
        # Without gained keys the package of the key index need not be installed.
        key_parts.append(_key_part(shared.metadata.key_index(shared.snapshot), objects, grown))
    storage = shared.metadata.storage
    wait_all([storage.begin_storing(partial(objects.write, storage)), shared.wait_for_uploads])
    return Changes(files, removed, vectors, key_parts)


def _key_part(index: KeyIndex, objects: AttachmentWriter, grown: Sequence[Written]) -> KeyPart:
    """Return the key part with the keys gained by the slices ``grown``, at least one."""
    data = index.build_of_groups([w.gained for w in grown], [w.gained_hashes for w in grown])
    groups = tuple(w.file.file_id for w in grown)
    if len(data) <= INLINE_SUMMARY_BYTES_MAX:
        return KeyPart(index.name, groups, data, None)
    return KeyPart(index.name, groups, None, objects.add(data))
