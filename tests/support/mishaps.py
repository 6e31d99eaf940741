"""A model process to which things happen, told by the prompt: `python -m tests.support.mishaps PIPES`.

`[abort]`, `[abort with drafts]` and `[hang]` befall the reply at its fifth token, `[long piece]` at its first step,
`[slow beginning]` and `[abort while prepared]` before it, `[slow text]` the tokenizer. An embedding of SLOW tokens
takes PIECE seconds. A pair of the name UNLOADABLE aborts while it is loaded with drafts, one of the name SLOW_DISK
stores all prompts, slowly, and one of the name SLOW_EYES takes IMAGE seconds to encode an image.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from runtime.backends.stored import prefix_store
from runtime.backends.vision import VisionEncoder
from runtime.engine import stored_states
from runtime.engine.engine import Ask
from runtime.engine.output import Chunk, Output
from runtime.engine.process import host
from runtime.loading.options import Options
from runtime.models.registry import Pair

PLACE = 5  # tokens
PIECE = 2.0  # seconds that a long one takes
IMAGE = 6.0  # seconds that encoding one takes
SLOW = 7  # tokens whose embedding takes as long
UNLOADABLE, SLOW_DISK, SLOW_EYES = "unloadable with drafts", "slow disk", "slow eyes"
PART, PART_SECONDS = 2**14, 0.05  # bytes that are written at a time there, and how long that takes


class UnluckyEngine(host.LoadedEngine):
    """Reads what is to happen in the prompts, and takes its time with some texts."""

    said = 0
    asked = ""

    def __init__(self, pair: Pair, options: Options, *more: Any, **named: Any) -> None:
        if pair.name == UNLOADABLE and options.drafters != ():
            print("x.cpp:1: GGML_ASSERT(luck) failed", file=sys.stderr, flush=True)
            os.abort()
        if pair.name == SLOW_DISK:
            stored_states.THRESHOLDS, prefix_store.CHUNK = stored_states.Worth(seconds=0.0, gain=0.0), PART
            pause = stored_states.StoredStates._pause
            stored_states.StoredStates._pause = lambda self: (time.sleep(PART_SECONDS), pause(self))[1]  # type: ignore[method-assign]
        if pair.name == SLOW_EYES:
            encode = VisionEncoder._encode
            VisionEncoder._encode = lambda self, run: (time.sleep(IMAGE), encode(self, run))[1]  # type: ignore[method-assign]
        super().__init__(pair, options, *more, **named)

    def _sequence(self, ask: Ask, number: int, is_cancelled: Callable[[], bool]) -> Any:
        if "[slow beginning]" in str(ask.prompt):
            time.sleep(60)
        if "[abort while prepared]" in str(ask.prompt):
            time.sleep(PIECE / 4)
            os.abort()
        self.asked, self.said = str(ask.prompt), len(ask.reply_tokens)
        return super()._sequence(ask, number, is_cancelled)

    def step(self) -> list[Output]:
        asked, has_drafters = self.asked, bool(self.decoder.active.drafters)
        if self.said >= PLACE and ("[abort]" in asked or ("[abort with drafts]" in asked and has_drafters)):
            print("x.cpp:1: GGML_ASSERT(luck) failed", file=sys.stderr, flush=True)
            os.abort()
        if self.said >= PLACE and "[hang]" in asked:
            time.sleep(60)
        if not self.said and "[long piece]" in asked and not self.core.scheduler.waiting:
            time.sleep(PIECE)
        outputs = super().step()
        self.said += sum(len(came.tokens) for _, came in outputs if isinstance(came, Chunk))
        return outputs

    def embed(self, inputs: Sequence[Sequence[int]]) -> Any:
        if len(inputs[0]) == SLOW:
            time.sleep(PIECE)
        return super().embed(inputs)

    def tokenize(self, text: str, *, special: bool = True, bos: bool = False) -> list[int]:
        if "[slow text]" in text:
            time.sleep(60)
        return super().tokenize(text, special=special, bos=bos)


if __name__ == "__main__":
    host.LoadedEngine = UnluckyEngine  # type: ignore[misc]
    host.main()
