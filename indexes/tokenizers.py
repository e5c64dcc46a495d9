"""Tokenizers for the operator ``match`` and the inverted index.

A *spec* names a tokenizer: ``"word"``, ``"ngram(3)"``, ``"chinese"``, or a tokenizer of an
installed package with an entry point in the group ``mdt.tokenizers`` (name -> class). Arguments in
parentheses are passed as strings::

    [project.entry-points."mdt.tokenizers"]
    camel = "my_package:CamelCase"

Like indexes, tokenizers are looked up by name, never imported from data.

The law: the tokens of a text depend only on the text and the tokenizer's
:attr:`~Tokenizer.version`. An index stores the version. If it was built with another version, it is
not used.
"""

from __future__ import annotations

import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import expand_runs
from indexes.characters import Codes, Int64Array, Text, fold, pattern, strings, word_table

ENTRY_POINT_GROUP = "mdt.tokenizers"
"""Entry point group of installed packages with tokenizers."""

NGRAM_MAX = 16
"""Longer n-grams would be nearly whole values."""

_SPEC = re.compile(r"\s*([a-z][a-z0-9_]*)\s*(?:\(\s*([^()]*?)\s*\))?\s*")
_KEY_MAX = 2**62


class Tokenizer(ABC):
    """Splits texts into tokens. Stateless apart from its arguments, which are strings."""

    version: str = "1"
    """Change the version whenever any text gets other tokens."""

    cuts_words: ClassVar[bool] = False
    """True if every token is a substring of the case-folded text, so that it may be searched for
    tokens of other tokenizers.
    """

    @property
    @abstractmethod
    def spec(self) -> str:
        """Text that :func:`find` turns into an equal tokenizer."""

    @abstractmethod
    def tokens(self, values: pa.Array) -> tuple[pa.Array, Int64Array]:
        """Return the tokens of n texts and the row of each token -> (string[t], int64[t]).

        ``values`` is string or large_string[n]. The tokens may be dictionary-encoded. Rows ascend.
        A null has no tokens, and a token may repeat in a row.
        """

    def query(self, text: str) -> list[str]:
        """Return the sorted distinct tokens of a text."""
        tokens, _ = self.tokens(pa.array([text], pa.string()))
        return sorted(set(tokens.to_pylist()))

    def implied(self, part: str, more_before: bool, more_after: bool) -> list[str]:
        """Return tokens contained in every text that contains ``part``, in order.

        The list may be incomplete.

        Args:
            more_before, more_after: True if the text may continue before or after the part.

        >>> Word().implied("black umbrel", more_before=False, more_after=True)  # 'black umbrel%'
        ['black']
        """
        if more_before or more_after:
            return []
        return self.query(part)

    def holds_all(self, values: pa.Array, required: Sequence[str]) -> pa.Array:
        """Return True for each of n texts with all ``required`` tokens -> bool[n], null for null.

        ``required`` holds distinct tokens. An empty list matches no text.
        """
        holds = np.zeros(len(values), np.bool_)
        rows = np.flatnonzero(self._may_hold(values, required))
        if len(rows):
            terms, row = self.tokens(values.take(pa.array(rows)))
            token_number = (
                pc.index_in(terms, value_set=pa.array(required, pa.string()))
                .fill_null(-1)
                .to_numpy()
            )
            pairs = np.unique((row * len(required) + token_number)[token_number >= 0])
            holds[
                rows[np.bincount(pairs // len(required), minlength=len(rows)) == len(required)]
            ] = True
        return pa.array(holds, mask=np.asarray(values.is_null()))

    def _may_hold(self, values: pa.Array, required: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return True for each of n texts that is worth tokenizing -> bool[n].

        A cheap test that excludes most texts.
        """
        may_hold = np.full(len(values), bool(required))
        if self.cuts_words:
            for token in required:
                may_hold &= np.asarray(
                    pc.match_substring_regex(values, pattern=pattern(token)).fill_null(False)
                )
        return may_hold


class Word(Tokenizer):
    """Maximal runs of word characters, case-folded (see ``indexes.characters``).

    >>> tokens, rows = Word().tokens(pa.array(["A black UMBRELLA, lost", None, "black"]))
    >>> list(zip(tokens.to_pylist(), rows.tolist()))
    [('a', 0), ('black', 0), ('umbrella', 0), ('lost', 0), ('black', 2)]
    >>> Word().query("lost: black, BLACK")
    ['black', 'lost']
    """

    cuts_words = True

    @property
    def spec(self) -> str:
        return "word"

    def tokens(self, values: pa.Array) -> tuple[pa.Array, Int64Array]:
        text = fold(values)
        inside = word_table()[text.codes]
        starts = inside.copy()
        starts[1:] &= ~inside[:-1]
        rows = text.bounds[:-1][np.diff(text.bounds) > 0]
        starts[rows] = inside[rows]
        first = np.flatnonzero(starts)
        codes = text.codes[inside]
        bounds = np.append(np.flatnonzero(starts[inside]), len(codes))
        return (
            strings(codes, bounds).dictionary_encode(),
            np.searchsorted(text.bounds, first, side="right") - 1,
        )

    def implied(self, part: str, more_before: bool, more_after: bool) -> list[str]:
        tokens: list[str] = self.tokens(pa.array([part], pa.string()))[0].to_pylist()
        stop = len(tokens) - bool(part and more_after and _has_word(part[-1]))
        return tokens[bool(part and more_before and _has_word(part[0])) : stop]


class Ngram(Tokenizer):
    """All runs of ``n`` code points of the case-folded text, including spaces and punctuation.

    Shorter texts have no tokens.

    >>> Ngram("3").query("Oslo"), Ngram("3").query("it")
    (['osl', 'slo'], [])
    """

    cuts_words = True

    def __init__(self, n: str = "3") -> None:
        if not (n.isascii() and n.isdecimal()) or not 1 <= int(n) <= NGRAM_MAX:
            raise ValueError(
                f"ngram needs a length from 1 to {NGRAM_MAX}, got {n!r}; write for example ngram(3)"
            )
        self.n = int(n)

    @property
    def spec(self) -> str:
        return f"ngram({self.n})"

    def tokens(self, values: pa.Array) -> tuple[pa.Array, Int64Array]:
        text = fold(values)
        counts = np.maximum(np.diff(text.bounds) - self.n + 1, 0)
        first = self._starts(text)
        encoded = pa.array(self._keys(text.codes)[first]).dictionary_encode().indices
        sample = np.zeros(int(encoded.to_numpy().max(initial=-1)) + 1, np.int64)
        sample[encoded.to_numpy()] = first  # a position of each distinct n-gram
        grams = text.codes[sample[:, None] + np.arange(self.n)].reshape(-1)
        terms = strings(grams, np.arange(0, len(grams) + 1, self.n))
        return pa.DictionaryArray.from_arrays(encoded, terms), np.repeat(
            np.arange(len(values)), counts
        )

    def implied(self, part: str, more_before: bool, more_after: bool) -> list[str]:
        tokens: list[str] = self.tokens(pa.array([part], pa.string()))[0].to_pylist()
        return tokens

    def holds_all(self, values: pa.Array, required: Sequence[str]) -> pa.Array:
        return pa.array(self._may_hold(values, required), mask=np.asarray(values.is_null()))

    def _starts(self, text: Text) -> Int64Array:
        """Return the start of each n-gram -> int64[t]. N-grams do not cross the end of a row."""
        valid = np.ones(max(len(text.codes) - self.n + 1, 0), np.bool_)
        for back in range(1, self.n):
            last = text.bounds - back
            valid[last[(last >= 0) & (last < len(valid))]] = False
        return np.flatnonzero(valid)

    def _keys(self, codes: Codes) -> npt.NDArray[np.uint64]:
        """Return a number for the n code points from each position, equal for equal n-grams ->
        uint64[p].
        """
        alphabet = np.flatnonzero(np.bincount(codes))
        letters = np.zeros(int(codes.max(initial=0)) + 1, np.uint64)
        letters[alphabet] = np.arange(len(alphabet))
        dense, size = letters[codes], len(alphabet)
        keys, states = dense, size
        for length in range(2, self.n + 1):
            if states * size >= _KEY_MAX:
                distinct = pa.array(keys).dictionary_encode()
                keys, states = (
                    distinct.indices.to_numpy().astype(np.uint64),
                    len(distinct.dictionary),
                )
            keys = keys[: len(codes) - length + 1] * np.uint64(size) + dense[length - 1 :]
            states *= size
        return keys


class Chinese(Tokenizer):
    """Words of Chinese text, segmented by jieba in search-engine mode. Punctuation and spaces are
    dropped.

    jieba is written in Python and takes tens of microseconds for each distinct value. Text is
    case-folded first. Raises ValueError if the package jieba is not installed.
    """

    cuts_words = True

    def __init__(self) -> None:
        # A lazy import: it takes as long as the rest of this package.
        metadata = import_module("importlib.metadata")
        try:
            self.version = f"1 jieba {metadata.version('jieba')}"
        except metadata.PackageNotFoundError:
            raise ValueError(
                "the tokenizer chinese needs jieba: pip install 'pyspark-mdt[chinese]'"
            ) from None

    @property
    def spec(self) -> str:
        return "chinese"

    def tokens(self, values: pa.Array) -> tuple[pa.Array, Int64Array]:
        text = fold(values)
        encoded = strings(text.codes, text.bounds).dictionary_encode()
        cut = _jieba() if len(encoded) else list
        cuts = [
            [token for token in cut(value) if _has_word(token)]
            for value in encoded.dictionary.to_pylist()
        ]
        flat = pa.array([token for tokens in cuts for token in tokens], pa.string())
        ends = np.cumsum([0, *map(len, cuts)])
        which = encoded.indices.to_numpy()
        counts = np.diff(ends)[which]
        row = np.repeat(np.arange(len(values)), counts)
        return flat.take(pa.array(expand_runs(ends[which], counts))), row


def _has_word(token: str) -> bool:
    return bool(word_table()[[ord(character) for character in token]].any())


@cache
def _jieba() -> Callable[[str], Any]:
    """Return jieba's search-engine segmentation with its bundled dictionary only.

    Loading the dictionary takes most of a second, so it is loaded once, with the first text.
    """
    with warnings.catch_warnings():
        # jieba 0.42 warns about its own regular expressions and pkg_resources on import.
        warnings.simplefilter("ignore")
        module = import_module("jieba")
    cutter = module.Tokenizer()
    # Like initialize(), without its cache: a marshal file in the shared temporary folder, where
    # any user could place a malicious file.
    cutter.FREQ, cutter.total = cutter.gen_pfdict(cutter.get_dict_file())
    cutter.initialized = True
    return lambda text: cutter.cut_for_search(text)


class Tokenizers:
    """Registry of tokenizers. :func:`find` uses a process-wide registry."""

    built_in: ClassVar[dict[str, type[Tokenizer]]] = {
        "word": Word,
        "ngram": Ngram,
        "chinese": Chinese,
    }

    def __init__(self) -> None:
        self._installed: tuple[dict[str, type[Tokenizer]], list[str]] | None = None

    @property
    def installed(self) -> tuple[dict[str, type[Tokenizer]], list[str]]:
        """Classes of installed packages by name, and the reasons for load failures.
        Computed once.
        """
        # Not a cached_property: its lock in Python 3.11 may be inherited locked by a forked child.
        if self._installed is None:
            self._installed = self._load_installed()
        return self._installed

    def _load_installed(self) -> tuple[dict[str, type[Tokenizer]], list[str]]:
        classes: dict[str, type[Tokenizer]] = {}
        failures = []
        for point in import_module("importlib.metadata").entry_points(group=ENTRY_POINT_GROUP):
            try:
                if point.name in self.built_in or point.name in classes:
                    raise ValueError("the name is already used")
                classes[point.name] = _tokenizer_class(point.load())
            except Exception as error:  # noqa: BLE001 - foreign code may fail in any way
                failures.append(
                    f"entry point {point.name} = {point.value} could not be loaded: {error}"
                )
        return classes, failures

    def find(self, spec: str) -> Tokenizer:
        """Return the tokenizer for ``spec``. Raises ValueError for an unknown name."""
        parsed = _SPEC.fullmatch(spec) if isinstance(spec, str) else None
        if parsed is None:
            raise ValueError(f"a tokenizer has the form word or ngram(3), got {spec!r}")
        arguments = [argument.strip() for argument in parsed[2].split(",")] if parsed[2] else []
        tokenizer_class = self.built_in.get(parsed[1]) or self.installed[0].get(parsed[1])
        if tokenizer_class is None:
            installed, failures = self.installed
            names = ", ".join(sorted([*self.built_in, *installed]))
            raise ValueError(
                "; ".join([f"unknown tokenizer {parsed[1]!r}; known: {names}", *failures])
            )
        try:
            return tokenizer_class(*arguments)
        except TypeError as error:
            raise ValueError(f"tokenizer {spec!r}: {error}") from error


def _tokenizer_class(offered: object) -> type[Tokenizer]:
    if not (isinstance(offered, type) and issubclass(offered, Tokenizer)):
        raise TypeError(f"{offered!r} is not a subclass of indexes.tokenizers.Tokenizer")
    return offered


_SHARED = Tokenizers()


@lru_cache(maxsize=256)
def find(spec: str) -> Tokenizer:
    """Return the tokenizer for ``spec``. See :meth:`Tokenizers.find`.

    >>> find("ngram(3)").spec, find("word").query("Oslo!")
    ('ngram(3)', ['oslo'])
    >>> find("sentence")
    Traceback (most recent call last):
        ...
    ValueError: unknown tokenizer 'sentence'; known: ...
    """
    return _SHARED.find(spec)
