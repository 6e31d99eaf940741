"""The tokens that a target and a draft model of another vocabulary share, those that stand for the same bytes; and
contexts of the target in the tokens of the draft model: SharedWords, Translator.

A draft model whose distribution is restricted to the shared ones can draft for the target (token-level intersection,
TLI, arXiv 2502.05202). What was translated before is kept, so that a context that continues costs a few microseconds
and the draft model's cache stays valid. Knows vocabularies, texts and ids; runs no model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import llama_cpp.llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from runtime.backends.vocab import Vocab
from runtime.core.draft import Tokens, common_prefix

# Text of the kinds that people ask for; the share of its tokens that a draft model can write bounds its acceptance
SAMPLE = """The capital of France is Paris. It lies on the river Seine, and about 2,100,000 people live there.

1. **Install** the package with `pip install example`, then open "settings.json" (see below).
2. Don't forget: what isn't saved is lost!

```python
def read_lines(path: str, limit: int = 100) -> list[str]:
    \"\"\"Return the first lines of a file.\"\"\"
    with open(path, encoding="utf-8") as file:
        return [line.rstrip("\\n") for _, line in zip(range(limit), file)]
```
Les élèves sont allés à l'école; die Straße führt über die Brücke. Thanks — see you soon 😀
"""
FEW = 64  # tokens that are translated one by one; more are tokenized as a text
RUN = 16  # tokens unknown to the draft model that are tokenized as one text
MOST = 8  # contexts that are kept
NOWHERE = -1


class SharedWords:
    """Ids of the same words in both vocabularies.

    `to_draft` [n_vocab of the target] are the draft model's ids, -1 for a word that it lacks. `targets` and `drafts`
    [n] are the pairs of ids that drafts consist of: no id occurs twice. `single_bytes` are the draft model's ids of
    bytes.
    """

    def __init__(self, target: Vocab, draft: Vocab) -> None:
        ours = target.texts()
        own, theirs = ids_of(target, ours), ids_of(draft, draft.texts())
        ends = dict(end_pairs(target, draft))
        named = dict(named_pairs(target, draft)) | ends
        self.to_draft: Tokens = np.fromiter(
            (named.get(token, theirs.get(text, -1)) for token, text in enumerate(ours)), np.int32, len(ours)
        )
        pairs = ends | {token: theirs[text] for text, token in own.items() if text in theirs}
        self.targets: Tokens = np.fromiter(pairs.keys(), np.int32, len(pairs))
        self.drafts: Tokens = np.fromiter(pairs.values(), np.int32, len(pairs))
        self.single_bytes: Mapping[int, int] = {text[0]: token for text, token in theirs.items() if len(text) == 1}
        sample = target.encode(SAMPLE, special=False)
        self.share = float((self.to_draft[sample] >= 0).mean())  # of the tokens of usual text, 0 to 1


def ids_of(vocab: Vocab, texts: Sequence[bytes]) -> dict[bytes, int]:
    """Return the id of each of the tokens' `texts`; of several, one that is not the name of a byte."""
    found: dict[bytes, int] = {}
    for token, text in enumerate(texts):
        if text and (text not in found or (len(text) == 1 and is_byte(vocab, found[text]))):
            found[text] = token
    return found


def is_byte(vocab: Vocab, token: int) -> bool:
    """Return whether a token stands for a byte that no other token of a text contains."""
    return bool(lib.llama_vocab_get_attr(vocab.handle, token) & lib.LLAMA_TOKEN_ATTR_BYTE)


def named_pairs(target: Vocab, draft: Vocab) -> Iterator[tuple[int, int]]:
    """Yield the control tokens that have the same name in both vocabularies."""
    theirs = {mark.text: mark.token for mark in draft.marks if mark.is_control}
    for mark in target.marks:
        if mark.is_control and mark.text in theirs:
            yield mark.token, theirs[mark.text]


def end_pairs(target: Vocab, draft: Vocab) -> Iterator[tuple[int, int]]:
    """Yield the tokens that end a turn and those that end a text, each once."""
    if -1 not in (target.end, draft.end):
        yield target.end, draft.end
    if target.eos not in (-1, target.end) and draft.eos not in (-1, draft.end):
        yield target.eos, draft.eos


class Translation(NamedTuple):
    """A context in both vocabularies.

    `ends` [n + 1]: the number of draft tokens that stand for the first tokens of `target` [n], NOWHERE where a token of
    the one vocabulary ends within a token of the other.
    """

    target: Tokens
    draft: Tokens
    ends: NDArray[np.int32]

    def joint(self, n: int) -> int:
        """Return the last place up to `n` where tokens of both vocabularies end."""
        return int(np.flatnonzero(self.ends[: n + 1] != NOWHERE)[-1])


class Translator:
    """Translates contexts of the target's tokens into the draft model's."""

    def __init__(self, words: SharedWords, target: Vocab, draft: Vocab) -> None:
        self.words, self._target, self._draft = words, target, draft
        start = np.array([draft.bos] if draft.adds_bos else [], dtype=np.int32)
        self._empty = Translation(np.empty(0, np.int32), start, np.array([len(start)], np.int32))
        self._known: list[Translation] = []  # most recent last

    def __call__(self, context: Tokens) -> Translation:
        """Return the translation of `context` [n], which agrees with an earlier one as far as they begin alike."""
        known = max(self._known, key=lambda each: common_prefix(each.target, context), default=self._empty)
        n = common_prefix(known.target, context)
        if n == len(known.target) == len(context):
            return known
        start = known.joint(n)
        made = self._continued(known, start, context)
        if known is not self._empty and len(known.target) - start <= FEW:
            self._known = [each for each in self._known if each is not known]
        self._known = [*self._known[1 - MOST :], made]
        return made

    def _continued(self, known: Translation, start: int, context: Tokens) -> Translation:
        """Return the translation of `context`, of which the first `start` tokens are known."""
        n_draft = int(known.ends[start])
        ids, ends = self._read([int(token) for token in context[start:]])
        places = [n if n == NOWHERE else n_draft + n for n in ends]
        return Translation(
            context.copy(),
            np.concatenate([known.draft[:n_draft], np.array(ids, np.int32)]),
            np.concatenate([known.ends[: start + 1], np.array(places, np.int32)]),
        )

    def _read(self, tokens: list[int]) -> tuple[list[int], list[int]]:
        """Return the draft tokens that stand for `tokens`, and the number of them after each token or NOWHERE."""
        if len(tokens) <= FEW:
            return self._one_by_one(tokens)
        ids, ends = list[int](), list[int]()
        for is_text, group in groupby(tokens, key=lambda token: bool(self._target.pieces[token])):
            part = [*group]
            new, places = (self._as_text(part) if is_text else None) or self._one_by_one(part)
            ends += [n if n == NOWHERE else len(ids) + n for n in places]
            ids += new
        return ids, ends

    def _as_text(self, tokens: list[int]) -> tuple[list[int], list[int]] | None:
        """Return what `_read` returns, tokenized as a whole; None where the draft model spells the text in another
        way.
        """
        pieces = [self._target.pieces[token] for token in tokens]
        ids = self._encoded(b"".join(pieces))
        if ids is None:
            return None
        ours, theirs = np.cumsum([*map(len, pieces)]), np.cumsum([len(self._draft.pieces[token]) for token in ids])
        places = np.searchsorted(theirs, ours)
        return ids, np.where(theirs[places] == ours, places + 1, NOWHERE).tolist()

    def _one_by_one(self, tokens: list[int]) -> tuple[list[int], list[int]]:
        """Return what `_read` returns: shared words by their ids, a run of others as one text."""
        ids, ends = list[int](), list[int]()
        for is_run, group in groupby(tokens, key=self._is_unknown):
            part = [*group]
            for run in [part[i : i + RUN] for i in range(0, len(part), RUN)] if is_run else []:
                ids += self._spelled(b"".join(self._target.pieces[token] for token in run))
                # What follows a shorter run may belong to its text
                ends += [*[NOWHERE] * (len(run) - 1), len(ids) if len(run) == RUN else NOWHERE]
            for token in [] if is_run else part:
                ids += self._ids_of(token)
                ends.append(len(ids))
        return ids, ends

    def _is_unknown(self, token: int) -> bool:
        """Return whether a token stands for text that no single token of the draft model stands for."""
        return bool(self.words.to_draft[token] == NOWHERE and self._target.pieces[token])

    def _ids_of(self, token: int) -> list[int]:
        """Return the draft tokens for a shared word or a control token."""
        if token == self._target.bos and self._target.adds_bos:
            return []  # every context of the draft model begins with its own, if any
        known = int(self.words.to_draft[token])
        return [known] if known != NOWHERE else self._spelled(self._target.named_pieces[token])

    def _spelled(self, data: bytes) -> list[int]:
        """Return the draft tokens that spell some bytes: those of its tokenizer, or of half a character its bytes."""
        ids = self._encoded(data)
        bytes_ = self.words.single_bytes
        return ids if ids is not None else [bytes_[byte] for byte in data if byte in bytes_]

    def _encoded(self, data: bytes) -> list[int] | None:
        """Return the draft model's tokens for a text; None where they stand for other bytes, as of half a character.

        SentencePiece puts a space before a text, so there a text that begins with one is encoded without it, and
        another one after a line's end.
        """
        try:
            text = data.decode("utf8")
        except UnicodeDecodeError:
            return None
        for shown in dict.fromkeys((text, text.removeprefix(" "), f"\n{text}")):
            ids = self._draft.encode(shown, special=False)
            if (n := self._n_spelling(ids, data)) is not None:
                return ids[len(ids) - n :]
        return None

    def _n_spelling(self, ids: list[int], data: bytes) -> int | None:
        """Return how many of the last `ids` stand for `data`; None if it begins within a token or differs."""
        pieces, n, n_bytes = self._draft.pieces, 0, 0
        while n < len(ids) and n_bytes < len(data):
            n += 1
            n_bytes += len(pieces[ids[-n]])
        return n if b"".join(pieces[each] for each in ids[len(ids) - n :]) == data else None
