"""`slipstream chat`: its options, and the terminal chat that they open."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.options import (
    ModelOptions,
    ModelToo,
    NoReadAhead,
    Seed,
    Temperature,
    Trace,
    generation,
    listening,
    output,
    reading_ahead,
)
from app.cli.serve import ListenOptions
from app.cli.streams import require_screen

if TYPE_CHECKING:  # importing them is slow, and help is shown without
    from app.server.command import ServerSettings

ChatModel = Annotated[
    str,
    typer.Argument(
        metavar="PAIR or TITLE",
        help="A pair of models.toml, the path of a GGUF file or, with -c, a chat's title.",
        show_default="the last one used, or demo",
    ),
]


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """The chat that is open at first, and the settings of new ones."""

    continues: Annotated[
        bool, generation("--continue", "-c", help="Open the last chat, or the one of the given title.")
    ] = False
    system: Annotated[str | None, generation("--system", help="A system prompt for new chats.", show_default=False)] = (
        None
    )
    temperature: Temperature = None
    seed: Seed = None
    no_read_ahead: NoReadAhead = False
    chats: Annotated[Path | None, output(help="The file that chats are kept in.", show_default=False)] = None

    @property
    def values(self) -> dict[str, float]:
        """The given settings of replies, by name."""
        named = {"temperature": self.temperature, "seed": self.seed}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ShareOptions(ListenOptions):
    """Whether the chat's model is that of a server, or is shared by one."""

    attach: Annotated[
        bool, listening("--attach", help="Share the model of a server that already runs here, at --port.")
    ] = False
    serve: Annotated[bool, listening("--serve", help="Also answer editors with the same model.")] = False

    def running_server(self) -> str:
        """Return the address of the server on this machine whose model the chat uses. Raises BadParameter."""
        if self.serve or self.socket is not None:
            raise typer.BadParameter(
                "A chat that uses a server over TCP cannot serve clients itself. Leave out --serve and --socket.",
                param_hint="'--attach'",
            )
        from app.server.command import PORT

        return f"http://127.0.0.1:{self.port or PORT}"

    def settings(self) -> ServerSettings | None:
        """Return the settings of the server that the chat starts, or None. Raises BadParameter."""
        if not (self.serve or self.attach) and (self.port is not None or self.socket is not None):
            raise typer.BadParameter(
                "Editors are answered only with --serve: add it.", param_hint="'--port' / '--socket'"
            )
        if not self.serve:
            return None
        from app.server.command import ServerSettings

        return ServerSettings(self.addresses(), self.key(), allow_origins=self.origins)


def chat(
    pair: ChatModel = "",
    model: ModelToo = "",
    *,
    how: ModelOptions,
    chosen: ChatOptions,
    at: ShareOptions,
    trace: Trace = None,
) -> None:
    """Chat in the terminal; `slipstream` with options alone does the same: `slipstream -c` opens the last chat."""
    require_screen()
    from app.cli import choices, conversation
    from app.cli.report import trace_to

    if at.attach:
        model = at.running_server()
    opened, pair = conversation.chat_to_open(pair, chosen.chats) if chosen.continues else (None, pair)
    start, options = choices.choose_start(model or pair, chosen.chats, how)
    options = reading_ahead(options, chosen.no_read_ahead)
    choices.sampling(start.pair, **chosen.values)  # raises for invalid values
    settings = at.settings()
    from app.models.seeking import opener
    from app.tui.app import run as open_chat
    from app.tui.session import Given

    given = Given(chosen.values, chosen.system, opened, settings, at.key(), at.origins)
    with trace_to(trace, start.pair) as file:
        open_chat(start, options, chosen.chats, partial(opener, how.draft, file), given)
