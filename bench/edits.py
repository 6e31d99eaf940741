"""What it is worth that a reply which edits a given file is expected to repeat it: `python -m bench.edits MODEL.gguf`.

The questions name files of this repository, as `@file` does in the chat. Each is answered plainly, with the usual
drafters, and with these and the file as a prediction, side by side; the texts are compared. A grammar that knows one
text has every model, also one that is too small to edit by itself, reply with the whole file as it was asked for.
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from app.chats.store import StoredMessage
from app.tui.desktop.attach import attach
from app.tui.edits import edits_in, expected_in, files_in
from runtime.engine import Grammar, Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.engine.stats import Stats
from runtime.models.registry import USUAL, Pair

QUESTIONS = (  # and the words that become others
    ("Write desktop as screen everywhere in @app/tui/desktop/clipboard.py: the whole file.", "desktop", "screen"),
    ("Write again as anew everywhere in @app/tui/background/pace.py: the whole file.", "again", "anew"),
    ("Write editor as program everywhere in @app/tui/desktop/editor.py: the whole file.", "editor", "program"),
    ("Write action as deed everywhere in @app/tui/actions/dispatch.py: the whole file.", "action", "deed"),
)
WITHOUT_GRAMMAR = tuple(name for name in USUAL if name != "grammar")  # which would guess all of it
GREEDY = Sampling(temperature=0)


@dataclass
class Way:
    """Drafters, and whether the file is told; then the replies."""

    name: str
    drafters: tuple[str, ...]
    is_told: bool = False
    texts: list[str] = field(default_factory=list)
    replies: list[Stats] = field(default_factory=list)

    @property
    def tokens_per_pass(self) -> float:
        """Over all replies."""
        return sum(each.predicted_n for each in self.replies) / sum(each.n_passes for each in self.replies)

    @property
    def per_second(self) -> float:
        """Tokens, over all replies."""
        return sum(each.predicted_n for each in self.replies) / sum(each.decode_seconds for each in self.replies)


def ways() -> list[Way]:
    """What is compared."""
    return [
        Way("plain", ()),
        Way("usual drafters", WITHOUT_GRAMMAR),
        Way("and the file", WITHOUT_GRAMMAR, is_told=True),
    ]


def answer(way: Way, engine: LoadedEngine, asked_for: tuple[str, str, str]) -> None:
    """Has the way answer a question."""
    question, word, other = asked_for
    asked = [StoredMessage(1, None, "user", attach(question), {})]
    expected = expected_in(asked) if way.is_told else ""
    prompt, (text,) = [Message("user", asked[0].content)], files_in(asked).values()
    wanted = f"Here is the whole file:\n\n```python\n{text.replace(word, other)}\n```"
    form = Grammar("regex", re.escape(wanted))
    *chunks, last = engine.reply(prompt, GREEDY, grammar=form, prediction=expected)
    assert last.stats is not None
    way.replies.append(last.stats)
    way.texts.append("".join(chunk.text for chunk in (*chunks, last)))
    edits = edits_in(way.texts[-1], files_in(asked))
    print(
        f"  {way.name}: {last.stats.predicted_n} tokens, {last.stats.n_passes} passes, {len(edits)} edit(s)", flush=True
    )


def main() -> None:
    """Asks and tells."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=1)
    told = parser.parse_args()
    compared = ways()
    pair = Pair(told.model.name, told.model)
    engines = [LoadedEngine(pair, Options(drafters=way.drafters)) for way in compared]
    for question in QUESTIONS * told.rounds:
        print(question[0])
        for way, engine in zip(compared, engines, strict=True):
            answer(way, engine, question)
    plain = compared[0]
    for way in compared:
        same = sum(one == other for one, other in zip(way.texts, plain.texts, strict=True))
        row = {"way": way.name, "tokens_per_pass": round(way.tokens_per_pass, 2), "same_texts": same}
        print(json.dumps(row | {"ratio": round(way.per_second / plain.per_second, 2)}))
    for engine in engines:
        engine.close()


if __name__ == "__main__":
    main()
