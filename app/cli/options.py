"""The options of `slipstream`'s commands, by panel of the help."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from app.cli.drafting import DRAFTERS
from app.server.policy import ServerPolicy
from runtime.core.errors import SettingsError
from runtime.core.limits import Limits

generation = partial(typer.Option, rich_help_panel="Prompt and length")
models = partial(typer.Option, rich_help_panel="Which models")
sampling = partial(typer.Option, rich_help_panel="Sampling")
form = partial(typer.Option, rich_help_panel="Form of the reply")
measuring = partial(typer.Option, rich_help_panel="What to measure")
output = partial(typer.Option, rich_help_panel="Output")
listening = partial(typer.Option, rich_help_panel="Where to listen")


def allowed_origins(given: list[str] | None) -> list[str]:
    """Return the origins from the command line and the settings file. Raises BadParameter for an invalid one, and
    SettingsError for the settings file.
    """
    from app.origins import as_origin
    from app.settings import read_settings

    saved = read_settings().server.allow_origins
    try:
        return [*saved, *map(as_origin, given or ())]
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from error


Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[MODEL] [PROMPT]",
        help="The question; standard input is appended, or is the prompt. A model may come first.",
        show_default=False,
    ),
]
Prompt = Annotated[str, typer.Option("--prompt", "-p", help="The same as an option.", show_default=False)]
ModelToo = Annotated[str, typer.Option("--model", "-m", help="The same as an option.", show_default=False)]
DoctorPair = Annotated[str, typer.Argument(help="The pair or GGUF file to measure.")]
DoctorJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
ChatModel = Annotated[
    str,
    typer.Argument(
        help="A pair of models.toml, or the path of a GGUF file.", show_default="the last one used, or demo"
    ),
]
PairName = Annotated[str, typer.Argument(help="A pair of models.toml, or the path of a GGUF file.")]

System = Annotated[str, generation(help="A system prompt.")]
ChatSystem = Annotated[str | None, generation("--system", help="A system prompt for new chats.", show_default=False)]
Raw = Annotated[bool, generation("--raw", help="Continue the prompt as it is, without a chat template.")]
MaxTokens = Annotated[int | None, generation(min=1, help="Stop after this many tokens.")]
Prediction = Annotated[Path | None, generation(help="A file whose text the reply will mostly repeat.")]
Stop = Annotated[list[str] | None, generation(help="Stop before this text (may be repeated).")]

Model = Annotated[
    str | None,
    models("--model", "-m", help="A pair of models.toml, a GGUF file or its folder, or hf:owner/repo:file; demo."),
]
FixedK = Annotated[int | None, models(min=1, max=16, help="Always draft this many tokens (for comparisons).")]
DraftWindow = Annotated[
    int | None, models(min=64, help="Tokens of the context that a draft model sees (2048).", show_default=False)
]
Draft = Annotated[str, models(help="The draft model: a GGUF file, 'auto' or 'off'.")]
Drafters = Annotated[
    str | None,
    models(help=f"The drafters: {DRAFTERS}; or none."),
]
MaxK = Annotated[
    int | None, models(min=1, max=16, help="Draft at most this many tokens per pass (12).", show_default=False)
]
Context = Annotated[int | None, models(min=16, help="Size of the context in tokens.")]
Threads = Annotated[int | None, models(min=1, max=512, help="Number of threads, instead of measuring.")]
Rpc = Annotated[
    str | None,
    models(
        "--rpc",
        metavar="HOST:PORT,...",
        show_default=False,
        help="Workers (`slipstream worker`) that take layers of the model; 'off' for none.",
    ),
]
Fast = Annotated[
    bool, models("--fast", help="Draft for seeded replies also where wider passes round differently: text may differ.")
]
Exact = Annotated[bool, models("--exact", help="Bit-identical kernels for K-quants too (CPU).")]

Temperature = Annotated[float | None, sampling("--temperature", "-t", help="0 takes the most likely token.")]
UsualTemperature = Annotated[
    float | None,
    sampling("--temperature", help="For requests that name none; 0 takes the most likely token.", show_default=False),
]
TopK = Annotated[int | None, sampling(help="Keep the k most likely; 0 = off.")]
TopP = Annotated[float | None, sampling(help="Keep the most likely up to this total probability; 1 = off.")]
MinP = Annotated[float | None, sampling(help="Keep tokens with this share of the highest probability; 0 = off.")]
Seed = Annotated[int | None, sampling(help="The same seed gives the same text.")]
RepetitionPenalty = Annotated[float, sampling(help="Make recent tokens less likely; 1 = off.")]
PresencePenalty = Annotated[float, sampling(help="Make them less likely by a fixed amount; 0 = off.")]
FrequencyPenalty = Annotated[float, sampling(help="The same for each time they occurred; 0 = off.")]

JsonObject = Annotated[bool, form("--json-object", help="The reply is a JSON object.")]
JsonSchema = Annotated[Path | None, form(help="The reply is JSON by the schema in this file.")]
Regex = Annotated[str | None, form(help="The reply matches this regular expression.")]
Lark = Annotated[Path | None, form(help="The reply follows the Lark grammar in this file.")]

Quick = Annotated[bool, measuring("--quick", help="Fewer rounds, kinds and draft lengths.")]
Runs = Annotated[int | None, measuring(min=1, help="Rounds that count (5).", show_default=False)]
Kinds = Annotated[str | None, measuring(help="Some of question, code, edit, summary, turns, prose.")]
BenchTokens = Annotated[int | None, measuring(min=1, help="Tokens of a reply (64).", show_default=False)]
BenchDrafters = Annotated[str | None, measuring(help="The drafters: model, ngram, or none.")]
Ks = Annotated[str | None, measuring(help="Draft lengths to compare (1,2,3,4,6,8).", show_default=False)]

Stats = Annotated[bool, output("--stats", help="Print speed, acceptance, reasons on standard error.")]
AsJson = Annotated[bool, output("--json", help="Print one JSON object: text, usage, timings.")]
Logprobs = Annotated[
    int | None, output(min=0, max=20, help="With --json: log probabilities, with this many alternatives.")
]
Color = Annotated[bool, output("--color", help="Mark accepted draft tokens (on a terminal).")]
Chats = Annotated[Path | None, output(help="The file that chats are kept in.", show_default=False)]
Trace = Annotated[
    Path | None,
    output(help="Write a line of JSON for each pass to this file; `slipstream trace` sums it up.", show_default=False),
]
TraceOf = Annotated[Path, typer.Argument(metavar="FILE", help="A file that --trace wrote.", show_default=False)]
Html = Annotated[Path | None, output(help="Write a report with plots to this file.")]
JsonFile = Annotated[Path | None, output("--json", help="Write every reply's numbers to this file.")]

Attach = Annotated[bool, listening("--attach", help="Share the model of a server that already runs here, at --port.")]
Serve = Annotated[bool, listening("--serve", help="Also answer editors with the same model.")]
Host = Annotated[str, listening(help="Address to listen at; one that other machines can reach needs a key.")]
Parallel = Annotated[int, listening(min=1, help="Requests that are answered at the same time.")]
MaxWaiting = Annotated[int, listening(min=0, help="Requests that may wait; more are refused.")]
Slots = Annotated[bool, listening(help="Show the running requests at /slots, without their text.")]
SlotSavePath = Annotated[
    Path | None, listening(show_default=False, help="A folder in which clients may save and restore conversations.")
]
ReplyLimit = Annotated[
    int | None,
    listening(
        "--max-tokens", min=1, show_default=False, help="Limit on the tokens of a reply, whatever a request asks for."
    ),
]
Ollama = Annotated[bool, listening("--ollama", help="Also listen at the port of Ollama (11434).")]
Port = Annotated[int | None, listening(min=0, max=65535, help="TCP port (8012, or none with --socket).")]
Socket = Annotated[Path | None, listening(help="A Unix socket that only you can open.")]
ApiKey = Annotated[
    str, listening(envvar="SLIPSTREAM_API_KEY", help="The key that clients must send.", show_default=False)
]
ApiKeyFile = Annotated[Path | None, listening(help="A file with that key; `ps` does not show it.", show_default=False)]
Drain = Annotated[float, listening(min=0, help="Seconds that running replies may continue at shutdown.")]
AllowOrigin = Annotated[
    list[str] | None,
    listening(
        callback=allowed_origins,
        metavar="ORIGIN",
        show_default=False,
        help="An app or page that may ask without a key, such as app://obsidian.md (may be repeated).",
    ),
]
Alias = Annotated[
    str,
    listening(
        "--alias",
        metavar="NAME,...",
        show_default=False,
        help="The model's name for clients, instead of its own; more names after commas.",
    ),
]


WorkerHost = Annotated[str, listening(help="Address to listen at; anyone who can reach it can use this machine.")]
WorkerPort = Annotated[int, listening(min=1, max=65535, help="TCP port.")]
WorkerThreads = Annotated[
    int | None, models("--threads", min=1, max=512, help="Number of processor threads.", show_default=False)
]
WorkerCache = Annotated[bool, models("--cache", help="Keep large tensors on disk, so that they are sent only once.")]


class Thoughts(StrEnum):
    """Whether a reasoning model reasons."""

    AUTO = "auto"
    OFF = "off"


Reasoning = Annotated[
    Thoughts,
    sampling("--reasoning", help="Off: models do not think before they answer, unless a request asks for it."),
]
Verbose = Annotated[
    bool, listening("--verbose", help="Log for each request what was changed to fit the model's chat template.")
]
Quiet = Annotated[bool, listening("--quiet", help="Do not log requests.")]


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Options for running a model, shared by all commands that load one."""

    draft: Draft = "auto"
    drafters: Drafters = None
    max_k: MaxK = None
    context: Context = None
    threads: Threads = None
    exact: Exact = False
    fast: Fast = False
    rpc: Rpc = None


@dataclass(frozen=True, slots=True)
class WorkOptions:
    """How much a server does concurrently, and what it keeps."""

    parallel: Parallel = 3
    max_waiting: MaxWaiting = 16
    slots: Slots = False
    slot_save_path: SlotSavePath = None
    ollama: Ollama = False
    max_tokens: ReplyLimit = None
    drain: Drain = 10.0
    temperature: UsualTemperature = None

    @property
    def limits(self) -> Limits:
        """How many requests are answered at the same time, and how many wait."""
        return Limits(self.parallel, self.max_waiting)

    def policy(self, names: tuple[str, ...]) -> ServerPolicy:
        """Return the policy for all requests, given the model's names."""
        return ServerPolicy(names, self.slots, self.max_tokens)


@dataclass(frozen=True, slots=True)
class BenchOptions(ModelOptions):
    """The same options for a benchmark."""

    drafters: BenchDrafters = None
