"""`slipstream run`: one prompt, one reply, streamed to standard output.

Knows the terminal; leaves options to cli.py.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from app.cli.report import describe
from app.settings import read_settings
from app.terminal import Interrupt, LoadProgress, inert, marked
from runtime.engine import Chunk, Engine, Grammar, Message, Options, Sampling, TokenLogprobs
from runtime.models.addresses import as_workers
from runtime.models.registry import DRAFTERS, HUB, Pair, find_file, find_pair, load_registry
from runtime.models.strict_toml import nearest
from runtime.tools.pairing import remembered

# What drafters need a file of
FROM_FILES = {"model": "a draft model", "eagle": "an EAGLE-3 head", "dflash": "a DFlash head"}


@dataclass(frozen=True, slots=True)
class Request:
    """What to answer."""

    prompt: str
    system: str
    raw: bool
    max_tokens: int | None
    stops: tuple[str, ...]
    sampling: Sampling
    grammar: Grammar | None
    n_logprobs: int | None
    prediction: str = ""

    def text(self) -> str | list[Message]:
        """The raw prompt, or the conversation."""
        if self.raw:
            return self.prompt
        return [Message("system", self.system)] * bool(self.system) + [Message("user", self.prompt)]


@dataclass(frozen=True, slots=True)
class Output:
    """What to print beside the text, or instead of it."""

    stats: bool
    as_json: bool
    color: bool


def choose(
    model: str,
    draft: str,
    drafters: str | None,
    max_k: int | None,
    fixed_k: int | None,
    context: int | None,
    threads: int | None,
    exact: bool,
    fast: bool = False,
    rpc: str | None = None,
) -> tuple[Pair, Options]:
    """The pair and how to run it; wrong names are usage errors."""
    pair = find_pair(model, load_registry())
    names = None if drafters is None else parse_drafters(drafters)
    if pair.upstream and draft not in ("auto", "off"):
        raise typer.BadParameter(
            f"{pair.upstream} has the model, so no draft model can be used here. Leave it out.", param_hint="'--draft'"
        )
    if draft not in ("auto", "off"):
        pair = replace(pair, draft=find_file(draft))
    elif draft == "off":
        pair = replace(pair, draft=None)
    elif pair.draft is None and not pair.upstream:
        pair = replace(pair, draft=remembered(pair.target))
    lacks_file = pair.draft is None and not pair.upstream
    if lacks_file and (name := next((name for name in names or () if name in FROM_FILES), None)):
        raise typer.BadParameter(
            f"The drafter '{name}' needs {FROM_FILES[name]}. Name one with --draft FILE.", param_hint="'--drafters'"
        )
    settings = read_settings()
    options = Options(
        context, names, fixed_k=fixed_k, threads=threads, exact=exact, fast=fast, memory=settings.memory,
        rpc=parse_workers(rpc, pair.rpc or settings.rpc),
    )  # fmt: skip
    return pair, replace(options, max_k=max(max_k or options.max_k, fixed_k or 0))


def running_server(port: int | None, is_serving: bool) -> str:
    """The address of the server on this machine whose model a chat shares."""
    if is_serving:
        raise typer.BadParameter(
            "A chat with a server over TCP serves nobody itself. Leave --serve and --socket out.",
            param_hint="'--attach'",
        )
    from app.server.command import PORT

    return f"http://127.0.0.1:{port or PORT}"


def with_prediction(pair: Pair, options: Options) -> Options:
    """Lets the drafter take part that makes use of a prediction, unless nothing may be drafted."""
    names = pair.drafters if options.drafters is None else options.drafters
    return replace(options, drafters=(*names, "prediction")) if names and "prediction" not in names else options


def parse_workers(addresses: str | None, usual: tuple[str, ...]) -> tuple[str, ...]:
    """`host:port,host` as a tuple; `off` as ()."""
    if addresses is None:
        return usual
    named = [each for each in map(str.strip, addresses.split(",")) if each]
    try:
        return () if named == ["off"] else as_workers(named)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--rpc'") from error


def parse_drafters(names: str) -> tuple[str, ...]:
    """`model,ngram` as a tuple; `none` as ()."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if wanted == ["none"]:
        return ()
    for name in wanted:
        if name not in DRAFTERS:
            raise typer.BadParameter(
                f"There is no drafter '{name}'. {nearest(name, [*DRAFTERS, 'none'])}", param_hint="'--drafters'"
            )
    return tuple(wanted)


def sampling(pair: Pair, **given: Any) -> Sampling:
    """The pair's own settings where none were given."""
    return Sampling(**pair.sampling_defaults | {name: value for name, value in given.items() if value is not None})


def grammar(json_object: bool, json_schema: Path | None, regex: str | None, lark: Path | None) -> Grammar | None:
    """What the reply must look like, if anything; a usage error for more than one wish."""
    wishes = [Grammar("json_object")] if json_object else []
    wishes += [] if regex is None else [Grammar("regex", regex)]
    wishes += [
        Grammar(kind, read_file(path))
        for kind, path in (("json_schema", json_schema), ("lark", lark))
        if path is not None
    ]
    if len(wishes) > 1:
        raise typer.BadParameter("A reply has one form: give one of --json-object, --json-schema, --regex and --lark.")
    return wishes[0] if wishes else None


def read_file(path: Path) -> str:
    """A text file that was named on the command line; a usage error when it cannot be read."""
    try:
        return path.expanduser().read_text(encoding="utf8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise typer.BadParameter(f"{path} cannot be read ({reason}). Name a text file that you may read.") from error


def asked(model: str | None, words: Sequence[str]) -> tuple[str, str]:
    """The model and the prompt; the first word may be the model, as in `ollama run MODEL PROMPT`."""
    if model is None and words and is_model(words[0]):
        model, words = words[0], words[1:]
    return model or "demo", " ".join(words)


def is_model(word: str) -> bool:
    """Does it name a model, rather than being a word of a question?"""
    return word in load_registry() or word.endswith(".gguf") or word.startswith(HUB) or is_path(word)


def is_path(word: str) -> bool:
    """Is it a file or folder that is there, written as a path?"""
    try:
        return "/" in word and Path(word).expanduser().exists()
    except (OSError, RuntimeError):  # too long for a path; the home of nobody
        return False


def read_prompt(prompt: str) -> str:
    """The argument, standard input, or both; a usage error without either."""
    piped = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read().decode("utf8", "replace")
    both = "\n\n".join(part for part in (prompt, piped.rstrip("\n")) if part.strip())
    if not both:
        raise typer.BadParameter(
            'There is no prompt. Write it in quotes, as in: slipstream run "What does os.path.join do?" A conversation'
            " is had with: slipstream chat",
            param_hint="'PROMPT'",
        )
    return both


def run(
    pair: Pair, options: Options, request: Request, output: Output, open_engine: Callable[..., Engine] = Engine
) -> int:
    """Loads, answers, prints; returns the exit code."""
    interrupt = Interrupt()
    with interrupt.watching():
        with LoadProgress() as progress:
            engine = open_engine(
                pair, options, lambda what, share: progress.update(what, share, go_on=not interrupt.pressed)
            )
        if engine.facts.left_out:
            print(f"slipstream: {engine.facts.left_out}.", file=sys.stderr)
        try:
            chunks = engine.reply(
                request.text(), request.sampling, request.max_tokens, request.stops, lambda: interrupt.pressed,
                grammar=request.grammar, n_logprobs=request.n_logprobs, prediction=request.prediction,
            )  # fmt: skip
            last = show_json(engine, chunks) if output.as_json else show_text(chunks, output.color)
        finally:
            engine.close()
    if last.notice:
        print(f"slipstream: {last.notice}", file=sys.stderr)
    if output.stats and last.stats is not None:
        print(describe(last.stats, engine.facts.fit, engine.learning), file=sys.stderr)
    return 130 if last.finish_reason == "cancelled" else 0


def show_text(chunks: Iterator[Chunk], color: bool) -> Chunk:
    """Prints the reply as it comes; accepted draft tokens are marked on a terminal if asked."""
    out, on_terminal = sys.stdout, sys.stdout.isatty()
    chunk, ends = Chunk(""), "\n"
    for chunk in chunks:
        text = chunk.text
        if on_terminal:
            text = marked(chunk.pieces, chunk.drafted) if color else inert(text)
        out.write(text)
        out.flush()
        ends = chunk.text[-1:] or ends
    if ends != "\n" or chunk.finish_reason == "cancelled":
        print(flush=True)  # before anything on standard error
    return chunk


def show_json(engine: Engine, chunks: Iterator[Chunk]) -> Chunk:
    """Prints one object when the reply is done."""
    parts = list(chunks)
    last, text = parts[-1], "".join(part.text for part in parts)
    if (stats := last.stats) is not None:
        usage = {
            "prompt_tokens": stats.prompt_n,
            "completion_tokens": stats.predicted_n,
            "total_tokens": stats.prompt_n + stats.predicted_n,
        }
        reply: dict[str, object] = {
            "model": engine.pair.name,
            "text": text,
            "finish_reason": last.finish_reason,
            "usage": usage,
            "timings": stats.timings(),
            "memory": describe_memory(engine),
        }
        if likely := [entry for part in parts for entry in part.logprobs]:
            reply["logprobs"] = [describe_logprobs(engine, entry) for entry in likely]
        print(json.dumps(reply, ensure_ascii=False))
    return last


def describe_memory(engine: Engine) -> dict[str, object]:
    """How short it is, what was given up for that, and what was loaded given what was free; null where there is nothing
    to say.
    """
    return {"level": engine.memory_level, "given_up": engine.given_up or None, "fit": engine.facts.fit or None}


def describe_logprobs(engine: Engine, entry: TokenLogprobs) -> dict[str, object]:
    """In the words of OpenAI's API."""
    top = [{"token": engine.token_text(token), "logprob": round(value, 6)} for token, value in entry.top]
    return {"token": engine.token_text(entry.token), "logprob": round(entry.logprob, 6), "top_logprobs": top}
