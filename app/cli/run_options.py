"""The options of `slipstream run`, by panel of the help."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from app.cli.options import Seed, Temperature, Trace, generation, models, output, sampling

form = partial(typer.Option, rich_help_panel="Form of the reply")

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[MODEL] [PROMPT]",
        help="The question, and files to attach; standard input is appended, or is the prompt. A model may come first.",
        show_default=False,
    ),
]
Prompt = Annotated[str, typer.Option("--prompt", "-p", help="The same as an option.", show_default=False)]
System = Annotated[str, generation(help="A system prompt.")]
Continue = Annotated[
    bool, generation("--continue", "-c", help="The next question in the conversation of the last `run`.")
]
OfChat = Annotated[
    str, generation("--chat", metavar="TITLE", help="The next question in that chat.", show_default=False)
]
Raw = Annotated[bool, generation("--raw", help="Continue the prompt as it is, without a chat template.")]
MaxTokens = Annotated[int | None, generation(min=1, help="Stop after this many tokens.")]
Prediction = Annotated[Path | None, generation(help="A file whose text the reply will mostly repeat.")]
Stop = Annotated[list[str] | None, generation(help="Stop before this text (may be repeated).")]

Model = Annotated[
    str | None,
    models(
        "--model",
        "-m",
        help="A pair of models.toml, a GGUF file or its folder, or hf:owner/repo:file; the one used last.",
    ),
]
FixedK = Annotated[int | None, models(min=1, max=16, help="Always draft this many tokens (for comparisons).")]
DraftWindow = Annotated[
    int | None, models(min=64, help="Tokens of the context that a draft model sees (2048).", show_default=False)
]

TopK = Annotated[int | None, sampling(help="Keep the k most likely; 0 = off.")]
TopP = Annotated[float | None, sampling(help="Keep the most likely up to this total probability; 1 = off.")]
MinP = Annotated[float | None, sampling(help="Keep tokens with this share of the highest probability; 0 = off.")]
RepetitionPenalty = Annotated[float, sampling(help="Make recent tokens less likely; 1 = off.")]
PresencePenalty = Annotated[float, sampling(help="Make them less likely by a fixed amount; 0 = off.")]
FrequencyPenalty = Annotated[float, sampling(help="The same for each time they occurred; 0 = off.")]

JsonObject = Annotated[bool, form("--json-object", help="The reply is a JSON object.")]
JsonSchema = Annotated[Path | None, form(help="The reply is JSON by the schema in this file.")]
Regex = Annotated[str | None, form(help="The reply matches this regular expression.")]
Lark = Annotated[Path | None, form(help="The reply follows the Lark grammar in this file.")]

Stats = Annotated[bool, output("--stats", help="Print speed, acceptance, reasons on standard error.")]
AsJson = Annotated[bool, output("--json", help="Print one JSON object: text, usage, timings.")]
Logprobs = Annotated[
    int | None, output(min=0, max=20, help="With --json: log probabilities, with this many alternatives.")
]
Color = Annotated[bool, output("--color", help="Mark accepted draft tokens (on a terminal).")]


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """The prompt, the conversation that it continues, and the length of the reply."""

    prompt: Prompt = ""
    continues: Continue = False
    of_chat: OfChat = ""
    system: System = ""
    raw: Raw = False
    max_tokens: MaxTokens = None
    prediction: Prediction = None
    stop: Stop = None


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """The sampling settings, with the names of Sampling's fields; None: the pair's default."""

    temperature: Temperature = None
    top_k: TopK = None
    top_p: TopP = None
    min_p: MinP = None
    seed: Seed = None
    repetition_penalty: RepetitionPenalty = 1.0
    presence_penalty: PresencePenalty = 0.0
    frequency_penalty: FrequencyPenalty = 0.0


@dataclass(frozen=True, slots=True)
class FormOptions:
    """The form that the reply must follow; at most one is given."""

    json_object: JsonObject = False
    json_schema: JsonSchema = None
    regex: Regex = None
    lark: Lark = None


@dataclass(frozen=True, slots=True)
class PrintOptions:
    """What is printed or written besides the text, or instead of it."""

    stats: Stats = False
    as_json: AsJson = False
    logprobs: Logprobs = None
    color: Color = False
    trace: Trace = None
