"""Every drafter on the bundled pair and on planted pairs: speed against plain decode, acceptance rate, memory.

Usage: `python -m bench.drafters`. Each drafter runs alone and adaptively, then all together; replies are generated side
by side. Two rows need a particular setup: `suffix` gets the requests of its warm-up again, and `prediction` gets the
reply as its prediction. `grammar` is compared with plain decode under the same grammar. Every text is compared with
plain decode's. `--head FILE` also runs the bundled target with that head instead of the draft model. `--heads` runs
heads and drafting layers (MTP) instead, planted where possible. `--server` also runs llama.cpp's server with the same
drafts.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import psutil

from bench.instruments.planted import plant, prompts
from bench.instruments.planted_heads import planted_heads, random_dflash
from bench.instruments.processes import elsewhere, server_rows
from bench.instruments.shapes import SHAPES
from bench.instruments.texts import questions
from bench.instruments.timing import ratios, report, rounds, side_by_side, spread
from bench.instruments.ways import drafts_by
from runtime.backends import library
from runtime.core.errors import SettingsError
from runtime.engine import Grammar, Message, Options, Prompt, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.engine.stats import Stats
from runtime.loading import profile
from runtime.models.registry import Pair, load_registry

PLAIN, FORMED = "plain", "plain, JSON"
FORM = Grammar(
    "json_schema",
    '{"type": "object", "properties": {"name": {"type": "string", "maxLength": 40}}, "required": ["name"]}',
)
GREEDY = Sampling(temperature=0)
COUNTED = "draft_n_accepted", "draft_seconds"
WALKED = 256  # words of a planted walk, after which it repeats


@dataclass(slots=True)
class Way:
    """A configuration: drafters and request options, with its results."""

    drafters: tuple[str, ...] = ()
    form: Grammar | None = None
    is_told: bool = False  # whether the expected reply is passed as the prediction
    texts: dict[int, str] = field(default_factory=dict)  # by question
    replies: list[Stats] = field(default_factory=list)

    @property
    def figures(self) -> list[str]:
        """Acceptance rate, tokens per pass, milliseconds per draft token."""
        drafted = sum(stats.draft_n for stats in self.replies)
        accepted, seconds = (sum(getattr(stats, name) for stats in self.replies) for name in COUNTED)
        per_pass = sum(stats.predicted_n for stats in self.replies) / sum(stats.n_passes for stats in self.replies)
        of_drafts = [f"{accepted / drafted:.0%}", f"{1e3 * seconds / drafted:.2f}"] if drafted else ["-", "-"]
        return [of_drafts[0], f"{per_pass:.2f}", of_drafts[1]]


def ways(pair: Pair) -> dict[str, Way]:
    """Return the configurations by name; plain is first, as its replies are the reference and the prediction of the
    others. Drafters that leave the target's states out of order are not combined with a head.
    """
    own = tuple(filter(None, [drafts_by(pair)]))
    others = ("layerskip", "lookahead", "suffix") if own in ((), ("model",)) else ("suffix",)
    single, usual = (*own, "ngram", *others), (*own, "ngram", "grammar", "prediction")
    return {
        PLAIN: Way(),
        FORMED: Way(form=FORM),
        **{name: Way((name,)) for name in single},
        "prediction": Way(("prediction",), is_told=True),
        "grammar": Way(("grammar",), FORM),
        "all": Way((*usual, *others)),
    }


@dataclass(frozen=True, slots=True)
class Setting:
    """The common settings of all configurations of a pair."""

    pair: Pair
    prompts: Sequence[Prompt]
    n_tokens: int
    threads: int | None
    fast: bool = False  # for passes that round differently: a random model's likeliest tokens are often close to a tie


def rates(engines: Mapping[str, LoadedEngine], all_ways: Mapping[str, Way], setting: Setting) -> dict[str, float]:
    """Return the tokens per second of decoding by configuration; plain decode's last reply is the prediction."""
    tokens, seconds = dict.fromkeys(all_ways, 0), dict.fromkeys(all_ways, 0.0)
    for i, prompt in enumerate(setting.prompts):
        plain = all_ways[PLAIN].texts.get(i, "")
        replies = {
            name: engines[name].reply(
                prompt, GREEDY, setting.n_tokens, grammar=way.form, prediction=plain if way.is_told else ""
            )
            for name, way in all_ways.items()
        }
        for name, (text, stats) in side_by_side(replies).items():
            way = all_ways[name]
            way.texts[i] = text
            way.replies.append(stats)
            tokens[name] += stats.predicted_n
            seconds[name] += stats.decode_seconds
    return {name: tokens[name] / seconds[name] for name in all_ways}


def opened(setting: Setting, all_ways: dict[str, Way], stack: ExitStack) -> dict[str, LoadedEngine]:
    """Return an engine for each configuration; those unavailable here, such as early exit on a GPU, are printed."""
    engines, lacking = dict[str, LoadedEngine](), set[str]()
    for name, way in list(all_ways.items()):
        way.drafters = tuple(each for each in way.drafters if each not in lacking)
        try:
            engines[name] = LoadedEngine(
                setting.pair, Options(drafters=way.drafters, threads=setting.threads, fast=setting.fast)
            )
        except SettingsError as error:
            print(f"{setting.pair.name}, {name} is left out. {error}", flush=True)
            lacking.add(name)
            del all_ways[name]
        else:
            stack.callback(engines[name].close)
    return engines


def held(setting: Setting, drafters: tuple[str, ...], folder: Path) -> int:
    """Return the bytes of memory unique to this process after a reply with these drafters."""
    with patch.object(profile, "folder", lambda: folder):
        engine = LoadedEngine(
            setting.pair,
            Options(drafters=drafters, fixed_k=3 if drafters else None, threads=setting.threads, fast=setting.fast),
        )
        list(engine.reply(setting.prompts[0], GREEDY, setting.n_tokens))
        return int(psutil.Process().memory_full_info().uss)


def measure(
    setting: Setting, runs: int, folder: Path
) -> Iterator[tuple[str, Way, list[float], list[float], int | None]]:
    """Yield each configuration with its rates, those of plain decode under the same grammar, and the bytes that it
    adds; None with the models on a GPU.
    """
    all_ways = ways(setting.pair)
    with ExitStack() as stack:
        stack.enter_context(patch.object(profile, "folder", lambda: folder))  # no past replies of the user
        engines = opened(setting, all_ways, stack)
        found = rounds(partial(rates, engines, all_ways, setting), runs)
    counted = () if library.has_gpu() else {way.drafters for way in all_ways.values()}  # a GPU's memory is not measured
    bytes_held = {drafters: elsewhere(held, setting, drafters, folder) for drafters in counted}
    for name, way in all_ways.items():
        added = bytes_held[way.drafters] - bytes_held[()] if bytes_held else None
        yield name, way, found[name], found[FORMED if way.form else PLAIN], added


def rows_of(setting: Setting, runs: int, folder: Path) -> Iterator[tuple[list[str], str, float]]:
    """Yield a row of the table, the configuration's name, and its ratio to plain decode."""
    texts: dict[str, dict[int, str]] = {}
    for name, way, rates, plain, n_bytes in measure(setting, runs, folder):
        texts[name] = way.texts
        ratio, same = ratios(rates, plain), way.texts == texts[FORMED if way.form else PLAIN]
        facts = [
            str(spread(rates)),
            str(ratio),
            *way.figures,
            "-" if n_bytes is None else f"{max(0, n_bytes) / 2**20:.1f}",
            "same" if same else "ANOTHER",
        ]
        yield [setting.pair.name, name, *facts], name, round(ratio.median, 3)


def settings(folder: Path, args: argparse.Namespace) -> Iterator[Setting]:
    """Yield the bundled pair, then planted pairs with the requested acceptance rates."""
    asked = [[Message("user", question)] for question in questions()[: args.questions]]
    if not args.planted and not args.heads:
        yield Setting(load_registry()["demo"], asked, args.tokens, args.threads)
    for head in args.head:
        pair = load_registry()["demo"]
        yield Setting(replace(pair, draft=head, name=f"demo, {head.name}"), asked, args.tokens, args.threads)
    if args.heads:
        yield from head_settings(folder, args, asked)
        return
    for share in args.acceptance:
        name = f"planted {share:.0%}"
        pair = plant(folder / name, SHAPES[args.shape], SHAPES[args.draft], share, words=WALKED)
        asked = prompts(SHAPES[args.shape].vocab, range(0, WALKED, max(1, WALKED // args.questions)), WALKED)[
            : args.questions
        ]
        yield Setting(replace(pair, name=name), asked, args.tokens, args.threads)


def head_settings(folder: Path, args: argparse.Namespace, asked: Sequence[Prompt]) -> Iterator[Setting]:
    """Yield planted heads (EAGLE-3, Medusa, Hydra) and drafting layers, and a random DFlash head."""
    yield Setting(random_dflash(folder), asked, args.tokens, args.threads)
    places = range(0, WALKED, max(1, WALKED // args.questions))
    for pair, n_vocab in planted_heads(folder, SHAPES[args.shape], args.acceptance, WALKED):
        walks: list[Prompt] = [*prompts(n_vocab, places, WALKED)[: args.questions]]
        yield Setting(pair, walks, args.tokens, args.threads, fast=pair.draft is None)


def options() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description="Measure every drafter against plain decode.")
    parser.add_argument("--runs", type=int, default=7, help="rounds")
    parser.add_argument("--questions", type=int, default=6, help="put to a pair in a round")
    parser.add_argument("--tokens", type=int, default=100, help="of a reply")
    parser.add_argument(
        "--acceptance", type=float, nargs="*", default=[0.5, 0.9], help="of the planted pairs; none leaves them out"
    )
    parser.add_argument("--head", type=Path, nargs="+", default=[], help="heads for the bundled target")
    parser.add_argument("--planted", action="store_true", help="the planted pairs only")
    parser.add_argument("--heads", action="store_true", help="heads and drafting layers only")
    parser.add_argument("--server", action="store_true", help="llama.cpp's server with the same draft as well")
    parser.add_argument("--shape", choices=SHAPES, default="135m", help="of the planted targets")
    parser.add_argument("--draft", choices=SHAPES, default="10m", help="of the planted draft models")
    parser.add_argument("--threads", type=int, default=None, help="threads, instead of measuring")
    return parser


def main() -> None:
    """Goals: every row, above all the last, at least 1 times plain, and the same text everywhere."""
    args, rows, summary = options().parse_args(), [], dict[str, dict[str, float]]()
    with tempfile.TemporaryDirectory() as name:
        for number, setting in enumerate(settings(Path(name), args)):
            for row, way, ratio in rows_of(setting, args.runs, Path(name) / f"replies {number}"):
                rows.append(row)
                summary.setdefault(setting.pair.name, {})[way] = ratio
                if way == drafts_by(setting.pair):
                    rate = float(row[2].split()[0])
            pair, most = setting.pair, setting.n_tokens
            of_server = (
                server_rows(pair, setting.prompts, most, setting.threads, args.runs, rate) if args.server else ()
            )
            for row, times in of_server:
                rows.append(row)
                summary[setting.pair.name][f"ours over {row[1]}"] = round(times, 3)
    columns = [
        "pair",
        "drafters",
        "tok/s",
        "times plain",
        "accepted",
        "per pass",
        "ms a draft token",
        "adds MiB",
        "text",
    ]
    report("drafters", columns, rows, dict(summary))


if __name__ == "__main__":
    main()
