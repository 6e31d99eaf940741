"""What a copy of Gemma 3 270M with fewer words loses in acceptance, and what it gains: `python -m bench.trimmed`.

The target is the same model with layers that change nothing, so many that a pass costs what one of a larger model
does; so the whole model is right wherever rounding lets it, and what a copy misses are words that it lacks. Copies keep
the first words, or those first that replies to other questions had.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from numpy.typing import NDArray

from app.bench.prompts import AVERAGE, LETTER, LIBRARY, TIDES
from bench.real_texts import KINDS
from bench.timing import report
from runtime.engine import Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.facts import ModelFacts
from runtime.models.header import read_header
from runtime.models.registry import Pair
from runtime.models.trimmed import choose, write
from tests.support.weights import GEMMA3, fetched

N_CONTEXT, DRAFTED = 1024, 3
GREEDY = Sampling(temperature=0)
IDLE = "attn_output.weight", "ffn_down.weight"  # whose zeros let a layer change nothing
# Texts that go on: by whose replies words are counted, and by which is measured
LEARNED = (
    TIDES[:300], LIBRARY[:300], LETTER[:200], AVERAGE,
    "Gestern waren wir auf dem Markt und haben", "Die Katze saß am Fenster und sah, wie der Schnee",
)  # fmt: skip
ASKED = {name: KINDS[name].text(is_raw=True) for name in ("chat", "story", "code")} | {
    "German": "Liebe Anna, vielen Dank für deinen Brief. Bei uns ist es inzwischen Herbst geworden, und"
}


def heavier(source: Path, path: Path, n_more: int) -> Path:
    """Writes the model with `n_more` layers, as dear as its own, that add nothing to what they are given."""
    reader = GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = GGUFWriter(path, architecture)
    n_layers = int(reader.fields[f"{architecture}.block_count"].contents())
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            value = n_layers + n_more if key.endswith(".block_count") else field.contents()
            is_list = field.types[0] == GGUFValueType.ARRAY
            writer.add_key_value(key, value, field.types[0], field.types[-1] if is_list else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    for i in range(n_more):
        begin = f"blk.{i % n_layers}."
        for tensor in [tensor for tensor in reader.tensors if tensor.name.startswith(begin)]:
            name = tensor.name.removeprefix(begin)
            data = np.zeros_like(tensor.data) if name in IDLE else tensor.data
            writer.add_tensor(f"blk.{n_layers + i}.{name}", data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def words_said(path: Path, facts: ModelFacts, n: int) -> NDArray[np.int64]:
    """[n_vocab] how often the model's replies had each word."""
    engine = LoadedEngine(Pair("whole", path, context=N_CONTEXT), Options(drafters=(), exact=True))
    try:
        said = [token for text in LEARNED for chunk in engine.reply(text, GREEDY, n) for token in chunk.tokens]
        return np.bincount(said, minlength=facts.n_vocab)
    finally:
        engine.close()


def tried(target: Path, draft: Path | None, n: int) -> dict[str, tuple[float, float]]:
    """By kind of text: the share of guesses that were accepted, and tokens per second."""
    pair, names = Pair("heavier", target, draft, context=N_CONTEXT), ("model",) if draft else ()
    engine = LoadedEngine(pair, Options(drafters=names, fixed_k=DRAFTED, exact=True))
    try:
        return {kind: once(engine, text, n) for kind, text in ASKED.items()}
    finally:
        engine.close()


def once(engine: LoadedEngine, text: str, n: int) -> tuple[float, float]:
    """Of one reply."""
    stats = list(engine.reply(text, GREEDY, n))[-1].stats
    assert stats is not None
    return stats.draft_n_accepted / max(1, stats.draft_n), stats.predicted_per_second


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=60, help="that the target has more")
    parser.add_argument("--tokens", type=int, default=48, help="of a reply")
    args = parser.parse_args()
    draft = fetched(GEMMA3)
    facts = ModelFacts(read_header(draft))
    with tempfile.TemporaryDirectory() as folder:
        target = heavier(draft, Path(folder) / "heavier.gguf", args.layers)
        counts = words_said(draft, facts, args.tokens)
        copies = {"first words": counts * 0, "words said": counts}
        drafts: dict[str, Path | None] = {"plain": None, "whole": draft}
        for name, words in copies.items():
            drafts[name] = path = Path(folder) / f"{name.replace(' ', '-')}-words.gguf"
            write(draft, path, choose(facts, words))
        found = {name: tried(target, path, args.tokens) for name, path in drafts.items()}
    rows = [
        [kind, name, f"{accepted:.0%}", f"{rate:.2f}", f"{rate / found['plain'][kind][1]:.2f}"]
        for kind in ASKED
        for name, (accepted, rate) in ((name, found[name][kind]) for name in drafts)
    ]
    summary = {name: {kind: round(share, 3) for kind, (share, _) in found[name].items()} for name in drafts}
    report("A copy with fewer words", ["text", "draft", "accepted", "tok/s", "times plain"], rows, summary)


if __name__ == "__main__":
    main()
