"""What showing a reply costs its decoding: tok/s of the bundled pair in the chat over tok/s of the same replies with
nothing to draw.

Both are taken by turns in one run, by the clock, so the ratio means something on a busy machine too.

python -m bench.drawing
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from textual.pilot import Pilot

from app.chats.store import Store
from app.tui.actions.chats import new
from app.tui.app import ChatApp
from app.tui.chat_screen import ChatScreen
from app.tui.chat_settings import ChatSettings, Values
from app.tui.session import Session
from runtime.engine import Chunk, Engine, Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair, load_registry

QUESTION = "What does os.path.join do?"
LENGTHS = (60, 600)  # tokens of a reply: as the pair says it by itself, and a long one
SIZE = (120, 40)


class Clocked(LoadedEngine):
    """Takes the time of its replies, from the first chunk to the last."""

    speed = 0.0  # tok/s of the last reply

    def reply(self, *arguments: Any, **named: Any) -> Iterator[Chunk]:
        """As it is."""
        began, tokens = 0.0, 0
        for chunk in super().reply(*arguments, **named):
            if began:
                tokens += len(chunk.tokens)
            else:
                began = time.perf_counter()
            if chunk.finish_reason is not None:  # who has it need not ask for more
                self.speed = tokens / (time.perf_counter() - began)
            yield chunk


class Asked(ChatSettings):
    """What is asked of every reply, whatever was set."""

    wanted, length = Sampling(), 0

    def sampling(self, pair: Pair, chosen: Values) -> Sampling:
        """As wanted."""
        return self.wanted

    def max_tokens(self, pair: Pair, chosen: Values) -> int:
        """As long as wanted."""
        return self.length


def endless(engine: Engine) -> Sampling:
    """Never ends a reply, so that it is as long as asked for."""
    ends = [token for token in range(engine.facts.n_vocab) if engine.is_end(token)]
    return Sampling(temperature=1.0, seed=1, logit_bias=tuple((token, -100.0) for token in ends))


def alone(engine: Clocked, sampling: Sampling, n_tokens: int) -> float:
    """tok/s of decoding when nobody looks."""
    for _ in engine.reply([Message("user", QUESTION)], sampling, n_tokens):
        pass
    return engine.speed


async def shown(engine: Clocked, screen: ChatScreen, pilot: Pilot[None]) -> float:
    """tok/s of decoding while the chat shows it."""
    await new(screen, "")
    engine.speed = 0.0
    screen.prompt.insert(QUESTION)
    await pilot.press("enter")
    while not engine.speed or screen.host.is_replying:
        await asyncio.sleep(0.01)
    await pilot.pause(0.2)
    return engine.speed


async def compare(path: Path, n_rounds: int, options: Options) -> dict[int, list[tuple[float, float]]]:
    """By length: (alone, shown) of each round."""
    pair = load_registry()["demo"]
    engine = Clocked(pair, options)
    settings = Asked(Store(path))
    session = Session(pair, options, settings, lambda *_: engine)
    app, found = ChatApp(session), {n: list[tuple[float, float]]() for n in LENGTHS}
    async with app.run_test(size=SIZE) as pilot:
        screen = app.screen
        assert isinstance(screen, ChatScreen)
        while screen.host.is_busy:
            await pilot.pause(0.05)
        settings.wanted = endless(engine)
        for n in [LENGTHS[0], *LENGTHS * n_rounds]:  # the first is to warm up
            settings.length = n
            by_itself = await asyncio.to_thread(alone, engine, settings.wanted, n)
            found[n].append((by_itself, await shown(engine, screen, pilot)))
    engine.close()
    session.store.close()
    return {n: rows[n == LENGTHS[0] :] for n, rows in found.items()}


def main() -> None:
    """Prints a line for each length, and one in JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(compare(Path(folder) / "chats.db", given.rounds, Options(threads=given.threads)))
    shares = {n: median(chat / plain for plain, chat in rows) for n, rows in found.items()}
    for n, rows in found.items():
        plain, chat = (median(column) for column in zip(*rows, strict=True))
        print(
            f"{n:>4} tokens: {plain:.0f} tok/s alone, {chat:.0f} in the chat, {shares[n]:.2f} of it (median of "
            f"{len(rows)})"
        )
    print(json.dumps({"share": {n: round(share, 3) for n, share in shares.items()}}))


if __name__ == "__main__":
    main()
