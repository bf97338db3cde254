"""Other ways to read a text: as if it had been written without look-alikes, digits for letters, gaps and slips.

    spelling = Spelling(["condom", "red wine"], companions=["glasses", "vinegar"])
    {*spelling.readings("c0ndoms")}          # {("c0ndom",), ("condom",)}
    {*spelling.readings("redwine glasses")}  # {("redwine", "glasses"), ("red", "wine", "glasses")}

A reading is a guess. It is used only to find words of a list in a text that hides them, and never shown.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from pathlib import Path

from merit.labels.names import normalise

Words = tuple[str, ...]
KNOWN = Path(__file__).with_name("spelling.txt")
JOINED, ENDING, SLIP, TWO_SLIPS = (
    6,
    7,
    5,
    9,
)  # letters from which on a word is divided, cut, and corrected once or twice
LONG = 7  # letters from which on an exact term is found in a joined or divided word
SHORTEST = 4  # letters of what is put together, unless each is written alone

# Letters of other alphabets that look like ours, after case folding (a choice of Unicode's confusables.txt).
_LIKE = {
    "a": "аαɑᴀ", "b": "вβьʙƅᏏ", "c": "сϲᴄ", "d": "ԁᴅđ", "e": "еёєεᴇ", "f": "ғꜰƒ",
    "g": "ɡցɢ", "h": "һнհʜ", "i": "іїιıɩɪӏ", "j": "јϳᴊ", "k": "кκᴋ", "l": "ⅼʟłǀ",
    "m": "мᴍ", "n": "ոηпɴ", "o": "оοօσᴏø", "p": "рρᴘ", "q": "ԛ", "r": "гʀ",
    "s": "ѕꜱ", "t": "тτᴛ", "u": "υսᴜц", "v": "νѵᴠ", "w": "ԝωᴡѡ", "x": "хχ",
    "y": "уγʏү", "z": "ᴢ", "ae": "æ", "oe": "œ",
}  # fmt: skip
_LOOKS = str.maketrans({char: letter for letter, chars in _LIKE.items() for char in chars})
_DIGITS = [str.maketrans(f"03456789@$!|+€{one}", f"oeasgtbgasiite{letter}") for one, letter in ("1i", "1l")]
_UNSPACED = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff]")  # scripts that put no space between words
_WORD = re.compile(r"[^\W_]+")


def words_of(text: str) -> Words:
    """In order, small and in the singular; what is neither letter nor digit only divides them."""
    return tuple(_singular(word) for word in _WORD.findall(normalise(text)))


def _singular(word: str) -> str:
    """The same form for one and many. It need not be English: terms and texts go through it alike."""
    if len(word) < 4 or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith(("ies", "ie")):  # brownies, brownie
        return word.removesuffix("s")[:-2] + "y"
    if word.endswith("ife"):  # knife, knives
        return word[:-2] + "ve"
    return word[:-2] if word.endswith(("shes", "ches", "xes", "sses")) else word.removesuffix("s")


class Spelling:
    """Readings of texts by a list of terms that may be hidden in them."""

    def __init__(self, terms: Iterable[str], exact: Iterable[str] = (), companions: Iterable[str] = ()) -> None:
        """No slip is read as one of `exact`, which are joined and cut only if they are long. `companions` are harmless
        words that stand beside terms: a joined word is divided into these and terms."""
        by_term = sorted({words_of(term) for term in terms}, key=lambda words: (len(words), words))
        by_exact = {words_of(form) for term in exact for form in (term, plain(term))}
        self._whole = {"".join(words): words for words in by_exact if len("".join(words)) >= LONG}
        self._whole |= {"".join(words): words for words in by_term}
        self._terms = {word for words in by_term for word in words if len(word) > 2}
        self._parts = self._terms | {word for words in by_exact for word in words if len(word) >= LONG}
        self._unspaced = sorted((word for words in by_exact for word in words if _UNSPACED.search(word)), key=len)
        self._known = frozenset(words_of(KNOWN.read_text(encoding="utf-8")))
        self._vocabulary = self._terms | self._known | {word for text in companions for word in words_of(text)}
        self._exact = {word for words in by_exact for word in words}
        self._longest = max(map(len, [*self._whole, *self._vocabulary]), default=0)
        self._single = {_without_doubles(word): word for word in self._terms}
        self._slips: dict[str, set[str]] = {}
        for word in self._terms:
            for form in _without_letters(word):
                self._slips.setdefault(form, set()).add(word)
        self._of_word = lru_cache(maxsize=1 << 16)(self._read)

    def readings(self, text: str) -> Iterator[Words]:
        """Word by word: first as it is written, then each other way once."""
        seen: set[Words] = set()
        for form in _forms(text):
            whole = words_of(form)
            divided = tuple(part for word in whole for part in self._of_word(word))
            for words in (whole, *self._put_together(form), divided):
                if words not in seen:
                    seen.add(words)
                    yield words

    def _put_together(self, form: str) -> Iterator[Words]:
        """Neighbours that are a term when nothing stands between them."""
        pieces = _WORD.findall(form)
        for start in range(len(pieces)):
            joined = ""
            for end in range(start, len(pieces)):
                joined += pieces[end]
                if len(joined) > self._longest + 1:
                    break
                alone = end > start and end - start + 1 == len(joined)
                if pieces[end] == "s" and not alone:  # of nun's, the s is no part
                    continue
                if end == start and _singular(joined) in self._terms:
                    continue
                if (len(joined) >= SHORTEST or alone) and (term := self._whole.get(_singular(joined))):
                    yield (*words_of(" ".join(pieces[:start])), *term, *words_of(" ".join(pieces[end + 1 :])))

    def _read(self, word: str) -> Words:
        """A word divided, or else corrected, where it is neither known nor a term."""
        if _UNSPACED.search(word):
            return next(((term,) for term in reversed(self._unspaced) if term in word), (word,))
        if word in self._vocabulary or word in self._exact or len(word) < SLIP or not word.isalpha():
            return (word,)
        if len(word) >= JOINED and (parts := self._divided(word)) and self._terms.intersection(parts):
            return parts
        for cut in range(ENDING, len(word) - 2):
            if word[:cut] in self._parts and len(word) - cut > 2:
                return word[:cut], word[cut:]
            if word[-cut:] in self._parts:
                return word[:-cut], word[-cut:]
        return (self._corrected(word),)

    def _divided(self, word: str) -> Words | None:
        """The fewest words of the vocabulary that it is made of."""
        best: list[Words | None] = [(), *[None] * len(word)]
        for end in range(3, len(word) + 1):
            for start in range(end - 2):
                before, part = best[start], word[start:end]
                if before is not None and ((part in self._vocabulary) or (part := _singular(part)) in self._vocabulary):
                    shorter = best[end]
                    if shorter is None or len(before) + 1 < len(shorter):
                        best[end] = (*before, part)
        return best[-1]

    def _corrected(self, word: str) -> str:
        """The term that other doubled letters make of it, or a slip behind the first letter."""
        if term := self._single.get(_without_doubles(word)):
            return term
        near = {term for form in _without_letters(word) for term in self._slips.get(form, ()) if term[0] == word[0]}
        allowed = [term for term in near if _distance(word, term) <= _slips_in(term)]
        return min(allowed, key=lambda term: (_distance(word, term), term), default=word)


def plain(text: str) -> str:
    """The text in Latin letters as far as it looks like them, without accents."""
    marked = unicodedata.normalize("NFKD", normalise(text).translate(_LOOKS))
    return "".join(char for char in marked if unicodedata.category(char) != "Mn").translate(_LOOKS)


def _forms(text: str) -> list[str]:
    """A text as written, without look-alikes and accents, and with letters for digits and signs."""
    written = normalise(text)
    if written.isascii() and written.replace(" ", "").isalpha():
        return [written]
    latin = plain(written)
    forms = [written, latin]
    for table in _DIGITS:
        forms.append(
            " ".join(part.translate(table) if re.search(r"[^\W\d_]", part) else part for part in latin.split())
        )
    return list(dict.fromkeys(forms))


def _without_doubles(word: str) -> str:
    return re.sub(r"(.)\1+", r"\1", word)


def _slips_in(term: str) -> int:
    return 0 if len(term) < SLIP else 1 if len(term) < TWO_SLIPS else 2


def _without_letters(word: str) -> Iterator[str]:
    """The word with as many letters left out as it may have slips: two words with a slip between them share a form."""
    for count in range(_slips_in(word) + 1):
        for gone in combinations(range(len(word)), count):
            yield "".join(char for at, char in enumerate(word) if at not in gone)


def _distance(one: str, two: str) -> int:
    """Letters to insert, to leave out, to change, or to swap with their neighbour, as Damerau and Levenshtein count."""
    rows: list[Sequence[int]] = [range(len(two) + 1)]
    for i, a in enumerate(one, 1):
        row = [i]
        for j, b in enumerate(two, 1):
            cost = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (a != b))
            if i > 1 and j > 1 and a == two[j - 2] and b == one[i - 2]:
                cost = min(cost, rows[-2][j - 2] + 1)
            row.append(cost)
        rows.append(row)
    return rows[-1][-1]
