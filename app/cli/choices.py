"""Turns command-line options into a model and its options, sampling settings, a grammar and a prompt.

Knows how options combine; must not know their help texts (see options.py) or the output.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from app.chats.authors import recent_models
from app.cli.options import OTHER_BYTES, ModelOptions
from app.models.starting import StartModel, start_model
from app.settings import read_settings
from app.terminal import print_message
from app.tui.attach import EXTENSION, attach, may_be_file, path_of, unattached
from runtime.core.errors import SettingsError, nearest
from runtime.core.outside import NotTextError, expanded, is_off, is_text, read_plain, text_of
from runtime.drafters.registry import find, known_names
from runtime.engine import Grammar, Options, Sampling, sampling_of
from runtime.engine.paired import remembered
from runtime.models.adapters import adapter_of
from runtime.models.addresses import as_workers
from runtime.models.model_files import HUB, fetched, find_file
from runtime.models.registry import Pair, find_pair, load_registry


def choose(model: str, how: ModelOptions, fixed_k: int | None = None) -> tuple[Pair, Options]:
    """Return the pair and the options to run it with. Raises BadParameter for wrong names."""
    return configured(find_pair(model, load_registry(), recent_models()), how, fixed_k)


def choose_start(
    model: str, chats: Path | None, how: ModelOptions, fixed_k: int | None = None
) -> tuple[StartModel, Options]:
    """Return the model that a chat or `run` starts with, and its options; `chats` is the file of chats, whose recently
    used models are known by name. "" stands for the model of the settings file, or the one used last.

    Raises BadParameter for wrong names.
    """
    start = start_model(model, chats)
    pair, options = configured(start.pair, how, fixed_k)
    return replace(start, pair=pair), options


def configured(pair: Pair, how: ModelOptions, fixed_k: int | None = None) -> tuple[Pair, Options]:
    """Return the pair with the files named for it, and the options to run it with. Raises BadParameter for wrong names,
    and as `with_adapters` does.
    """
    names = None if how.drafters is None else parse_drafters(how.drafters)
    pair = with_adapters(with_draft(with_encoder(pair, how.mmproj), how.draft), how.lora)
    lacks_file = pair.draft is None and not pair.upstream
    asked = map(find, names or ())
    if lacks_file and (lacking := next((each for each in asked if each and each.file), None)):
        raise typer.BadParameter(
            f"The drafter '{lacking.name}' needs {lacking.file}. Name one with --draft FILE.",
            param_hint="'--drafters'",
        )
    settings = read_settings()
    options = Options(
        how.context, names, fixed_k=fixed_k, threads=how.threads, exact=how.exact, fast=how.fast,
        memory=settings.memory, prompt_bytes=settings.prompt_cache_bytes, reads_ahead=settings.read_ahead,
        rpc=parse_workers(how.rpc, pair.rpc or settings.rpc), sees_images=how.mmproj != "off",
    )  # fmt: skip
    return pair, replace(options, max_k=max(how.max_k or options.max_k, fixed_k or 0))


def require_here(pair: Pair, what: str, option: str) -> None:
    """Raise BadParameter for a file that is named for a model of another server."""
    if pair.upstream:
        text = f"{pair.upstream} has the model, so no {what} can be used here. Leave it out."
        raise typer.BadParameter(text, param_hint=f"'{option}'")


def with_encoder(pair: Pair, file: str) -> Pair:
    """Return the pair with the vision encoder in this file; "auto" and "off" are none."""
    if file in ("auto", "off"):
        return pair
    require_here(pair, "vision encoder", "--mmproj")
    return replace(pair, mmproj=find_file(file))


def with_draft(pair: Pair, file: str) -> Pair:
    """Return the pair with the draft model in this file; "off": with none; "auto": with its own, or the one found."""
    if file not in ("auto", "off"):
        require_here(pair, "draft model", "--draft")
        return replace(pair, draft=find_file(file))
    if file == "off":
        return replace(pair, draft=None)
    return pair if pair.draft is not None or pair.upstream else replace(pair, draft=remembered(pair.target))


def with_adapters(pair: Pair, asked: Sequence[str] | None) -> Pair:
    """Return the pair with these LoRA adapters, each `FILE` or `FILE=SCALE`; None: its own. Raises BadParameter, and
    HubError for one of the hub that is not on this machine.
    """
    if asked is None:
        return pair
    if names := [] if is_off(asked) else asked:
        require_here(pair, "adapter", "--lora")
    try:
        adapters = (adapter_of(each) for each in names)
        return replace(pair, lora=tuple(each._replace(path=expanded(fetched(each.path))) for each in adapters))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--lora'") from error


def with_prediction(pair: Pair, options: Options, expected: str) -> Options:
    """Enable the drafter that uses a prediction if there is one, unless drafting is off."""
    names = pair.drafters if options.drafters is None else options.drafters
    is_new = expected and names and "prediction" not in names
    return replace(options, drafters=(*names, "prediction")) if is_new else options


def parse_workers(addresses: str | None, usual: tuple[str, ...]) -> tuple[str, ...]:
    """Return `host:port,host` as a tuple, and `off` or `none` as (). Raises BadParameter."""
    if addresses is None:
        return usual
    named = [each for each in map(str.strip, addresses.split(",")) if each]
    try:
        return () if is_off(named) else as_workers(named)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--rpc'") from error


def parse_drafters(names: str) -> tuple[str, ...]:
    """Return `model,ngram` as a tuple, and `none` or `off` as (). Raises BadParameter."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if is_off(wanted):
        return ()
    known = known_names()
    for name in wanted:
        if name not in known:
            raise typer.BadParameter(
                f"There is no drafter '{name}'. {nearest(name, [*known, 'none'])}", param_hint="'--drafters'"
            )
    return tuple(wanted)


def sampling(pair: Pair, **given: Any) -> Sampling:
    """Return the sampling settings, with the pair's defaults where none were given."""
    return sampling_of(pair.sampling_defaults | {name: value for name, value in given.items() if value is not None})


def tempered(pair: Pair, temperature: float | None) -> Pair:
    """Return the pair with this temperature for requests that name none. Raises SettingsError."""
    if temperature is None:
        return pair
    settled = sampling(pair, temperature=temperature).temperature
    return replace(pair, temperature=settled, named=(*pair.named, "temperature"))


def grammar(json_object: bool, json_schema: Path | None, regex: str | None, lark: Path | None) -> Grammar | None:
    """Return the grammar that the reply must follow, if any. Raises BadParameter for more than one."""
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
    """Return the text of a file named on the command line. Raises BadParameter if it cannot be read."""
    try:
        return text_of(read_plain(expanded(path)))
    except (OSError, NotTextError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise typer.BadParameter(f"{path} cannot be read ({reason}). Name a text file that you may read.") from error


def named_first(model: str | None, words: Sequence[str], prompt: str) -> tuple[str, Sequence[str]]:
    """Return the model, "" if none is named, and the texts of the question, `prompt` first. The first word may be the
    model, as in `ollama run MODEL PROMPT`.
    """
    if model is None and words and is_model(words[0]):
        model, words = words[0], words[1:]
    return model or "", [*filter(None, [prompt]), *words]


def question_of(words: Sequence[str], raw: bool) -> tuple[str, str]:
    """Return the words as a text that names its files, "" for a raw prompt, and the question with these and standard
    input. Raises BadParameter, and SettingsError.
    """
    text = "" if raw else with_names(words)
    return text, read_prompt(" ".join(words) if raw else attach(text))


def with_names(words: Sequence[str]) -> str:
    """Return the words as one question that names files after an `@`, which may be attached: words after a quoted
    question that are files or look like their names, or after a single word if all are files. Raises BadParameter if
    one of these cannot be read; of those that had an `@` before it is only said.
    """
    question, *others = words or [""]
    is_quoted = bool(question.split()[1:]) or all(map(is_there, others))
    if not is_quoted and (names := [each for each in others if EXTENSION.search(each) and is_there(each)]):
        print_message(f"{names[0]} is read as a word. Quote the question, or write @{names[0]}, to attach the file.")
    files = {each: f'@"{each}"' for each in others if is_quoted and may_be_file(each, path_of(each))}
    if fault := unattached(" ".join(files.values())):
        raise typer.BadParameter(f"{fault} Name text files or pictures that you may read.", param_hint="'PROMPT'")
    text = " ".join([question, *(files.get(each, each) for each in others)])
    if fault := unattached(text):
        print_message(fault)
    return text


def is_model(word: str) -> bool:
    """Return whether the word names a model rather than being part of a question: also as a path with a slash, or this
    system's other one, to an existing file or folder.
    """
    is_path = not {"/", os.sep}.isdisjoint(word) and is_there(word)
    return word in load_registry() or word.endswith(".gguf") or word.startswith(HUB) or is_path


def is_there(name: str) -> bool:
    """Return whether there is a file or folder of that name."""
    try:
        return path_of(name).exists()
    except OSError:  # too long for a path
        return False


def read_prompt(prompt: str) -> str:
    """Return the argument, standard input, or both. Raises BadParameter if there is neither, or the argument is in
    another encoding, and SettingsError if standard input is.
    """
    if not is_text(prompt):
        raise typer.BadParameter(OTHER_BYTES, param_hint="'PROMPT'")
    try:
        piped = "" if sys.stdin is None or sys.stdin.isatty() else text_of(sys.stdin.buffer.read())
    except NotTextError as error:
        raise SettingsError(f"Standard input cannot be read: {error}.") from error
    both = "\n\n".join(part for part in (prompt, piped.rstrip("\n")) if part.strip())
    if not both:
        raise typer.BadParameter(
            'There is no prompt. Write it in quotes, as in: slipstream run "What does os.path.join do?" For a'
            " conversation, use: slipstream chat",
            param_hint="'PROMPT'",
        )
    return both
