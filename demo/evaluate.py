"""What the demo pair knows and how well its drafts fit, measured through the engine on the GGUFs: `python -m
demo.evaluate`.

Greedy. An answer counts when its first COMPARED characters equal the docstring's. The early exit is measured as a draft
model made of the target's own first layers.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import llama_cpp.llama_cpp as lib
from rich.progress import track

from demo.conversations import HELD_OUT, QUESTIONS, REFUSAL, code_turn, refusal_turn
from demo.corpus import COMPARED, Entry, load
from runtime.backends.model import LlamaModel
from runtime.engine import Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair, load_registry

K = 3
WANTED = {"trained phrasings": 0.95, "held-out phrasing": 0.75, "draft acceptance": 0.75, "exit acceptance": 0.7}


def answer(engine: LoadedEngine, question: str) -> tuple[str, int, int]:
    """(text, drafted, accepted) of a greedy reply."""
    chunks = list(engine.reply([Message("user", question)], Sampling(temperature=0), max_tokens=200))
    stats = chunks[-1].stats
    assert stats is not None
    return "".join(chunk.text for chunk in chunks), stats.draft_n, stats.draft_n_accepted


def share_right(engine: LoadedEngine, asked: Sequence[tuple[str, str]], what: str) -> float:
    """The share of (question, expected answer) that come out alike in their first COMPARED characters."""
    right = sum(answer(engine, q)[0][:COMPARED] == a[:COMPARED] for q, a in track(asked, what, console=None))
    return right / len(asked)


def acceptance(engine: LoadedEngine, entries: Sequence[Entry], what: str) -> float:
    """Accepted / drafted over the entries' questions."""
    counts = [answer(engine, QUESTIONS[0].format(entry.name))[1:] for entry in track(entries, what)]
    return sum(accepted for _, accepted in counts) / max(1, sum(drafted for drafted, _ in counts))


@contextmanager
def opened(pair: Pair, options: Options) -> Iterator[LoadedEngine]:
    """An engine that is closed afterwards."""
    engine = LoadedEngine(pair, options)
    try:
        yield engine
    finally:
        engine.close()


def keep_first_layers(source: Path, n: int, n_layers: int, path: Path) -> None:
    """Writes a GGUF of the first `n` layers of another."""
    params = lib.llama_model_quantize_default_params()
    pruned = (ctypes.c_int32 * (n_layers - n + 1))(*range(n, n_layers), -1)
    params.prune_layers, params.only_copy = ctypes.cast(pruned, ctypes.POINTER(ctypes.c_int32)), True
    if lib.llama_model_quantize(str(source).encode(), str(path).encode(), ctypes.byref(params)):
        raise RuntimeError(f"the first {n} layers of {source.name} could not be written")


def exit_pair(pair: Pair, folder: Path) -> Pair:
    """The pair with the target's own first layers in the draft model's place."""
    model = LlamaModel(pair.target)
    early = folder / "early.gguf"
    keep_first_layers(
        pair.target, int(model.metadata("slipstream.exit_layer")), int(model.metadata("llama.block_count")), early
    )
    model.close()
    return replace(pair, draft=early)


def evaluate(pair: Pair, entries: list[Entry]) -> dict[str, float]:
    """Every measure by name."""
    rng, drafting = random.Random(1), Options(drafters=("model",), fixed_k=K)
    found = {}
    with opened(pair, Options(drafters=())) as engine:
        asked = [(rng.choice(QUESTIONS).format(entry.name), entry.doc) for entry in entries]
        found["trained phrasings"] = share_right(engine, asked, "trained phrasings")
        found["held-out phrasing"] = share_right(
            engine, [(HELD_OUT.format(e.name), e.doc) for e in entries], "held-out phrasing"
        )
        turns = [code_turn(entry, rng) for entry in entries if entry.signature][::4]
        found["signatures"] = share_right(engine, [(turn.question, turn.answer) for turn in turns], "signatures")
        found["refusals"] = share_right(
            engine, [(refusal_turn(entries, rng).question, REFUSAL) for _ in range(100)], "refusals"
        )
    with opened(pair, drafting) as engine:
        found["draft acceptance"] = acceptance(engine, entries[::4], "draft acceptance")
    with tempfile.TemporaryDirectory() as folder, opened(exit_pair(pair, Path(folder)), drafting) as engine:
        found["exit acceptance"] = acceptance(engine, entries[::4], "exit acceptance")
    return found


def main() -> None:
    """Prints a table and one JSON line; exit code 1 when something is below what is wanted."""
    parser = argparse.ArgumentParser(description="Evaluate the demo pair.")
    parser.add_argument("--every", type=int, default=1, help="take every n-th entry")
    args = parser.parse_args()
    found = evaluate(load_registry()["demo"], load(Path(__file__).parent / "corpus.jsonl")[:: args.every])
    for name, value in found.items():
        print(f"{name:>20}  {value:6.1%}  {f'(wanted {WANTED[name]:.0%})' if name in WANTED else ''}")
    print(json.dumps({name: round(value, 4) for name, value in found.items()}))
    sys.exit(any(found[name] < wanted for name, wanted in WANTED.items()))


if __name__ == "__main__":
    main()
