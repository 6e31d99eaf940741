"""`slipstream serve`: its options, and the server that they describe."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.options import ModelOptions, ModelToo, NoReadAhead, Trace, listening, models, reading_ahead, sampling
from app.server.policy import ServerPolicy
from runtime.core.errors import SettingsError
from runtime.core.limits import Limits

if TYPE_CHECKING:  # importing them is slow, and help is shown without
    from app.server.sockets import Addresses
    from runtime.loading.options import Options
    from runtime.models.registry import Pair

KEY = "'--api-key' / '--api-key-file'"


def allowed_origins(given: list[str] | None) -> list[str]:
    """Return the origins from the command line and the settings file. Raises BadParameter for an invalid one, and
    SettingsError for the settings file.
    """
    from app.settings import as_origin, read_settings

    saved = read_settings().server.allow_origins
    try:
        return [*saved, *map(as_origin, given or ())]
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from error


class Thoughts(StrEnum):
    """Whether a reasoning model reasons."""

    AUTO = "auto"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class ListenOptions:
    """Where a server listens, and who may use it."""

    port: Annotated[int | None, listening(min=0, max=65535, help="TCP port (8012, or none with --socket).")] = None
    socket: Annotated[Path | None, listening(help="A Unix socket that only you can open.")] = None
    api_key: Annotated[
        str, listening(envvar="SLIPSTREAM_API_KEY", help="The key that clients must send.", show_default=False)
    ] = ""
    api_key_file: Annotated[
        Path | None, listening(help="A file with that key; `ps` does not show it.", show_default=False)
    ] = None
    allow_origin: Annotated[
        list[str] | None,
        listening(
            callback=allowed_origins,
            metavar="ORIGIN",
            show_default=False,
            help="An app or page that may ask without a key, such as app://obsidian.md (may be repeated).",
        ),
    ] = None

    def addresses(self, host: str = "127.0.0.1", ollama: bool = False) -> Addresses:
        """Return the addresses: the usual port unless another one or a socket is given."""
        from app.server.command import PORT
        from app.server.sockets import Addresses

        tcp = PORT if self.port is None and self.socket is None else self.port
        return Addresses(host, tcp, self.socket, ollama)

    @property
    def origins(self) -> tuple[str, ...]:
        """The apps and pages that may ask without a key."""
        return tuple(self.allow_origin or ())

    def key(self) -> str:
        """Return the key itself or the content of a file. The command line is visible to every user of the machine; a
        file is not.

        Raises BadParameter.
        """
        from app.cli.choices import read_file

        if self.api_key_file is None:
            return self.api_key
        if self.api_key:
            raise typer.BadParameter("The server has one key: leave one of the two out.", param_hint=KEY)
        key = read_file(self.api_key_file).strip()
        if not key or len(key.split()) > 1:
            text = f"{self.api_key_file} has no key in it. Write one word into it."
            raise typer.BadParameter(text, param_hint=KEY)
        return key


@dataclass(frozen=True, slots=True)
class ServeOptions(ListenOptions):
    """The same, and what else only a server has to say."""

    host: Annotated[str, listening(help="Address to listen at; one that other machines can reach needs a key.")] = (
        "127.0.0.1"
    )
    alias: Annotated[
        str,
        listening(
            "--alias",
            metavar="NAME,...",
            show_default=False,
            help="The model's name for clients, instead of its own; more names after commas.",
        ),
    ] = ""
    quiet: Annotated[bool, listening("--quiet", help="Do not log requests.")] = False
    verbose: Annotated[
        bool, listening("--verbose", help="Log for each request what was changed to fit the model's chat template.")
    ] = False


@dataclass(frozen=True, slots=True)
class SeveralOptions:
    """What is asked of a server with several models."""

    models: Annotated[
        list[Path] | None,
        models("--models", metavar="FOLDER", show_default=False, help="Also serve the models in it (may be repeated)."),
    ] = None
    keep_alive: Annotated[
        str,
        models(
            "--keep-alive",
            metavar="TIME",
            show_default=False,
            help="How long a model stays loaded after a request, such as 10m; else until its memory is needed.",
        ),
    ] = ""
    keep: Annotated[
        str, models("--keep", metavar="NAME,...", show_default=False, help="Models that stay once they are loaded.")
    ] = ""
    models_max: Annotated[
        int | None,
        models(min=1, show_default=False, help="Most models that are loaded at the same time; else memory decides."),
    ] = None
    no_models_autoload: Annotated[
        bool, models("--no-models-autoload", help="Requests load no model: only POST /models/load does.")
    ] = False


@dataclass(frozen=True, slots=True)
class WorkOptions:
    """How much a server does concurrently, and what it keeps."""

    parallel: Annotated[int, listening(min=1, help="Requests that are answered at the same time.")] = 3
    max_waiting: Annotated[int, listening(min=0, help="Requests that may wait; more are refused.")] = 16
    slots: Annotated[bool, listening(help="Show the running requests at /slots, without their text.")] = False
    slot_save_path: Annotated[
        Path | None, listening(show_default=False, help="A folder in which clients may save and restore conversations.")
    ] = None
    ollama: Annotated[bool, listening("--ollama", help="Also listen at the port of Ollama (11434).")] = False
    max_tokens: Annotated[
        int | None,
        listening(
            "--max-tokens",
            min=1,
            show_default=False,
            help="Limit on the tokens of a reply, whatever a request asks for.",
        ),
    ] = None
    drain: Annotated[float, listening(min=0, help="Seconds that running replies may continue at shutdown.")] = 10.0
    temperature: Annotated[
        float | None,
        sampling(
            "--temperature", help="For requests that name none; 0 takes the most likely token.", show_default=False
        ),
    ] = None
    reasoning: Annotated[
        Thoughts,
        sampling("--reasoning", help="Off: models do not think before they answer, unless a request asks for it."),
    ] = Thoughts.AUTO
    no_read_ahead: NoReadAhead = False

    def configured(self, pair: Pair, how: ModelOptions) -> tuple[Pair, Options]:
        """Return the pair and the options to serve it with. Raises BadParameter for wrong names."""
        from app.cli import choices

        pair, options = choices.configured(pair, how)
        pair = choices.tempered(pair, self.temperature)
        pair = replace(pair, thinking=pair.thinking and self.reasoning is Thoughts.AUTO)
        slots, limits = self.parallel + 1, Limits(self.parallel, self.max_waiting)  # one for a short completion
        return pair, replace(reading_ahead(options, self.no_read_ahead), slots=slots, limits=limits)

    def policy(self, names: tuple[str, ...], several: SeveralOptions) -> ServerPolicy:
        """Return the policy for all requests, given the model's names."""
        loads, most = not several.no_models_autoload, several.models_max
        return ServerPolicy(names, self.slots, self.max_tokens, max_models=most, loads_models=loads)

    def folder(self) -> Path | None:
        """Return the folder for saved conversations if it exists. Raises BadParameter."""
        from runtime.core.outside import expanded

        path = self.slot_save_path and expanded(self.slot_save_path)
        if path is not None and not path.is_dir():
            raise typer.BadParameter(f"{path} is not a folder. Create it first.", param_hint="'--slot-save-path'")
        return path


def serve(
    pairs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PAIR",
            show_default=False,
            help="Pairs of models.toml or paths of GGUF files. Of several, each is loaded when a request names it; "
            "without any, that is so for all models that are here.",
        ),
    ] = None,
    model: ModelToo = "",
    *,
    at: ServeOptions,
    work: WorkOptions,
    several: SeveralOptions,
    how: ModelOptions,
    trace: Trace = None,
) -> None:
    """Answer editors and other programs.

    OpenAI's, Anthropic's, llama.cpp's and Ollama's interfaces, on this machine only: docs/editors.md.
    For example: slipstream serve demo --socket ~/slipstream.sock
    """
    from app.cli.report import trace_to
    from app.cli.several import ServedChoice
    from app.models.seeking import opener
    from app.server import command

    offered = ServedChoice.of([*(pairs or ()), *filter(None, [model])], several)
    names = offered.only_names(tuple(filter(None, map(str.strip, at.alias.split(",")))), how, bool(trace))
    settings = command.ServerSettings(
        at.addresses(at.host, work.ollama), at.key(), at.origins, at.quiet, work.policy(names, several), work.drain,
        work.folder(), at.verbose,
    )  # fmt: skip
    with trace_to(trace, offered.first) as file:
        source = offered.source(opener(how.draft, file), partial(work.configured, how=how), settings.policy)
        command.serve(source, settings)
