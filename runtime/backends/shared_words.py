"""The tokens that a target and a draft model of another vocabulary share: those that stand for the same bytes.

A draft model whose distribution is restricted to them can draft for the target (token-level intersection, TLI, arXiv
2502.05202). Knows vocabularies and ids; translation.py carries contexts over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import llama_cpp.llama_cpp as lib
import numpy as np

from runtime.backends.vocab import Vocab
from runtime.core.draft import Tokens

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
