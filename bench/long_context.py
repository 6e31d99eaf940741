"""What a draft model loses when it sees only the first tokens and the latest of a long context: `python -m bench.long_context`.

Two pairs. The planted one has contexts of 8k and 32k tokens, but its models look only at the last word: what it shows is that positions and
cache stay right however far the window moves, and what the window saves. The bundled pair is trained and has a context of 2,048: it shows
what narrow windows cost a draft that did learn to look back. Counts rows and accepted tokens, not seconds.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.planted import SYLLABLES, plant, walk
from bench.shapes import DRAFT_10M, Shape
from bench.timing import report
from runtime.engine import Engine, Ids, Message, Options, Prompt, Sampling
from runtime.footprint import DRAFT_WINDOW, draft_context
from runtime.gguf_header import read_header
from runtime.memory import MIB
from runtime.model_facts import ModelFacts
from runtime.registry import Pair, load_registry

K = 4  # tokens of every draft
N_TOKENS = 96  # of each reply
N_LAST = 6  # replies of the bundled pair
ALL = 1 << 20  # a window that no context fills
NARROW = 128, 256, 512, 1024  # for the bundled pair, whose context is short
TARGET, DRAFT = replace(DRAFT_10M, vocab=4736), Shape(width=192, layers=2, heads=3, kv_heads=3, ffn=512, vocab=4736)
QUESTIONS = "os.path.join", "re.compile", "collections.deque", "json.dumps", "itertools.chain", "functools.partial", "shutil.copy", "heapq.heappush"


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
    engine = Engine(pair, Options(n_ctx, ("model",), fixed_k=K, threads=1, draft_window=window))
    try:
        texts, counts = list[str](), list[tuple[int, int]]()
        for prompt in prompts:
            chunks = list(engine.reply(prompt, Sampling(temperature=0), N_TOKENS))
            texts.append("".join(chunk.text for chunk in chunks))
            stats = chunks[-1].stats
            assert stats is not None
            counts.append((stats.draft_n, stats.draft_n_accepted))
        drafted, accepted = (sum(count) for count in zip(*counts, strict=True))
        backend = engine.loop.drafters[0].backend.inner  # type: ignore[attr-defined]
        cache = cache_bytes(pair, draft_context(n_ctx, window, K, 0))
        return Found(accepted / drafted, stats.prompt_n + stats.predicted_n, backend.n_decoded, cache, tuple(texts))
    finally:
        engine.close()


def cache_bytes(pair: Pair, n_ctx: int) -> int:
    """Of the draft model."""
    assert pair.draft is not None
    return ModelFacts(read_header(pair.draft)).cache_bytes(n_ctx, "Q8_0")


def on_the_walk(n: int) -> Sequence[Prompt]:
    """A prompt of `n` words of the planted walk."""
    order = [int(word) for word in walk(TARGET.vocab, len(SYLLABLES) ** 2)]
    return [Ids(tuple((order * (n // len(order) + 1))[:n]))]


def conversation(pair: Pair) -> Sequence[Prompt]:
    """Questions, each with all that was said before it, as long as they have room; the last of them, where windows differ most."""
    engine = Engine(pair, Options(threads=1))
    turns, prompts = list[Message](), list[Prompt]()
    for name in QUESTIONS * 4:
        turns = [*turns, Message("user", f"What does {name} do?")]
        if len(engine.encode(turns)) + N_TOKENS >= engine.n_ctx:
            break
        prompts.append(list(turns))
        turns.append(Message("assistant", "".join(chunk.text for chunk in engine.reply(list(turns), Sampling(temperature=0), N_TOKENS))))
    engine.close()
    return prompts[-N_LAST:]


def main() -> None:
    """Wanted: every text the same with and without a window, and on the planted pair the same acceptance for a fraction of the rows."""
    parser = argparse.ArgumentParser(description="Acceptance and cost of a bounded draft cache.")
    parser.add_argument("--lengths", type=int, nargs="+", default=[8192, 32_768], help="tokens of context of the planted pair")
    parser.add_argument("--acceptance", type=float, default=0.8, help="of the planted pair")
    args = parser.parse_args()
    results: dict[str, list[tuple[str, Found]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for n in args.lengths:
            pair = plant(Path(folder), TARGET, DRAFT, args.acceptance, n_ctx=n)
            windows = {"all": ALL, f"{DRAFT_WINDOW:,}": DRAFT_WINDOW}
            prompt = on_the_walk(n - 2 * N_TOKENS)
            results[f"planted, {n:,} tokens"] = [(name, found(pair, n, window, prompt)) for name, window in windows.items()]
    said = conversation(load_registry()["demo"])
    demo, narrow = load_registry()["demo"], {"all": ALL, **{f"{window:,}": window for window in NARROW}}
    results["bundled pair"] = [(name, found(demo, demo.context, window, said)) for name, window in narrow.items()]
    rows = [row(name, window, one) for name, group in results.items() for window, one in group]
    n_different = sum(one.texts != group[0][1].texts for group in results.values() for _, one in group)
    summary = {f"{name}, window {window}": round(one.acceptance, 4) for name, group in results.items() for window, one in group}
    columns = ["pair", "window", "context at the end", "accepted", "rows decoded by the draft", "its cache, MiB"]
    report(f"bounded draft cache, K = {K}", columns, rows, {"acceptance": summary, "different_texts": n_different})


def row(name: str, window: str, one: Found) -> list[str]:
    """One line of the table."""
    return [name, window, f"{one.n_context:,}", f"{one.acceptance:.1%}", f"{one.n_decoded:,}", f"{one.cache / MIB:.2f}"]


if __name__ == "__main__":
    main()
