"""Hudi's Bloom filter of a base file's keys, for its footer."""

from __future__ import annotations

import pyarrow as pa

from indexes.hudi_bloom import DYNAMIC_V0, Filling
from mdt.config import Options


def filling(keys: int, options: Options) -> Filling:
    """Return the filter that takes so many record keys, with the form and the false positives that
    the options say.
    """
    if options.bloom_filter_type == DYNAMIC_V0:
        return Filling(
            DYNAMIC_V0, keys, options.bloom_entries, options.bloom_fpp, options.bloom_entries_max
        )
    return Filling(options.bloom_filter_type, keys, max(1, keys), options.bloom_fpp)


def footer_bloom(keys: pa.Array, options: Options) -> bytes:
    """Return the filter of record keys, string[n], as :func:`filling` makes it."""
    filter = filling(len(keys), options)
    filter.add(keys)
    return filter.text().encode("ascii")
