"""``match`` on Spark finds the same rows as the reference, and the planner recognises it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType
from whole_files import WholeFiles

from indexes import tokenizers
from indexes.predicate import And, Leaf, Or, Predicate, matches, simplify
from mdt.engines.spark import file_index, patterns
from mdt.engines.spark.columns import to_column
from mdt.engines.spark.file_index import relation
from mdt.engines.spark.functions import match
from mdt.engines.spark.listing import Listing
from mdt.errors import Invalid, Unsupported

# All letters of the basic plane, and letters of the planes above that have case or that a careless
# regex may split.
LETTERS = [chr(code) for code in range(0x10000) if not 0xD800 <= code < 0xE000]
LETTERS += [
    chr(code)
    for code in (
        *range(0x10330, 0x10600),
        *range(0x1D400, 0x1D500),
        *range(0x1F300, 0x1F700),
        0x10FFFF,
    )
]
SURROUNDED = pa.table({"s": [f"x{letter}y" for letter in LETTERS]})
CASED = [
    letter
    for letter in LETTERS
    if len({letter, letter.lower(), letter.upper(), letter.casefold()}) > 1
]
TEXTS = pa.table(
    {
        "s": [
            None,
            "",
            *CASED,
            *map("{0}\U0001f600{0}x".format, CASED),
            "Fast cars, red",
            "red",
            "café cafe\u0301",
            "x\U0001f600Y",
        ]
    }
)
WORDS = [
    "x",
    "s",
    "å",
    "σ",
    "i",
    "ß",
    "ω",
    "ა",
    "ꮿ",
    "𐐨",
    "µ",
    "red FAST",
    "cafe\u0301",
    "CAFÉ",
    "x\u0301y",
    "?!",
    "",
    "İ",
    "\U0001d400",
]
GRAMS = [
    ("x\U0001f600", "ngram(2)"),
    ("xΣY", "ngram(3)"),
    (", r", "ngram(3)"),
    ("S", "ngram(1)"),
    ("\0y", "ngram(2)"),
]


def test_match_on_spark_equals_the_reference_for_every_letter(spark):
    compare(spark, SURROUNDED, [Leaf("s", "match", "x"), Leaf("s", "match", "Y")])
    compare(spark, TEXTS, [Leaf("s", "match", query) for query in [*WORDS, *GRAMS, None]])
    compare(spark, TEXTS, [Leaf("s", "not match", query) for query in [*WORDS[::9], "", GRAMS[0]]])


def compare(spark, texts, leaves):
    columns = [to_column(leaf, texts.schema).alias(f"q{n}") for n, leaf in enumerate(leaves)]
    answers = spark.createDataFrame(texts).select(*columns).toArrow()
    for n, leaf in enumerate(leaves):
        answer = answers[f"q{n}"].combine_chunks().fill_null(False).to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(answer != matches(leaf, texts).to_numpy())
        assert not len(wrong), (leaf, texts["s"].take(wrong[:5]).to_pylist())


@dataclass
class Lister(file_index.Lister):
    """Lists one file and records the predicates of the requests."""

    file: Path
    predicates: list[Predicate] = field(default_factory=list)

    def list(self, query, predicate, rows=None):
        self.predicates.append(predicate)
        return Listing(1, WholeFiles([self.file.as_uri()], [self.file.stat().st_size]))


@dataclass
class Notes:
    frame: DataFrame
    lister: Lister

    def predicates_of(self, condition):
        """Return the planner's predicate on ``s`` as conjuncts."""
        self.lister.predicates.clear()
        self.frame.where(condition).collect()
        predicate = simplify(self.lister.predicates[-1])
        parts = predicate.children if isinstance(predicate, And) else (predicate,)
        return {part for part in parts if part != Leaf("s", "is not null")}


@pytest.fixture(scope="module")
def notes(spark, tmp_path_factory):
    file = tmp_path_factory.mktemp("match") / "0.parquet"
    pq.write_table(pa.table({"s": ["Fast cars", None], "id": [0, 1]}), file)
    lister = Lister(file)
    schema = StructType().add("s", "string").add("id", "long")
    return Notes(relation(spark, lister, schema, file.parent.as_uri()), lister)


def test_the_planner_recognises_match_expressions(notes):
    def word(text):
        return Leaf("s", "match", (text, "word"))

    assert notes.predicates_of(match("s", "Fast  CARS!")) == {word("fast"), word("cars")}
    assert notes.predicates_of(match(sf.col("s"), "straße σ")) == {word("straße"), word("σ")}
    assert notes.predicates_of(match("s", "cars", "ngram(3)")) == {
        Leaf("s", "match", (gram, "ngram(3)")) for gram in ("car", "ars")
    }
    assert notes.predicates_of(match("s", "Car", "ngram")) == {
        Leaf("s", "match", ("car", "ngram(3)"))
    }
    assert notes.predicates_of(~match("s", "cars")) == {Leaf("s", "not match", ("cars", "word"))}
    assert notes.predicates_of(match("s", "cars") | (sf.col("id") == 1)) == {
        Or((word("cars"), Leaf("id", "=", 1)))
    }
    assert notes.predicates_of(match("s", "?!")) == {Leaf("s", "match", ("", "word"))}


def test_the_planner_treats_other_regular_expressions_as_unknown(notes):
    for regex in (
        "cars",
        "[Cc]",
        r"[\x{63}\x{43}]",
        ".*",
        patterns.token_pattern("cars", True) + "$",
    ):
        (predicate,) = notes.predicates_of(sf.col("s").rlike(regex))
        assert not isinstance(predicate, Leaf), regex


@given(st.text(min_size=1, max_size=6), st.booleans())
def test_a_token_is_recovered_from_its_regular_expression(text, whole_word):
    tokenizer = tokenizers.find("word" if whole_word else f"ngram({len(text)})")
    for token in tokenizer.query(text):
        assert patterns.query_of(patterns.token_pattern(token, whole_word)) == (
            token,
            tokenizer.spec,
        )


@pytest.mark.parametrize(
    "regex",
    [
        "",
        "a",
        "[a]",
        "[]",
        r"[\x{110000}]",
        r"[\x{ffffffff}]",
        r"[\x{d800}]",
        r"[\x{41}]",
        r"[\x{41}\x{61}]*",
        r"[\x{61}\x{41}]",
        patterns.token_pattern("a b", True),
        patterns.token_pattern("a" * 17, False),
        patterns.token_pattern("a", True) + "x",
    ],
    ids=range(13),
)
def test_other_regular_expressions_are_not_read_as_tokens(regex):
    assert patterns.query_of(regex) is None


def test_tokenizers_without_spark_support_are_refused_with_a_hint(spark):
    with pytest.raises(Unsupported) as error:
        match("s", "西安", "chinese")
    assert "to_arrow" in error.value.hint
    with pytest.raises(Invalid, match="unknown tokenizer 'words'"):
        match("s", "x", "words")
