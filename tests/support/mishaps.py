"""A model process to which things happen, told by the prompt: `python -m tests.support.mishaps PIPES`.

`[abort]`, `[abort with drafts]` and `[hang]` befall the reply at its fifth token, `[long piece]` at its first step,
`[slow beginning]` before it, `[slow text]` the tokenizer. A pair of the name UNLOADABLE aborts while it is loaded with
drafts.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from runtime.engine.engine import Ask
from runtime.loading.options import Options
from runtime.models.registry import Pair
from runtime.process import host
from runtime.process.messages import Failed, Stepped

PLACE = 5  # tokens
PIECE = 2.0  # seconds that a long one takes
UNLOADABLE = "unloadable with drafts"


class UnluckyHost(host.Host):
    """Reads what is to happen in the prompts."""

    said = 0
    ask: Ask

    def _begin(self, number: int, ask: Ask) -> None:
        if "[slow beginning]" in str(ask.prompt):
            time.sleep(60)
        super()._begin(number, ask)
        self.ask, self.said = ask, len(ask.said)

    def _step(self, number: int) -> Stepped | Failed:
        asked, has_drafters = str(self.ask.prompt), bool(self.engine.loop.lineup.drafters)
        if self.said >= PLACE and ("[abort]" in asked or ("[abort with drafts]" in asked and has_drafters)):
            print("x.cpp:1: GGML_ASSERT(luck) failed", file=sys.stderr, flush=True)
            os.abort()
        if self.said >= PLACE and "[hang]" in asked:
            time.sleep(60)
        if not self.said and "[long piece]" in asked:
            time.sleep(PIECE)
        stepped = super()._step(number)
        self.said += len(stepped.chunk.tokens) if isinstance(stepped, Stepped) else 0
        return stepped


class UnluckyEngine(host.LoadedEngine):
    """Takes its time with some texts."""

    def __init__(self, pair: Pair, options: Options, *more: Any, **named: Any) -> None:
        if pair.name == UNLOADABLE and options.drafters != ():
            print("x.cpp:1: GGML_ASSERT(luck) failed", file=sys.stderr, flush=True)
            os.abort()
        super().__init__(pair, options, *more, **named)

    def tokenize(self, text: str, *, special: bool = True, bos: bool = False) -> list[int]:
        if "[slow text]" in text:
            time.sleep(60)
        return super().tokenize(text, special=special, bos=bos)


if __name__ == "__main__":
    host.Host, host.LoadedEngine = UnluckyHost, UnluckyEngine  # type: ignore[misc]
    host.main()
