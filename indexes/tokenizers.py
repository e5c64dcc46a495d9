"""Tokenizers: what the tokens of a text are, for the operator ``match`` and for the inverted index.

A *spec* names one: ``"word"``, ``"ngram(3)"``, ``"chinese"``, or what an installed package offers
in the entry point group ``mdt.tokenizers`` (name -> class; arguments in parentheses arrive as
strings)::

    [project.entry-points."mdt.tokenizers"]
    camel = "my_package:CamelCase"

Like an index, a tokenizer is looked up by name, never imported because some data says so.

The law: the tokens of a text depend on the text and the tokenizer's :attr:`~Tokenizer.version`
alone.  An index keeps the version; a table whose index was built by another version is searched
without that index.
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

from indexes.characters import Codes, Int64Array, Text, folded, pattern, strings, word_table

ENTRY_POINT_GROUP = "mdt.tokenizers"
"""Where installed packages announce their tokenizers."""

NGRAM_MAX = 16
"""Longer n-grams than this would be nearly whole values."""

_SPEC = re.compile(r"\s*([a-z][a-z0-9_]*)\s*(?:\(\s*([^()]*?)\s*\))?\s*")
_KEY_MAX = 2**62


class Tokenizer(ABC):
    """Cuts texts into tokens.  Stateless apart from its arguments, which arrive as strings; equal
    specs, equal tokens.
    """

    version: str = "1"
    """Changes whenever some text would get other tokens than before."""

    cuts_words: ClassVar[bool] = False
    """Whether every token is a stretch of the folded text, so that other tokenizers' tokens may be
    looked for in it.
    """

    @property
    @abstractmethod
    def spec(self) -> str:
        """Return the text that :func:`find` turns into an equal tokenizer."""

    @abstractmethod
    def tokens(self, values: pa.Array) -> tuple[pa.Array, Int64Array]:
        """Return the tokens of n texts and the row of each -> (string[t], plain or
        dictionary-encoded, int64[t]).

        ``values``: string or large_string[n].  Rows ascend; a null has no tokens; a token may
        repeat in a row.
        """

    def query(self, text: str) -> list[str]:
        """Return the distinct tokens of one text, sorted."""
        found, _ = self.tokens(pa.array([text], pa.string()))
        return sorted(set(found.to_pylist()))

    def implied(self, part: str, more_before: bool, more_after: bool) -> list[str]:
        """Return tokens of every text that has ``part`` in it, in order; fewer than there are is
        allowed.

        ``more_before``: whether the text may have more before the part, ``more_after`` likewise.

        >>> Word().implied("black umbrel", more_before=False, more_after=True)  # 'black umbrel%'
        ['black']
        """
        if more_before or more_after:
            return []
        return self.query(part)

    def holds_all(self, values: pa.Array, wanted: Sequence[str]) -> pa.Array:
        """Return whether each of n texts has all ``wanted`` tokens, distinct -> bool[n], null for
        null.

        Without wanted tokens no text has them.
        """
        found = np.zeros(len(values), np.bool_)
        rows = np.flatnonzero(self._may_hold(values, wanted))
        if len(rows):
            terms, row = self.tokens(values.take(pa.array(rows)))
            which = (
                pc.index_in(terms, value_set=pa.array(wanted, pa.string())).fill_null(-1).to_numpy()
            )
            pairs = np.unique((row * len(wanted) + which)[which >= 0])
            found[rows[np.bincount(pairs // len(wanted), minlength=len(rows)) == len(wanted)]] = (
                True
            )
        return pa.array(found, mask=np.asarray(values.is_null()))

    def _may_hold(self, values: pa.Array, wanted: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return which of n texts are worth to be cut -> bool[n]: cheaply found, because most texts
        are not.
        """
        found = np.full(len(values), bool(wanted))
        if self.cuts_words:
            for token in wanted:
                found &= np.asarray(
                    pc.match_substring_regex(values, pattern=pattern(token)).fill_null(False)
                )
        return found


class Word(Tokenizer):
    """Maximal runs of word characters, case folded (``indexes.characters`` defines both).

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
        text = folded(values)
        inside = word_table()[text.codes]
        starts = inside.copy()
        starts[1:] &= ~inside[:-1]
        rows = text.bounds[:-1][np.diff(text.bounds) > 0]
        starts[rows] = inside[rows]
        first = np.flatnonzero(starts)
        kept = text.codes[inside]
        bounds = np.append(np.flatnonzero(starts[inside]), len(kept))
        return (
            strings(kept, bounds).dictionary_encode(),
            np.searchsorted(text.bounds, first, side="right") - 1,
        )

    def implied(self, part: str, more_before: bool, more_after: bool) -> list[str]:
        found: list[str] = self.tokens(pa.array([part], pa.string()))[0].to_pylist()
        stop = len(found) - bool(part and more_after and _has_word(part[-1]))
        return found[bool(part and more_before and _has_word(part[0])) : stop]


class Ngram(Tokenizer):
    """Every run of ``n`` code points of the case-folded text, spaces and signs included; shorter
    texts have none.

    >>> Ngram("3").query("Oslo"), Ngram("3").query("it")
    (['osl', 'slo'], [])
    """

    cuts_words = True

    def __init__(self, n: str = "3") -> None:
        if not (n.isascii() and n.isdecimal()) or not 1 <= int(n) <= NGRAM_MAX:
            raise ValueError(
                f"ngram takes a length from 1 to {NGRAM_MAX}, got {n!r}; write for example ngram(3)"
            )
        self.n = int(n)

    @property
    def spec(self) -> str:
        return f"ngram({self.n})"

    def tokens(self, values: pa.Array) -> tuple[pa.Array, Int64Array]:
        text = folded(values)
        counts = np.maximum(np.diff(text.bounds) - self.n + 1, 0)
        first = self._starts(text)
        encoded = pa.array(self._keys(text.codes)[first]).dictionary_encode().indices
        sample = np.zeros(int(encoded.to_numpy().max(initial=-1)) + 1, np.int64)
        sample[encoded.to_numpy()] = first  # one place where each distinct n-gram stands
        grams = text.codes[sample[:, None] + np.arange(self.n)].reshape(-1)
        terms = strings(grams, np.arange(0, len(grams) + 1, self.n))
        return pa.DictionaryArray.from_arrays(encoded, terms), np.repeat(
            np.arange(len(values)), counts
        )

    def implied(self, part: str, more_before: bool, more_after: bool) -> list[str]:
        found: list[str] = self.tokens(pa.array([part], pa.string()))[0].to_pylist()
        return found

    def holds_all(self, values: pa.Array, wanted: Sequence[str]) -> pa.Array:
        return pa.array(self._may_hold(values, wanted), mask=np.asarray(values.is_null()))

    def _starts(self, text: Text) -> Int64Array:
        """Return where the n-grams start -> int64[t]: everywhere but less than n before the end of
        a row.
        """
        valid = np.ones(max(len(text.codes) - self.n + 1, 0), np.bool_)
        for back in range(1, self.n):
            last = text.bounds - back
            valid[last[(last >= 0) & (last < len(valid))]] = False
        return np.flatnonzero(valid)

    def _keys(self, codes: Codes) -> npt.NDArray[np.uint64]:
        """Return a number for the n code points from each place on, equal for equal ones ->
        uint64[places].
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
    """Words of Chinese text as jieba cuts them for search engines; signs and spaces are no tokens.

    jieba is Python and looks at one text at a time: tens of microseconds for each distinct value.
    The case is folded before.  Raises ValueError without the package jieba.
    """

    cuts_words = True

    def __init__(self) -> None:
        # takes as long to load as all the rest of this package
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
        text = folded(values)
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
        within = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        return flat.take(pa.array(np.repeat(ends[which], counts) + within)), row


def _has_word(token: str) -> bool:
    return bool(word_table()[[ord(character) for character in token]].any())


@cache
def _jieba() -> Callable[[str], Any]:
    """Return jieba's cut for search engines, with its bundled dictionary and nothing that others
    added to it.

    The dictionary takes most of a second to load: once in a process, not before there is a text.
    """
    with warnings.catch_warnings():
        # Importing jieba 0.42 warns of its own regular expressions and of pkg_resources: not the
        # user's business.
        warnings.simplefilter("ignore")
        module = import_module("jieba")
    cutter = module.Tokenizer()
    # What initialize() does, without its cache: a marshal file in the shared temporary folder,
    # which anyone may plant.
    cutter.FREQ, cutter.total = cutter.gen_pfdict(cutter.get_dict_file())
    cutter.initialized = True
    return lambda text: cutter.cut_for_search(text)


class Tokenizers:
    """Names and their classes; :func:`find` works on one that is shared by the process."""

    built_in: ClassVar[dict[str, type[Tokenizer]]] = {
        "word": Word,
        "ngram": Ngram,
        "chinese": Chinese,
    }

    def __init__(self) -> None:
        self._installed: tuple[dict[str, type[Tokenizer]], list[str]] | None = None

    @property
    def installed(self) -> tuple[dict[str, type[Tokenizer]], list[str]]:
        """The classes of installed packages by name, and why some could not be had, as sentences;
        looked for once.
        """
        # No cached_property: in Python 3.11 that has a lock, which a forked child might find held
        # for ever.
        if self._installed is None:
            self._installed = self._looked_for()
        return self._installed

    def _looked_for(self) -> tuple[dict[str, type[Tokenizer]], list[str]]:
        found: dict[str, type[Tokenizer]] = {}
        failures = []
        for point in import_module("importlib.metadata").entry_points(group=ENTRY_POINT_GROUP):
            try:
                if point.name in self.built_in or point.name in found:
                    raise ValueError("the name is taken")
                found[point.name] = _tokenizer_class(point.load())
            except Exception as error:  # noqa: BLE001 - foreign code may fail in any way
                failures.append(
                    f"entry point {point.name} = {point.value} could not be loaded: {error}"
                )
        return found, failures

    def find(self, spec: str) -> Tokenizer:
        """Return the tokenizer that ``spec`` names.  Raises ValueError for an unknown one; imports
        no name from data.
        """
        parsed = _SPEC.fullmatch(spec) if isinstance(spec, str) else None
        if parsed is None:
            raise ValueError(f"a tokenizer is written like word or ngram(3), got {spec!r}")
        arguments = [argument.strip() for argument in parsed[2].split(",")] if parsed[2] else []
        chosen = self.built_in.get(parsed[1]) or self.installed[0].get(parsed[1])
        if chosen is None:
            installed, failures = self.installed
            known = ", ".join(sorted([*self.built_in, *installed]))
            raise ValueError(
                "; ".join([f"no tokenizer is called {parsed[1]!r}; known are {known}", *failures])
            )
        try:
            return chosen(*arguments)
        except TypeError as error:
            raise ValueError(f"tokenizer {spec!r}: {error}") from error


def _tokenizer_class(offered: object) -> type[Tokenizer]:
    if not (isinstance(offered, type) and issubclass(offered, Tokenizer)):
        raise TypeError(f"{offered!r} is no class of indexes.tokenizers.Tokenizer")
    return offered


_SHARED = Tokenizers()


@lru_cache(maxsize=256)
def find(spec: str) -> Tokenizer:
    """Return the tokenizer that ``spec`` names.  See :meth:`Tokenizers.find`.

    >>> find("ngram(3)").spec, find("word").query("Oslo!")
    ('ngram(3)', ['oslo'])
    >>> find("sentence")
    Traceback (most recent call last):
        ...
    ValueError: no tokenizer is called 'sentence'; known are ...
    """
    return _SHARED.find(spec)
