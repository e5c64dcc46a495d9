"""The state of Hudi's timeline that the log of an imported table contains. It is stored beside the
log, after its records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from mdt.errors import Corrupt
from mdt.hudi.read.fields import parse_json
from mdt.limits import INSTANT_BYTES_MAX
from mdt.stores.storage import Storage

_PATH = "timeline"
_FORM = re.compile(rb"([0-9a-f]{64}) ([0-9]{1,18})( {.*})?")


@dataclass(frozen=True, slots=True)
class KnownTimeline:
    """A state of Hudi's timeline that the log contains.

    Attributes:
        digest: Digest of the timeline, "" before the first import.
        seq: Number of the last record.
        numbers: :attr:`mdt.hudi.read.schema_history.SchemaHistory.numbers`, empty if no column was
            renamed.
    """

    digest: str = ""
    seq: int = -1
    numbers: Mapping[str, int] = field(default_factory=dict)


def put_known(storage: Storage, known: KnownTimeline) -> None:
    """Store the state that the log contains.

    >>> from mdt.stores.storage import MemoryStorage
    >>> storage = MemoryStorage()
    >>> put_known(storage, KnownTimeline("0" * 64, 3, {"city": 5}))
    >>> load_known(storage).seq, load_known(storage).numbers
    (3, {'city': 5})
    """
    text = f"{known.digest} {known.seq}"
    if known.numbers:
        text += f" {json.dumps(known.numbers)}"
    storage.replace(_PATH, text.encode("ascii"))


def load_known(storage: Storage) -> KnownTimeline:
    """Return the state that the log contains. Raises Corrupt."""
    if storage.size(_PATH) is None:
        return KnownTimeline()
    match = _FORM.fullmatch(storage.read_whole(_PATH, INSTANT_BYTES_MAX))
    if match is None:
        raise Corrupt("the digest of a timeline cannot be read", path=_PATH)
    numbers = parse_json(match[3] or b"{}", _PATH)
    known = {path: numbers.number(path) for path in numbers.names()}
    return KnownTimeline(match[1].decode("ascii"), int(match[2]), known)
