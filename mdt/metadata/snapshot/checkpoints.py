"""The checkpoints on a table's storage, and the snapshot of each.

The hint has the seq of the newest.  It may be stale, damaged or missing.  Then the manifests are
listed.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import neg
from typing import TYPE_CHECKING, Any

from mdt import logs
from mdt.config import parse_options
from mdt.errors import Corrupt
from mdt.limits import FRAME_BYTES_MAX
from mdt.metadata.files import paths
from mdt.metadata.log import codec
from mdt.metadata.log.checkpoint_columns import PAGES, Columns
from mdt.metadata.log.imports import imports_of
from mdt.metadata.log.retention import retention_of
from mdt.metadata.log.streams import streams_of
from mdt.metadata.log.tags import tags_of
from mdt.metadata.log.trusted_names import is_instant
from mdt.metadata.snapshot.segments import KnownSegments
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.metadata.snapshot.stored_columns import StoredColumns, parse_layout
from mdt.schema.definition import from_json
from mdt.stores import storage as stores
from mdt.stores.mappings import Mappings
from mdt.stores.storage import Storage

if TYPE_CHECKING:
    from mdt.stores.storage import PageCache

MANIFEST = b"COLS"
VERSION = 1


def hint_to(seq: int) -> bytes:
    """Return the content of a hint to checkpoint ``seq``."""
    return json.dumps({"seq": seq}).encode()


def rebuilt_snapshot(columns: Columns, snapshot: Snapshot) -> Snapshot:
    """Return the snapshot of a checkpoint whose ``columns`` were made again.

    ``snapshot`` is the same snapshot made from the log, with the table's definition and retention.
    """
    return Snapshot(
        snapshot.seq,
        snapshot.definition,
        columns,
        snapshot.last_instant,
        retention=snapshot.retention,
        tags=snapshot.tags,
        streams=snapshot.streams,
        imports=snapshot.imports,
        last_completion=snapshot.last_completion,
        known=snapshot.known,
    )


def _completion_of(header: Mapping[str, Any]) -> str:
    """Return the newest completion in the header of a checkpoint. Raises ValueError if it is
    malformed.
    """
    completion = header.get("last_completion", "")
    if completion and not is_instant(completion):
        raise ValueError("the newest completion is malformed")
    return str(completion)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint: its ``snapshot``, the snapshot's ``columns``, and the ``header`` of the
    manifest.
    """

    snapshot: Snapshot
    columns: StoredColumns
    header: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Reads checkpoints.

    ``overrides`` are options that take precedence over the table's.  ``known`` caches segments.
    ``damaged`` is called for damage.  ``rebuild`` makes the columns of checkpoint ``seq`` again
    without reading it.
    """

    storage: Storage
    mappings: Mappings
    overrides: Mapping[str, object]
    known: KnownSegments
    damaged: Callable[[Corrupt], None]
    rebuild: Callable[[int], Columns]

    def hinted(self) -> int | None:
        """Return the seq in the hint, or None without a hint.  Raises Corrupt if it is
        malformed.
        """
        hint = self.storage.read_if_exists(paths.HINT)
        if hint is None:
            return None
        try:
            seq = json.loads(hint)["seq"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Corrupt(
                f"the hint cannot be read: {error!r}", path=paths.HINT, offset=0
            ) from error
        if type(seq) is not int or seq < 0:
            raise Corrupt(
                "the hint does not name a checkpoint",
                path=paths.HINT,
                offset=0,
                expected="a number",
                got=repr(seq)[:40],
            )
        return seq

    def listed(self) -> list[int]:
        """Return the seqs of all manifests, descending.  One listing."""
        seqs = (paths.seq_of(info.path) for info in self.storage.list_dir(paths.CHECKPOINTS_DIR))
        return sorted((seq for seq in seqs if seq is not None), reverse=True)

    def before(self, seq: int | None, listed: Sequence[int] | None = None) -> Checkpoint | None:
        """Return the newest readable checkpoint at or before ``seq`` (None for any), or None.

        ``listed`` is a cached listing; refreshed if None or if a checkpoint has disappeared.
        """
        seqs = self.listed() if listed is None else listed
        for candidate in seqs[0 if seq is None else bisect_left(seqs, -seq, key=neg) :]:
            try:
                return self.open(candidate)
            except Corrupt as error:
                if listed is not None:
                    return self.before(seq)
                self.damaged(error)
        return None

    def open(self, seq: int) -> Checkpoint:
        """Return checkpoint ``seq``.  Reads only its manifest.  Raises Corrupt if it is damaged or
        missing.
        """
        columns, header = self.columns(seq)
        path = paths.checkpoint_manifest(seq)
        definition = from_json(header["definition"], path=path)
        try:
            retention, tags, streams = retention_of(header), tags_of(header), streams_of(header)
            imports = imports_of(header)
            instant = str(header["last_instant"])
            completion = _completion_of(header)
        except (KeyError, ValueError) as error:
            raise Corrupt(f"a checkpoint cannot be read: {error!r}", path=path) from error
        snapshot = Snapshot(
            seq,
            definition,
            columns,
            instant,
            retention=retention,
            tags=tags,
            streams=streams,
            imports=imports,
            last_completion=completion,
            known=self.known,
        )
        return Checkpoint(snapshot, columns, header)

    def columns(self, seq: int, *, cached: bool = True) -> tuple[StoredColumns, dict[str, Any]]:
        """Return the columns of checkpoint ``seq`` and the header of its manifest.

        Raises Corrupt as :meth:`open` does.
        """
        path = paths.checkpoint_manifest(seq)
        payload = codec.unframe(
            self.storage.read_whole(path, FRAME_BYTES_MAX), MANIFEST, path=path, version_max=VERSION
        )
        header, sections = codec.unpack(payload, path=path)
        try:
            pages = codec.decode_ipc(sections["pages"], PAGES, path=path)
            layout = parse_layout(header, pages, path=path)
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(f"a checkpoint cannot be read: {error!r}", path=path) from error
        if layout.seq != seq:
            raise Corrupt(
                "a manifest has a wrong number", path=path, expected=str(seq), got=str(layout.seq)
            )
        cache = self._page_cache() if cached else None
        columns = StoredColumns(
            self.storage,
            self.mappings,
            layout,
            cache=cache,
            damaged=self.damaged,
            rebuild=lambda: self.rebuild(seq),
        )
        return columns, header

    def _page_cache(self) -> PageCache | None:
        """Return the local disk cache for pages of remote storage.  Other pages are mapped or in
        memory.
        """
        options = parse_options(self.overrides)
        if not self.storage.is_remote or not options.cache_bytes_max:
            return None
        cache = stores.open_page_cache(options.cache_dir, options.cache_bytes_max)
        if cache.refusal:
            text = "%s: metadata pages are not cached on the local disk: %s"
            logs.warn_once(
                logs.METADATA, cache.said, "refusal", text, self.storage.url, cache.refusal
            )
        return cache
