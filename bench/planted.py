"""Writes a target and a draft model with a chosen acceptance rate.

Usage: `python -m bench.planted FOLDER --acceptance 0.7`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.instruments.planted import MAX_WORDS, plant, prompts
from bench.instruments.shapes import FILE_TYPES, SHAPES
from runtime.backends import library

APART = 128  # words of the walk between the places of two prompts


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
    parser.add_argument(
        "--likely", type=float, default=0.7, help="probability of the walk's next word at temperature 1"
    )
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
    for path in (pair.target, pair.draft):
        if path is not None:
            print(f"{path}  {path.stat().st_size / 2**20:.1f} MiB")
    asked = args.folder / "prompts.txt"
    asked.write_text(
        "\n".join(prompts(SHAPES[args.shape].vocab, range(0, MAX_WORDS, APART), args.words, args.seed)) + "\n",
        encoding="utf8",
    )
    print(f"{asked}  a raw prompt per line, each for another part of the walk")


if __name__ == "__main__":
    main()
