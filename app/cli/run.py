"""`slipstream run`: its options by panel of the help, and what one reply needs of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from app.cli.options import ModelOptions, Trace, generation, models, output
from app.cli.sampling_options import SamplingOptions
from app.cli.streams import reader_may_leave

form = partial(typer.Option, rich_help_panel="Form of the reply")

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[MODEL] [PROMPT]",
        help="The question, and files to attach; standard input is appended, or is the prompt. A model may come first.",
        show_default=False,
    ),
]

Model = Annotated[
    str | None,
    models(
        "--model",
        "-m",
        help="A pair of models.toml, a GGUF file or its folder, or hf:owner/repo:file; the one used last.",
    ),
]


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """The prompt, the conversation that it continues, and the length of the reply."""

    prompt: Annotated[str, typer.Option("--prompt", "-p", help="The same as an option.", show_default=False)] = ""
    image: Annotated[
        list[Path] | None,
        generation(help="A picture that the question is about (may be repeated).", show_default=False),
    ] = None
    continues: Annotated[
        bool, generation("--continue", "-c", help="The next question in the conversation of the last `run`.")
    ] = False
    of_chat: Annotated[
        str, generation("--chat", metavar="TITLE", help="The next question in that chat.", show_default=False)
    ] = ""
    system: Annotated[str, generation(help="A system prompt.")] = ""
    raw: Annotated[bool, generation("--raw", help="Continue the prompt as it is, without a chat template.")] = False
    max_tokens: Annotated[int | None, generation(min=1, help="Stop after this many tokens.")] = None
    prediction: Annotated[Path | None, generation(help="A file whose text the reply will mostly repeat.")] = None
    stop: Annotated[list[str] | None, generation(help="Stop before this text (may be repeated).")] = None


@dataclass(frozen=True, slots=True)
class FormOptions:
    """The form that the reply must follow; at most one is given."""

    json_object: Annotated[bool, form("--json-object", help="The reply is a JSON object.")] = False
    json_schema: Annotated[Path | None, form(help="The reply is JSON by the schema in this file.")] = None
    regex: Annotated[str | None, form(help="The reply matches this regular expression.")] = None
    lark: Annotated[Path | None, form(help="The reply follows the Lark grammar in this file.")] = None


@dataclass(frozen=True, slots=True)
class PrintOptions:
    """What is printed or written besides the text, or instead of it."""

    stats: Annotated[bool, output("--stats", help="Print speed, acceptance, reasons on standard error.")] = False
    as_json: Annotated[bool, output("--json", help="Print one JSON object: text, usage, timings.")] = False
    logprobs: Annotated[
        int | None, output(min=0, max=20, help="With --json: log probabilities, with this many alternatives.")
    ] = None
    color: Annotated[bool, output("--color", help="Mark accepted draft tokens (on a terminal).")] = False
    trace: Trace = None


@dataclass(frozen=True, slots=True)
class RunModelOptions(ModelOptions):
    """The same options as of other commands, and two for comparisons."""

    fixed_k: Annotated[int | None, models(min=1, max=16, help="Always draft this many tokens (for comparisons).")] = (
        None
    )
    draft_window: Annotated[
        int | None, models(min=64, help="Tokens of the context that a draft model sees (2048).", show_default=False)
    ] = None


def run(
    words: Words = None,
    *,
    what: PromptOptions,
    model: Model = None,
    how: RunModelOptions,
    chosen: SamplingOptions,
    form: FormOptions,
    shown: PrintOptions,
) -> None:
    """Answer one prompt.

    For example: slipstream run "What is wrong here?" main.py
    """
    from app.cli import added_files, choices, conversation, oneshot, report
    from app.models.seeking import opener

    if shown.logprobs is not None and not shown.as_json:
        text = "Log probabilities are part of the JSON object: add --json."
        raise typer.BadParameter(text, param_hint="'--logprobs'")
    named, texts = choices.named_first(model, words or (), what.prompt)
    before = conversation.chosen(what.continues, what.of_chat, what.raw, texts)
    text, question = choices.question_of(texts, what.raw)
    start, options = choices.choose_start(named or before.model, None, how, how.fixed_k)
    pair, expected = start.pair, choices.read_file(what.prediction) if what.prediction else ""
    options = choices.with_prediction(pair, options, expected)
    options = replace(options, draft_window=how.draft_window or options.draft_window)
    request = oneshot.OneshotRequest(
        question, what.system, what.raw, what.max_tokens, tuple(what.stop or ()),
        choices.sampling(pair, **chosen.values), choices.grammar(**asdict(form)), shown.logprobs,
        expected, before.messages, added_files.pictures(what.image or (), text), before.images,
    )  # fmt: skip
    choices.say_which(start)
    code = 0
    with report.trace_to(shown.trace, pair) as file, reader_may_leave():
        open_engine = start.opening(opener(how.draft, file, disturbs=None))  # a search would end with this command
        reply = oneshot.printed(pair, options, request, shown, open_engine)
        before.keep(request, reply, pair)
        code = reply.code
    raise typer.Exit(code)
