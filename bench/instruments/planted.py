"""Pairs of models with a chosen acceptance rate, for tests and benchmarks; `python -m bench.instruments.planted FOLDER
--acceptance 0.7` writes one.

Both models store the same walk, one random cycle over up to 4096 words, as an associative memory: a word's embedding is
a direction, and the output matrix's row of the next word points the same way. Embeddings are so long that the output of
the random layers, at full cost, hardly turns them. In a chosen share of places the draft model reads another word, and
so continues from a wrong place of the walk: acceptance is decided word by word, while the draft's confidence stays the
same. A pair may also agree up to one place of the walk, and hardly after it.

Words are text (" bake duzi"), and text is split back into them: a raw prompt that ends in a word continues from it, any
other from the walk's beginning. The models know nothing but the walk: no language, no chat template, no end of
generation.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import llama_cpp.llama_cpp as lib
import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from numpy.typing import NDArray

from bench.instruments.shapes import (
    FILE_TYPES,
    N_BASE,
    SHAPES,
    Shape,
    add_layers,
    add_vocabulary,
    begin,
    finish,
    requantize,
)
from runtime.backends import library
from runtime.models.registry import Pair

SYLLABLES = [consonant + vowel for consonant in "bdfghjklmnprstvz" for vowel in "aeio"]
FIRST_WORD = N_BASE + 2 * len(SYLLABLES)  # before it: syllables, and syllables after a space
MAX_WORDS = len(SYLLABLES) ** 2
N_CTX = 4096
CERTAIN = 16.0  # the logit of a word of probability 1: far above the sum of a hundred thousand others
LOUD = 64.0  # an embedding's length relative to the output of a layer
SIGNS = np.array([-1, 1], dtype=np.float32)
HADAMARD = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]], dtype=np.float32)

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]
APART = 128  # words of the walk between the places of two prompts


def plant(
    folder: Path,
    target: Shape,
    draft: Shape,
    acceptance: float | tuple[float, float],
    *,
    change: int = 256,
    likely: float = 0.7,
    hesitation: float = 0.0,
    words: int = MAX_WORDS,
    file_type: int = lib.LLAMA_FTYPE_MOSTLY_Q8_0,
    seed: int = 0,
    n_ctx: int = N_CTX,
) -> Pair:
    """Write target.gguf and draft.gguf of these shapes (the vocabulary is the target's) and a file type of llama.h's
    enum llama_ftype, and return the pair.

    acceptance: share of words after which the draft is right; of two shares, the second applies from `change` words
    into the walk to its end. likely: probability of the walk's next word at temperature 1; the rest, above 0, is for
    skipping one word (two thirds of it) or two. hesitation: share of noise in the draft's input where it is wrong; from
    0.5 to 0.8, its confidence shows where it is right. words: maximal length of the walk, after which it repeats;
    widths below 192 have no room for thousands. n_ctx: training context in the models' metadata, in tokens.
    """
    folder.mkdir(parents=True, exist_ok=True)
    order = walk(target.vocab, words, seed)
    read = misread(len(order), acceptance, change, np.random.default_rng([seed, 1]))
    own, rngs = np.arange(len(order)), [np.random.default_rng([seed, model]) for model in (2, 3)]
    written = partial(write, order=order, likely=likely, file_type=file_type, n_ctx=n_ctx)
    path = written(folder / "target.gguf", target, read=own, hesitation=0.0, rng=rngs[0])
    smaller = replace(draft, vocab=target.vocab)
    draft_path = written(folder / "draft.gguf", smaller, read=read, hesitation=hesitation, rng=rngs[1])
    return Pair(folder.name, path, draft_path, description=f"planted, acceptance {acceptance}", context=n_ctx)


def walk(n_vocab: int, words: int = MAX_WORDS, seed: int = 0) -> Ids:
    """Return the walk's token ids [n] in order; n is a multiple of 4."""
    n = min(words, MAX_WORDS, n_vocab - FIRST_WORD) // 4 * 4
    return FIRST_WORD + np.random.default_rng([seed, 0]).permutation(n)


def prompts(n_vocab: int, places: Iterable[int], words: int = MAX_WORDS, seed: int = 0) -> list[str]:
    """Return raw prompts after which the walk continues from these places."""
    order = walk(n_vocab, words, seed)
    return [f"Go on after {word(int(order[place % len(order)]))}" for place in places]


def word(token: int) -> str:
    """Return the text of a token of the walk."""
    first, second = divmod(token - FIRST_WORD, len(SYLLABLES))
    return SYLLABLES[first] + SYLLABLES[second]


def misread(n: int, acceptance: float | tuple[float, float], change: int, rng: np.random.Generator) -> Ids:
    """Return for each place of the walk [n] the place that the draft reads: its own, or for a random share another of
    that share.
    """
    first, then = acceptance if isinstance(acceptance, tuple) else (acceptance, acceptance)
    wrong = np.flatnonzero(rng.random(n) >= np.where(np.arange(n) < change, first, then))
    read, shuffled = np.arange(n), rng.permutation(wrong)
    read[shuffled] = np.roll(shuffled, 1)
    return read


def directions(n: int, width: int, rng: np.random.Generator) -> Floats:
    """Return random signs [n, width] of which any four in a row are orthogonal, so that close places do not disturb
    each other.
    """
    signs = rng.choice(SIGNS, size=(n, width // 4, 1))
    return (signs * HADAMARD[np.arange(n) % 4, None]).reshape(n, width)


def write(
    path: Path,
    shape: Shape,
    order: Ids,
    read: Ids,
    likely: float,
    hesitation: float,
    file_type: int,
    rng: np.random.Generator,
    n_ctx: int,
) -> Path:
    """Write one model; it reads each place of the walk as the one in `read` [n]."""
    places = directions(len(order), shape.width, rng)
    source = path.with_suffix(".q8_0")
    writer = begin(source, shape, n_ctx=n_ctx)
    add_words(writer, shape.vocab)
    add_rows(writer, "token_embd.weight", embeddings(shape.vocab, order, places, read, hesitation, rng))
    writer.add_tensor("output_norm.weight", np.full(shape.width, shape.width**-0.5, dtype=np.float32))
    add_rows(writer, "output.weight", head(shape.vocab, order, places, likely))
    add_layers(writer, shape, rng)
    finish(writer, source)
    if file_type == lib.LLAMA_FTYPE_MOSTLY_Q8_0:
        return source.replace(path)
    try:
        return requantize(source, file_type, path)
    finally:
        source.unlink()


def add_words(writer: GGUFWriter, n_vocab: int) -> None:
    """Add syllables, words of two after a space, and unreachable tokens up to `n_vocab` in all."""
    pairs = [(first, second) for first in SYLLABLES for second in SYLLABLES][: n_vocab - FIRST_WORD]
    tokens = [
        *SYLLABLES,
        *(f"Ġ{syllable}" for syllable in SYLLABLES),
        *(f"Ġ{first}{second}" for first, second in pairs),
    ]
    tokens += [f"w{i}" for i in range(n_vocab - N_BASE - len(tokens))]
    merges = [*(" ".join(syllable) for syllable in SYLLABLES), *(f"Ġ {syllable}" for syllable in SYLLABLES)]
    add_vocabulary(writer, tokens, [*merges, *(f"Ġ{first} {second}" for first, second in pairs)])


def embeddings(
    n_vocab: int, order: Ids, places: Floats, read: Ids, hesitation: float, rng: np.random.Generator
) -> Floats:
    """Return [n_vocab, width] embeddings: each word as the place that is read; every other token as the walk's last
    word.
    """
    noise = rng.choice(SIGNS, size=places.shape)
    share = np.where(read == np.arange(len(read)), 0, hesitation)[:, None]
    rows: Floats = np.tile(places[-1], (n_vocab, 1))
    rows[order] = np.sqrt(1 - share) * places[read] + np.sqrt(share) * noise
    rows *= LOUD
    return rows


def head(n_vocab: int, order: Ids, places: Floats, likely: float) -> Floats:
    """Return [n_vocab, width]: each word's row points to the three places before it, by the probability of coming from
    there.
    """
    rows = np.zeros((n_vocab, places.shape[1]), dtype=np.float32)
    for back, probability in enumerate((likely, (1 - likely) * 2 / 3, (1 - likely) / 3), start=1):
        rows[order] += (CERTAIN + np.log(probability)) * np.roll(places, back, axis=0)
    return rows / np.float32(places.shape[1] ** 0.5)


def add_rows(writer: GGUFWriter, name: str, rows: Floats) -> None:
    """Add one Q8_0 tensor of given values."""
    writer.add_tensor(name, quantize(rows, GGMLQuantizationType.Q8_0), raw_dtype=GGMLQuantizationType.Q8_0)


def options() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description="Write a target and a draft whose agreement is dialled.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="135m", help="of the target")
    parser.add_argument("--draft", choices=SHAPES, default="10m", help="of the draft")
    parser.add_argument(
        "--acceptance", type=float, nargs="+", default=[0.7], help="one share, or two: before and after the change"
    )
    parser.add_argument("--change", type=int, default=256, help="words of the walk after which the second share holds")
    parser.add_argument("--likely", type=float, default=0.7, help="the next word's probability at temperature 1")
    parser.add_argument(
        "--hesitation", type=float, default=0.0, help="from 0.5 to 0.8: the draft is less sure where it is wrong"
    )
    parser.add_argument("--words", type=int, default=MAX_WORDS, help="length of the walk, after which it begins again")
    parser.add_argument(
        "--quant", choices=FILE_TYPES, default="Q8_0", metavar="TYPE", help="such as Q8_0, Q4_0, Q4_K_M, F16"
    )
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main() -> None:
    """Write a pair and prompts for it, and print their sizes."""
    parser = options()
    args = parser.parse_args()
    if len(args.acceptance) > 2 or not all(0 <= share <= 1 for share in args.acceptance):
        parser.error("--acceptance is one share or two, each from 0 to 1.")
    if not 0 < args.likely < 1 or not 0 <= args.hesitation <= 1 or args.words < 4:
        parser.error("--likely is between 0 and 1, --hesitation from 0 to 1, --words at least 4.")
    library.start()  # keeps llama.cpp's log quiet
    try:
        pair = plant(
            args.folder, SHAPES[args.shape], SHAPES[args.draft], (args.acceptance[0], args.acceptance[-1]),
            change=args.change,
            likely=args.likely, hesitation=args.hesitation, words=args.words, file_type=FILE_TYPES[args.quant],
            seed=args.seed,
        )  # fmt: skip
    except RuntimeError as error:
        parser.exit(1, f"{error}: choose another --quant.\n")
    for path in pair.files:
        print(f"{path}  {path.stat().st_size / 2**20:.1f} MiB")
    asked = args.folder / "prompts.txt"
    lines = prompts(SHAPES[args.shape].vocab, range(0, MAX_WORDS, APART), args.words, args.seed)
    asked.write_text("".join(f"{line}\n" for line in lines), encoding="utf8")
    print(f"{asked}  a raw prompt per line, each for another part of the walk")


if __name__ == "__main__":
    main()
