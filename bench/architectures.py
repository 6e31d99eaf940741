"""Long test of every model family: drafts against plain decode, and rewinds against fresh contexts.

Usage: `python -m bench.architectures [FAMILY ...]`. Exit code 1 on a mismatch. Runs tiny random models, each in a
process of its own, so that an abort costs one row only. Replies with every drafter are compared with plain decode,
token for token, past the sliding windows. Random rewinds are compared with fresh contexts. Models that generate no text
must be refused. `--markdown` prints docs/architectures.md.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.progress import track

from bench.instruments.architectures.families import DRAFTING, FAMILIES, TEXT
from bench.instruments.architectures.tensors import QUIET
from bench.instruments.architectures.trials import ROUNDING, Asked, FamilyReply, random_rewinds, replies, requests
from bench.instruments.architectures.writer import write_drafting
from bench.instruments.timing import report
from runtime.core.errors import ModelError, SettingsError
from runtime.engine import Options

N_CTX, MAX_TOKENS = 1024, 64
N_PASSES, N_FIRST = 48, 240  # passes of a walk, and tokens of its first context, more than the windows
TIMEOUT = 900.0  # maximal seconds for one family
ASKED = requests([(0.0, 1), (0.9, 7), (0.9, 8), (1.4, 9)], MAX_TOKENS)
K = {"lookahead": 12, "layerskip": 8}  # draft lengths of these drafters; others draft USUAL_K tokens
USUAL_K, POOR_SEED = 6, 2
ALONE = ("model", "ngram", "suffix", "lookahead", "layerskip", "prediction")
WRITING = {**TEXT, **DRAFTING}
ON_PAGE = [name for name in FAMILIES if name not in DRAFTING]  # the others are the same families with a drafting layer
PLAIN = Options(drafters=(), threads=1, n_ctx=N_CTX)
WAYS = {name: replace(PLAIN, drafters=(name,), fixed_k=K.get(name, USUAL_K)) for name in ALONE}
WAYS |= {
    "poor model": WAYS["model"],  # other weights, so that almost nothing is accepted
    "adaptive": replace(PLAIN, drafters=None),
}
COLUMNS = ("family", "layers", "answers", "drafts", "same text", "worst difference", "decoded again", "notes")
PAGE = """# Architectures

Tiny random models of each family, written by `bench/instruments/architectures`: real metadata, tensors and kinds of
layers, weights that say nothing. `python -m bench.architectures --markdown > docs/architectures.md` measured every
cell below and wrote this page; a quick form of it is part of the tests.

- *drafts*: draft tokens accepted, of all that were made, over every kind of drafter; or why there are none.
- *same text*: replies with drafters, at temperature 0 and with seeds, that are plain decode's, token for token; of all.
- *worst difference*: of logits after random rewinds, edits and rejected drafts from those of a fresh context, as a
  share of their standard deviation. Above 0 is rounding, of passes of another width; a wrong token in the cache makes
  more than {limit}.
- *decoded again*: tokens per pass that were dropped together with others and had to be read once more; 0 where what is
  dropped is only what was rejected or changed.
"""


@dataclass(slots=True)
class Row:
    """The results for a family. Sent between processes as JSON."""

    name: str
    answers: str = "no"
    drafts: str = ""
    same_text: str = ""
    worst: str = ""
    again: str = ""
    notes: str = ""
    is_right: bool = False

    @property
    def cells(self) -> list[str]:
        """The cells of the table row."""
        layers = FAMILIES[self.name].layers
        return [self.name, layers, self.answers, self.drafts, self.same_text, self.worst, self.again, self.notes]


def measure(name: str, folder: Path) -> Row:
    """Return a family's row; all persistent state goes into `folder`."""
    for kind in ("CACHE", "DATA", "CONFIG", "STATE"):
        os.environ[f"XDG_{kind}_HOME"] = str(folder / kind)
    path, row = write_drafting(name, folder), Row(name)
    try:
        plain = replies(path, None, PLAIN, ASKED)
    except (ModelError, SettingsError) as error:
        row.answers, row.notes, row.is_right = "refused", str(error).split(":")[0], name not in WRITING
        return row
    row.answers = "yes"
    is_same = see_replies(row, path, write_poor(name, folder), plain)
    row.is_right = see_rewinds(row, path) and is_same and name in WRITING
    return row


def write_poor(name: str, folder: Path) -> Path:
    """Write the same family with other weights."""
    (folder / "poor").mkdir()
    return write_drafting(name, folder / "poor", seed=POOR_SEED)


def see_replies(row: Row, path: Path, poor: Path, plain: list[FamilyReply]) -> bool:
    """Record drafts and texts of every configuration; return whether all texts are the same as plain decode's."""
    answers, refused = by_way(path, poor, predicted(plain))
    everything = [each for found in answers.values() for each in found]
    others = {way: sum(not a.is_as(b) for a, b in zip(found, plain, strict=True)) for way, found in answers.items()}
    row.drafts = drafts(everything)
    row.same_text = f"{len(everything) - sum(others.values())} of {len(everything)}"
    row.notes = "; ".join([*notes(answers, others), *refused])
    return not sum(others.values())


def by_way(path: Path, poor: Path, asked: list[Asked]) -> tuple[dict[str, list[FamilyReply]], list[str]]:
    """Return the replies by configuration, and the configurations that are refused for this family."""
    answers: dict[str, list[FamilyReply]] = {}
    refused: list[str] = []
    for way, options in WAYS.items():
        try:
            answers[way] = replies(path, poor if way == "poor model" else path, options, asked)
        except SettingsError as error:
            refused.append(f"no {way}: {str(error).partition('because ')[2].split('.')[0]}")
    return answers, refused


def predicted(plain: list[FamilyReply]) -> list[Asked]:
    """Return the requests, each with the greedy reply as its prediction."""
    greedy = {
        asked.prompt: answers.text
        for asked, answers in zip(ASKED, plain, strict=True)
        if not asked.sampling.temperature
    }
    return [replace(asked, prediction=greedy[asked.prompt]) for asked in ASKED]


def drafts(answers: Sequence[FamilyReply]) -> str:
    """Return the numbers of proposed and accepted draft tokens, or the reasons for having none."""
    if drafted := sum(each.n_drafted for each in answers):
        return f"{sum(each.n_accepted for each in answers):,} of {drafted:,}"
    return "none: " + ", ".join(sorted({each.why_plain for each in answers}))


def notes(answers: dict[str, list[FamilyReply]], others: dict[str, int]) -> Iterator[str]:
    """Yield the configurations with other texts, and the drafters that proposed nothing."""
    yield from (f"other texts with {way}: {n}" for way, n in others.items() if n)
    silent = [way for way in ALONE if way in answers and not any(each.n_drafted for each in answers[way])]
    if silent and any(each.n_drafted for found in answers.values() for each in found):
        yield f"no drafts by {' and '.join(silent)}"


def see_rewinds(row: Row, path: Path) -> bool:
    """Record a walk over one cache; return whether it is right."""
    seen = random_rewinds(path, N_PASSES, N_CTX, N_FIRST)
    row.worst, row.again = f"{seen.worst:.2g}", f"{seen.again:.3g}"
    return seen.is_right


def apart(name: str) -> Row:
    """Return the row of a family, measured in a process of its own."""
    command = [sys.executable, "-m", "bench.architectures", "--apart", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | QUIET, timeout=TIMEOUT)
    if done.returncode == 0:
        return Row(**json.loads(done.stdout.splitlines()[-1]))
    last = (done.stderr.strip().splitlines() or [""])[-1]
    code = signal.Signals(-done.returncode).name if done.returncode < 0 else f"code {done.returncode}"
    return Row(name, "no", notes=f"the process ended with {code}: {last}")


def page(rows: list[Row]) -> str:
    """Return the page of the documentation."""
    lines = [COLUMNS, ["---"] * len(COLUMNS), *(row.cells for row in rows)]
    return "\n".join([PAGE.format(limit=ROUNDING), *(f"| {' | '.join(line)} |" for line in lines)])


def main() -> None:
    """Print the table, or the page."""
    parser = argparse.ArgumentParser(description="Try every family of models.")
    parser.add_argument(
        "families", nargs="*", metavar="FAMILY", help=f"of {', '.join(FAMILIES)}; those of the page by default"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes, of a thread each")
    parser.add_argument("--markdown", action="store_true", help="print docs/architectures.md")
    parser.add_argument("--apart", action="store_true", help="one family, in this process, as JSON")
    args = parser.parse_args()
    if args.apart:
        with TemporaryDirectory() as folder:
            print(json.dumps(asdict(measure(args.families[0], Path(folder)))))
        return
    with ThreadPoolExecutor(args.jobs) as pool:
        measuring = pool.map(apart, args.families or ON_PAGE)
        rows = list(track(measuring, "families", len(args.families or ON_PAGE), console=Console(stderr=True)))
    show(rows, args.markdown)
    sys.exit(not all(row.is_right for row in rows))


def show(rows: list[Row], as_markdown: bool) -> None:
    """Print the rows as a page, or as a table and a JSON line."""
    if as_markdown:
        print(page(rows))
    else:
        summary: dict[str, object] = {"families": len(rows), "wrong": [row.name for row in rows if not row.is_right]}
        report("architectures", list(COLUMNS), [row.cells for row in rows], summary)


if __name__ == "__main__":
    main()
