"""Deletion of the data files that a committed cleaning has released.

It is done by the cleaning writer, or by a later writer that finds its claim.
"""

from __future__ import annotations

import pyarrow.compute as pc

from mdt.commit import claims
from mdt.formats.expiring import expire
from mdt.metadata import references
from mdt.metadata.log import trusted_names as names
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.metadata import Metadata


def delete_released(metadata: Metadata, record: CommitRecord) -> None:
    """Delete the data files that the cleaning ``record`` has released, after what other formats
    have of them. Idempotent.

    The record is not trusted. A file is kept if a readable snapshot refers to it, or if its token
    is that of a running transaction.
    """
    expire(metadata)
    released = record.table("cleaned")["path"]
    if not len(released):
        return
    running_claims, _ = claims.read_all(metadata.storage)
    running = {claim.token for claim in running_claims}
    referenced = references.data_file_paths(metadata, metadata.newest(watched=False))
    unused = released.filter(pc.invert(pc.is_in(released, referenced))).to_pylist()
    metadata.storage.delete_many(
        [path for path in unused if names.writer_of(path).token not in running]
    )
