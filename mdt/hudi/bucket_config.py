"""Hudi's file with the bucket count of each partition (RFC 89,
``PartitionBucketIndexHashingConfig``).
"""

from __future__ import annotations

import json

FOLDER = ".hoodie/.bucket_index/partition_bucket_index_meta/configs"
PATH = f"{FOLDER}/00000000000000.hashing_config"
"""The file of the table's creation, whose instant is fourteen zeros."""
CONSISTENT_FOLDER = ".hoodie/.bucket_index/consistent_hashing_metadata"
"""The ranges of hashes of buckets that Hudi splits and joins
(``hoodie.index.bucket.engine=CONSISTENT_HASHING``).
"""
_VERSION = 1


def encode(expressions: str, buckets: int) -> bytes:
    """Return the content of the file.

    Args:
        expressions: Rules in Hudi's form, ``regex,buckets;regex,buckets``.
        buckets: Bucket count of all other partitions.

    >>> json.loads(encode("-06-,16", 4))["expressions"]
    '-06-,16'
    """
    config = {
        "expressions": expressions,
        "defaultBucketNumber": buckets,
        "rule": "regex",
        "version": _VERSION,
    }
    return json.dumps({**config, "instant": PATH.rpartition("/")[2].partition(".")[0]}).encode()
