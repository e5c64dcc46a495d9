"""Functions for queries on Spark that the table's indexes understand.

from mdt.spark.functions import match

mdt.read(spark, path).where(match("note", "fast car"))
"""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import Column
from pyspark.sql import functions as sf

from indexes import tokenizers
from indexes.tokenizers import Ngram, Word
from mdt.errors import Invalid, Unsupported
from mdt.spark.patterns import NEVER, token_pattern


def match(column: Column | str, text: str, tokenizer: str = "word") -> Column:
    """Return whether texts have all tokens of ``text``: boolean, null for null.

    It is the operator ``match`` of filters (``indexes.predicate``), in Spark's own expressions: no Python runs for each
    row, and planning prunes files by a text index.  ``column``: strings; ``tokenizer``: "word", or "ngram(n)" for
    pieces of n characters.  A text without tokens matches nothing.

    Raises ``errors.Invalid`` for a tokenizer that is not known, ``errors.Unsupported`` for others than these two.
    """
    try:
        chosen = tokenizers.find(tokenizer)
        tokens = chosen.query(text)
    except ValueError as error:
        raise Invalid(f"match({text!r}, {tokenizer!r}): {error}") from error
    if not isinstance(chosen, Word | Ngram):
        raise Unsupported(
            f"Spark cannot tokenize by {tokenizer!r}",
            hint='filter by it in Arrow, scan(where="match(…)").to_arrow(); on Spark use word or ngram(n)',
        )
    texts = sf.col(column) if isinstance(column, str) else column
    patterns = [token_pattern(token, isinstance(chosen, Word)) for token in tokens] or [NEVER]
    return reduce(and_, [texts.rlike(one) for one in patterns])
