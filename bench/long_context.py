"""What a draft model loses when it sees only the first tokens and the latest of a long context: `python -m
bench.long_context`.

Two pairs. The planted one has contexts of 8k and 32k tokens, but its models look only at the last word: what it shows
is that positions and cache stay right however far the window moves, and what the window saves. The bundled pair is
trained and has a context of 2,048: it shows what narrow windows cost a draft that did learn to look back. Counts rows
and accepted tokens, not seconds.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.timing import report
from runtime.engine import Ids, Message, Options, Prompt, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.memory.fit import draft_context
from runtime.memory.footprint import DRAFT_WINDOW
from runtime.memory.pressure import MIB
from runtime.models import cache_layout as layout
from runtime.models.facts import ModelFacts
from runtime.models.header import read_header
from runtime.models.registry import Pair, load_registry
from tests.support.planted import plant, walk
from tests.support.shapes import Shape

K = 4  # tokens of every draft
N_TOKENS = 96  # of each reply
N_LAST = 6  # replies of the bundled pair
ALL = 1 << 20  # a window that no context fills
NARROW = 32, 64, 256, 1024  # for the bundled pair, whose context is short
# Of both planted models: 32k tokens of attention take a while
SMALL = Shape(width=64, layers=2, heads=1, kv_heads=1, ffn=128, vocab=1024)
WORDS = 512  # of the walk
QUESTIONS = (
    "os.path.join",
    "re.compile",
    "collections.deque",
    "json.dumps",
    "itertools.chain",
    "functools.partial",
    "shutil.copy",
    "heapq.heappush",
)


@dataclass(frozen=True, slots=True)
class Found:
    """What came of one window."""

    acceptance: float
    n_context: int  # tokens at the end
    n_decoded: int  # rows that the draft model decoded, prompts included
    cache: int  # bytes of the draft model's
    texts: tuple[str, ...]


def found(pair: Pair, n_ctx: int, window: int, prompts: Sequence[Prompt]) -> Found:
    """Answers the prompts with drafts of a fixed length by a draft model of that window."""
    engine = LoadedEngine(pair, Options(n_ctx, ("model",), fixed_k=K, threads=1, draft_window=window))
    try:
        backend = engine.loop.lineup.drafters[0].backend.inner  # type: ignore[attr-defined]  # of a draft model
        texts, counts, n_before = list[str](), list[tuple[int, int]](), backend.n_decoded
        for prompt in prompts:
            chunks = list(engine.reply(prompt, Sampling(temperature=0), N_TOKENS))
            texts.append("".join(chunk.text for chunk in chunks))
            stats = chunks[-1].stats
            assert stats is not None
            counts.append((stats.draft_n, stats.draft_n_accepted))
        drafted, accepted = (sum(count) for count in zip(*counts, strict=True))
        cache = cache_bytes(pair, draft_context(n_ctx, window, K, 0))
        return Found(
            accepted / drafted, stats.prompt_n + stats.predicted_n, backend.n_decoded - n_before, cache, tuple(texts)
        )
    finally:
        engine.close()


def cache_bytes(pair: Pair, n_ctx: int) -> int:
    """Of the draft model."""
    assert pair.draft is not None
    return layout.cache_bytes(ModelFacts(read_header(pair.draft)), layout.CacheSpec(n_ctx, layout.USUAL_CACHE))


def on_the_walk(n: int) -> Sequence[Prompt]:
    """A prompt of `n` words of the planted walk."""
    order = [int(word) for word in walk(SMALL.vocab, WORDS)]
    return [Ids(tuple((order * (n // len(order) + 1))[:n]))]


def conversation(pair: Pair) -> Sequence[Prompt]:
    """Questions, each with all that was said before it, as long as they have room; the last of them, where windows
    differ most.
    """
    engine = LoadedEngine(pair, Options(threads=1))
    turns, prompts = list[Message](), list[Prompt]()
    for name in QUESTIONS * 4:
        turns = [*turns, Message("user", f"What does {name} do?")]
        if len(engine.encode(turns)) + N_TOKENS >= engine.facts.n_ctx:
            break
        prompts.append(list(turns))
        turns.append(
            Message(
                "assistant",
                "".join(chunk.text for chunk in engine.reply(list(turns), Sampling(temperature=0), N_TOKENS)),
            )
        )
    engine.close()
    return prompts[-N_LAST:]


def planted(n: int, acceptance: float) -> Iterator[tuple[str, Found]]:
    """A context of `n` tokens with and without a window."""
    with tempfile.TemporaryDirectory() as folder:
        pair, prompt = (
            plant(Path(folder), SMALL, SMALL, acceptance, words=WORDS, n_ctx=n),
            on_the_walk(n - 2 * N_TOKENS),
        )
        for name, window in (("all", ALL), (f"{DRAFT_WINDOW:,}", DRAFT_WINDOW)):
            yield name, found(pair, n, window, prompt)


def bundled() -> Iterator[tuple[str, Found]]:
    """A conversation that nearly fills the context, with and without windows."""
    pair = load_registry()["demo"]
    prompts = conversation(pair)
    for window in (ALL, *NARROW):
        yield "all" if window == ALL else f"{window:,}", found(pair, pair.context, window, prompts)


def main() -> None:
    """Wanted: every text the same with and without a window, and on the planted pair the same acceptance for a fraction
    of the rows.
    """
    parser = argparse.ArgumentParser(description="Acceptance and cost of a bounded draft cache.")
    parser.add_argument(
        "--lengths", type=int, nargs="*", default=[8192, 32_768], help="tokens of context of the planted pair"
    )
    parser.add_argument("--acceptance", type=float, default=0.8, help="of the planted pair, word by word")
    parser.add_argument("--no-bundled", action="store_true", help="leave the bundled pair out")
    args = parser.parse_args()
    groups = {f"planted, {n:,} tokens": planted(n, args.acceptance) for n in args.lengths}
    groups |= {} if args.no_bundled else {"bundled pair": bundled()}
    rows, summary, n_different = list[list[str]](), dict[str, float](), 0
    for name, group in groups.items():
        texts: tuple[str, ...] = ()
        for window, one in group:
            texts = texts or one.texts
            n_different += one.texts != texts
            summary[f"{name}, window {window}"] = round(one.acceptance, 4)
            rows.append(
                [
                    name,
                    window,
                    f"{one.n_context:,}",
                    f"{one.acceptance:.1%}",
                    f"{one.n_decoded:,}",
                    f"{one.cache / MIB:.2f}",
                ]
            )
            print(" | ".join(rows[-1]), flush=True)
    columns = ["pair", "window", "context at the end", "accepted", "rows decoded by the draft", "its cache, MiB"]
    report(f"bounded draft cache, K = {K}", columns, rows, {"acceptance": summary, "different_texts": n_different})


if __name__ == "__main__":
    main()
