"""How much of an edited copy is drafted rightly: `python -m bench.edits [MODEL]`.

Twelve edits of real files are written out token by token, by a text that is known, so no model runs: what counts is
what drafters propose of it. Prints for each edit the tokens per pass and the share of draft tokens that are right, of
the file as a prediction and of the file in the prompt; drafts go on while a token's chance, by the drafter's own word,
is above one in two. The model's vocabulary is that of the bundled pair, or of the file that is named.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.instruments.edits import Edit, edits
from bench.instruments.timing import report
from runtime.backends.model import LlamaModel
from runtime.core.draft import Logits, Tokens
from runtime.core.draft import Path as TokenPath
from runtime.core.drafter import CONTINUE, REJECT, UNKNOWN_TOKEN, Answer, Budget, Drafter, Pick
from runtime.drafters.ngram import NgramDrafter
from runtime.drafters.prediction import PredictionDrafter
from runtime.models.registry import load_registry

COLUMNS = ["edit", "tokens", "given: tokens per pass", "right", "in the prompt: per pass", "right"]
MOST = 31  # tokens of a draft
LEAST_SURE = 0.5


class Copied(NamedTuple):
    """What an edit brought: tokens of the reply, passes, tokens drafted and accepted."""

    n: int
    n_passes: int
    n_drafted: int
    n_accepted: int

    @property
    def per_pass(self) -> float:
        """Tokens of a pass."""
        return self.n / self.n_passes

    @property
    def share(self) -> float:
        """Draft tokens that were right."""
        return self.n_accepted / max(1, self.n_drafted)


def unused(logits: Logits, path: TokenPath = (), n_others: int = 0) -> Pick:
    """Lookups pick nothing from logits."""
    raise AssertionError


def likely(survival: list[float], confidence: float, token: int = UNKNOWN_TOKEN) -> Answer:
    """Go on while the draft's last token is likely to be right."""
    survival[0] *= confidence
    return CONTINUE if survival[0] > LEAST_SURE else REJECT


def copied(drafter: Drafter, prompt: Tokens, reply: Tokens, expected: Sequence[int]) -> Copied:
    """Return what the drafter makes of a reply [n]."""
    drafter.begin(prompt, expected)
    at = n_passes = n_drafted = n_accepted = 0
    while at < len(reply):
        survival = [1.0]
        budget = Budget(MOST, lambda *sure, survival=survival: likely(survival, *sure), unused)  # type: ignore[misc]
        draft = drafter.propose(np.concatenate([prompt, reply[:at]]), budget).tokens
        following = reply[at : at + len(draft)]
        wrong = np.flatnonzero(following != np.array(draft[: len(following)], dtype=np.int32))
        n_right = int(wrong[0]) if len(wrong) else len(following)
        at, n_passes = at + n_right + 1, n_passes + 1
        n_drafted, n_accepted = n_drafted + len(draft), n_accepted + n_right
    return Copied(len(reply), n_passes, n_drafted, n_accepted)


def both(model: LlamaModel, edit: Edit) -> tuple[Copied, Copied]:
    """Return what the file brings as a prediction, and in the prompt."""
    before, after = (model.vocab.encode(text, special=False) for text in (edit.before, edit.after))
    asked = model.vocab.encode(f"{edit.instruction}\n\n```python\n", special=False)
    prompt, reply = np.array([*asked, *before], dtype=np.int32), np.array(after, dtype=np.int32)
    return copied(PredictionDrafter(), prompt, reply, before), copied(NgramDrafter(), prompt, reply, ())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, help="a file whose vocabulary is used")
    path = parser.parse_args().model or load_registry()["demo"].target
    model = LlamaModel(path)
    found = {name: both(model, edit) for name, edit in edits().items()}
    rows = [[name, str(given.n), *cells(given, prompted)] for name, (given, prompted) in found.items()]
    medians = {
        what: [round(statistics.median(value(each[i]) for each in found.values()), 3) for i in (0, 1)]
        for what, value in (("per pass", lambda each: each.per_pass), ("right", lambda each: each.share))
    }
    report(f"edits, words of {path.stem}", COLUMNS, rows, medians)


def cells(*ways: Copied) -> list[str]:
    """Return a row's numbers."""
    return [cell for each in ways for cell in (f"{each.per_pass:.1f}", f"{each.share:.0%}")]


if __name__ == "__main__":
    main()
