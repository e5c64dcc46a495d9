"""Hudi's Bloom filter of record keys, for base file footers."""

from __future__ import annotations

import pyarrow as pa

from indexes.hudi_bloom import DYNAMIC_V0, FilterBuilder
from mdt.config import Options


def filling(keys: int, options: Options) -> FilterBuilder:
    """Return an empty filter for ``keys`` record keys. Its type and false-positive rate come from
    the options.
    """
    if options.bloom_filter_type == DYNAMIC_V0:
        return FilterBuilder(
            DYNAMIC_V0, keys, options.bloom_entries, options.bloom_fpp, options.bloom_entries_max
        )
    return FilterBuilder(options.bloom_filter_type, keys, max(1, keys), options.bloom_fpp)


def footer_bloom(keys: pa.Array, options: Options) -> bytes:
    """Return the encoded filter of record keys, string[n]. Options as for :func:`filling`."""
    filter = filling(len(keys), options)
    filter.add(keys)
    return filter.text().encode("ascii")
