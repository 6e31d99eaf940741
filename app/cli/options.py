"""The options of `slipstream`'s commands, by panel of the help."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.drafting import DRAFTERS
from app.server.policy import ServerPolicy
from runtime.core.errors import SettingsError
from runtime.core.limits import Limits

if TYPE_CHECKING:  # importing it is slow, and help is shown without
    from runtime.loading.options import Options

generation = partial(typer.Option, rich_help_panel="Prompt and length")
models = partial(typer.Option, rich_help_panel="Which models")
sampling = partial(typer.Option, rich_help_panel="Sampling")
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


ModelToo = Annotated[str, typer.Option("--model", "-m", help="The same as an option.", show_default=False)]
DoctorPair = Annotated[str, typer.Argument(help="The pair or GGUF file to measure.")]
DoctorJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
ChatModel = Annotated[
    str,
    typer.Argument(
        metavar="PAIR or TITLE",
        help="A pair of models.toml, the path of a GGUF file or, with -c, a chat's title.",
        show_default="the last one used, or demo",
    ),
]
PairName = Annotated[str, typer.Argument(help="A pair of models.toml, or the path of a GGUF file.")]

ChatSystem = Annotated[str | None, generation("--system", help="A system prompt for new chats.", show_default=False)]

ContinueChat = Annotated[
    bool, generation("--continue", "-c", help="Open the last chat, or the one of the given title.")
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
Seed = Annotated[int | None, sampling(help="The same seed gives the same text.")]

Quick = Annotated[bool, measuring("--quick", help="Fewer rounds, kinds and draft lengths.")]
Runs = Annotated[int | None, measuring(min=1, help="Rounds that count (5).", show_default=False)]
Kinds = Annotated[str | None, measuring(help="Some of question, code, edit, summary, turns, prose.")]
BenchTokens = Annotated[int | None, measuring(min=1, help="Tokens of a reply (64).", show_default=False)]
BenchDrafters = Annotated[str | None, measuring(help="The drafters: model, ngram, or none.")]
Ks = Annotated[str | None, measuring(help="Draft lengths to compare (1,2,3,4,6,8).", show_default=False)]

Chats = Annotated[Path | None, output(help="The file that chats are kept in.", show_default=False)]
Trace = Annotated[
    Path | None,
    output(help="Write a line of JSON for each pass to this file; `slipstream trace` sums it up.", show_default=False),
]
TraceOf = Annotated[Path, typer.Argument(metavar="FILE", help="A file that --trace wrote.", show_default=False)]
Html = Annotated[Path | None, output(help="Write a report with plots to this file.")]
JsonFile = Annotated[Path | None, output("--json", help="Write every reply's numbers to this file.")]

NoReadAhead = Annotated[
    bool, models("--no-read-ahead", help="Do not read the next prompt in idle time: while it is typed, after a reply.")
]

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


def reading_ahead(options: Options, is_wanted: bool) -> Options:
    """Return the options, with which prompts are read ahead only if that is wanted here and by the settings."""
    return replace(options, reads_ahead=options.reads_ahead and is_wanted)


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """The chat that is open at first, and the settings of new ones."""

    continues: ContinueChat = False
    system: ChatSystem = None
    temperature: Temperature = None
    seed: Seed = None
    no_read_ahead: NoReadAhead = False

    @property
    def values(self) -> dict[str, float]:
        """The given settings of replies, by name."""
        named = {"temperature": self.temperature, "seed": self.seed}
        return {name: value for name, value in named.items() if value is not None}

    def adapted(self, options: Options) -> Options:
        """Return the options for the chat."""
        return reading_ahead(options, not self.no_read_ahead)


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
    no_read_ahead: NoReadAhead = False

    def adapted(self, options: Options) -> Options:
        """Return the options for the server: with a slot for each request, and one for a short completion."""
        limits = Limits(self.parallel, self.max_waiting)
        return replace(reading_ahead(options, not self.no_read_ahead), slots=self.parallel + 1, limits=limits)

    def policy(self, names: tuple[str, ...]) -> ServerPolicy:
        """Return the policy for all requests, given the model's names."""
        return ServerPolicy(names, self.slots, self.max_tokens)


@dataclass(frozen=True, slots=True)
class BenchOptions(ModelOptions):
    """The same options for a benchmark."""

    drafters: BenchDrafters = None
