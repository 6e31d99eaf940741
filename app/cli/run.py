"""`slipstream run`: its options by panel of the help, and what one reply needs of them.

Samplers that few replies use are in a group of the help of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.options import ModelOptions, Seed, Temperature, Trace, generation, models, output, sampling
from app.cli.streams import reader_may_leave
from runtime.core.outside import is_off

form = partial(typer.Option, rich_help_panel="Form of the reply")
rare = partial(typer.Option, rich_help_panel="Samplers that few use", show_default=False)

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
class CommonOptions:
    """The settings that many use, with the names of Sampling's fields; None: the pair's default."""

    temperature: Temperature = None
    top_k: Annotated[int | None, sampling(help="Keep the k most likely; 0 = off.")] = None
    top_p: Annotated[float | None, sampling(help="Keep the most likely up to this total probability; 1 = off.")] = None
    min_p: Annotated[
        float | None, sampling(help="Keep tokens with this share of the highest probability; 0 = off.")
    ] = None
    seed: Seed = None
    repetition_penalty: Annotated[float | None, sampling(help="Make recent tokens less likely; 1 = off.")] = None
    presence_penalty: Annotated[float, sampling(help="Make them less likely by a fixed amount; 0 = off.")] = 0.0
    frequency_penalty: Annotated[float, sampling(help="The same for each time they occurred; 0 = off.")] = 0.0
    penalty_last_n: Annotated[
        int | None,
        sampling(help="How many tokens are recent (64); -1 = the whole context, 0 = none.", show_default=False),
    ] = None


@dataclass(frozen=True, slots=True)
class SamplingOptions(CommonOptions):
    """All sampling settings; those that few use have the names of RareSampling's fields."""

    dry_multiplier: Annotated[
        float | None, rare(help="DRY: penalize the continuation of repetitions; 0 = off, usually 0.8.")
    ] = None
    dry_base: Annotated[float | None, rare(help="Its growth with each repeated token (1.75).")] = None
    dry_allowed_length: Annotated[int | None, rare(help="Tokens that may be repeated without it (2).")] = None
    dry_penalty_last_n: Annotated[
        int | None, rare(help="Tokens back that it looks (64); -1 = the whole context, 0 = off.")
    ] = None
    dry_sequence_breakers: Annotated[
        list[str] | None,
        rare("--dry-sequence-breaker", help='A text that ends a repetition (may be repeated); none (\\n, :, ", *).'),
    ] = None
    xtc_probability: Annotated[float | None, rare(help="XTC: how often top choices are excluded; 0 = off.")] = None
    xtc_threshold: Annotated[float | None, rare(help="The probability from which on a token is one (0.1).")] = None
    top_n_sigma: Annotated[
        float | None, rare(help="Keep logits within n standard deviations of the best; 0 = off.")
    ] = None
    typical_p: Annotated[float | None, rare(help="Keep the most typical up to this total probability; 1 = off.")] = None
    dynatemp_range: Annotated[float | None, rare(help="Vary the temperature by this much with entropy; 0 = off.")] = (
        None
    )
    dynatemp_exponent: Annotated[float | None, rare(help="How it follows entropy (1).")] = None
    mirostat: Annotated[int | None, rare(help="2 keeps the surprise at a level, in place of top-k; 0 = off.")] = None
    mirostat_tau: Annotated[float | None, rare(help="That level in bits (5).")] = None
    mirostat_eta: Annotated[float | None, rare(help="How fast it corrects deviations (0.1).")] = None
    min_tokens: Annotated[int | None, rare(help="Do not end before this many tokens.")] = None
    samplers: Annotated[
        str | None, rare(metavar="NAME;...", help="The order of samplers, such as top_k;min_p;temperature.")
    ] = None

    @property
    def values(self) -> dict[str, Any]:
        """The settings by name."""
        return asdict(self) | {"dry_sequence_breakers": breakers(self.dry_sequence_breakers)}


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
    from app.cli import choices, conversation, oneshot, report
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
        expected, before.messages, oneshot.pictures(what.image or (), text), before.images,
    )  # fmt: skip
    oneshot.say_which(start)
    code = 0
    with report.trace_to(shown.trace, pair) as file, reader_may_leave():
        open_engine = start.opening(opener(how.draft, file, disturbs=None))  # a search would end with this command
        reply = oneshot.printed(pair, options, request, shown, open_engine)
        before.keep(request, reply, pair)
        code = reply.code
    raise typer.Exit(code)


def breakers(given: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the sequence breakers of the command line, in which white space may be escaped; `none` is ()."""
    from app.setting_values import unescaped  # importing it is slow, and help is shown without

    if not given:
        return None
    return () if is_off(given) else tuple(map(unescaped, given))
