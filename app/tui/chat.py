"""The chat screen: what keys, slash commands and messages under the cursor do."""

from __future__ import annotations

from app.tui.chats import Chats, export
from app.tui.commands import COMMANDS
from app.tui.conversation import Conversation
from app.tui.dialogs import Ask, Pick, Read
from app.tui.editor import write_in_editor
from app.tui.help import help_page
from app.tui.talking import Talking
from app.tui.templates import TEMPLATE, keep_template, names, read_template
from app.tui.why import Why
from runtime.core.errors import SettingsError
from runtime.models.registry import Pair, find_pair, load_registry

DARK, LIGHT = "textual-dark", "textual-light"


class ChatScreen(Talking):
    """Every command of commands.py is a method `do_<name>` here."""

    async def do_new(self, argument: str = "") -> None:
        """An empty chat with the same system prompt."""
        await self.open_chat(None)

    async def open_chat(self, chat: int | None) -> None:
        """Another chat; a reply that is being made is stopped first."""
        if self.replying is not None:
            self.cancelled.set()
            self.waiting = lambda: self.open_chat(chat)
            return
        self.waiting = None
        self.conversation = Conversation(self.session.store, chat, self.conversation.system if chat is None else "")
        self.passes.clear()
        self.end_editing()
        await self.show_chat()
        self.prompt.focus()

    def do_chats(self, argument: str = "") -> None:
        """All chats."""

        async def open_or_refresh(chat: int | None) -> None:
            if chat is not None and chat != self.conversation.id:
                await self.open_chat(chat)
            self.conversation.refresh()
            self.show_title()

        async def opened(chat: int | None) -> None:
            await self.attempt(open_or_refresh, chat)

        self.app.push_screen(Chats(self.session.store, self.conversation.id), opened)

    def do_model(self, argument: str = "") -> None:
        """Another pair, by name or path or from a list."""
        pairs = load_registry().values()

        def find(typed: str) -> list[tuple[str, str]]:
            return [(line, pair.name) for pair in pairs if typed.lower() in (line := described(pair)).lower()]

        def chosen(name: str | None) -> None:
            if name is not None:
                self.take_model(name)

        if argument:
            self.take_model(argument)
        else:
            hint = "\nor type the path of a GGUF file. What is marked ↓ is fetched first."
            self.app.push_screen(Pick("Load another model", find, hint, self.known), chosen)

    def known(self, name: str) -> str:
        """The name itself, if it can be loaded or fetched. Raises RegistryError."""
        self.find(name)
        return name

    def take_model(self, name: str) -> None:
        """Loads a pair; what is not here is fetched first."""
        pair = self.find(name)
        if pair is not None:
            self.switch(pair)
        else:
            self.fetch(name, lambda: self.take_fetched(name))

    def take_fetched(self, name: str) -> None:
        """Loads what has come."""
        self.switch(find_pair(name, load_registry()))

    def do_pull(self, argument: str = "") -> None:
        """From the hub."""
        if not argument:
            raise SettingsError("Name what to fetch, such as: /pull owner/repo:Q4_K_M. /model lists known pairs.")
        self.fetch(argument)

    def switch(self, pair: Pair) -> None:
        """Loads a pair, after the reply that is being made was stopped."""
        if self.replying is not None:
            self.cancelled.set()
            self.waiting = lambda: self.switch(pair)
        else:
            self.tally.passes.clear()
            self.start_loading(pair)

    async def do_regenerate(self, argument: str = "") -> None:
        """Of the last reply."""
        if said := self.conversation.said():
            await self.regenerate(said[-1].id)

    def do_continue(self, argument: str = "") -> None:
        """Goes on with the last reply."""
        replies = self.turns("assistant")
        if self.is_busy or not replies or not replies[-1].text:
            self.notify("There is no reply that could go on now.")
        else:
            self.start_reply(replies[-1])

    def do_edit(self, argument: str = "") -> None:
        """The last question."""
        if questions := self.turns("user"):
            self.edit(questions[-1])

    def do_copy(self, argument: str = "") -> None:
        """The last reply, or its last code block."""
        replies = self.turns("assistant")
        text = "" if not replies else replies[-1].code() if argument == "code" else replies[-1].text
        self.copy(text, "code block" if argument == "code" else "reply")

    def do_system(self, argument: str = "") -> None:
        """What the model is told before the chat."""

        def told(text: str | None) -> None:
            if text is not None:
                self.conversation.set_system(text)
                self.notify("The system prompt holds from the next reply on.")

        if argument:
            told("" if argument == "none" else read_template(argument[1:]) if argument.startswith("@") else argument)
        else:
            self.app.push_screen(Ask("System prompt", self.conversation.system, " · /system none removes it"), told)

    def do_template(self, argument: str = "") -> None:
        """A text to begin with."""
        if not (named := TEMPLATE.fullmatch(argument)):
            lines = [(f"{name}: {' '.join(read_template(name).split())[:200]}", name) for name in names()]
            picked = Pick(
                "Begin with",
                lambda typed: [line for line in lines if typed.lower() in line[0].lower()],
                "\n/template name text keeps one",
            )
            self.app.push_screen(picked, lambda name: self.prompt.begin(read_template(name)) if name else None)
        elif named[2]:
            self.notify(keep_template(named[1], named[2].strip()), markup=False)
        else:
            self.prompt.begin(read_template(named[1]))

    def do_rename(self, argument: str = "") -> None:
        """Another title."""
        chat = self.conversation.id

        def titled(title: str | None) -> None:
            if title and chat is not None:
                self.session.store.rename(chat, title)
                self.conversation.refresh()
                self.show_title()

        if chat is None:
            self.notify("Say something first: an empty chat is not kept.")
        elif argument:
            titled(argument)
        else:
            self.app.push_screen(Ask("Rename chat", self.conversation.title), titled)

    def do_export(self, argument: str = "") -> None:
        """To a file."""
        if self.conversation.id is None:
            raise SettingsError("There is nothing to export yet. Say something first.")
        self.save()
        chat = self.session.store.chat(self.conversation.id)
        self.notify(f"Written to {export(chat, self.conversation.said(), argument)}", markup=False)

    def do_set(self, argument: str = "") -> None:
        """Sampling and length."""
        self.notify(self.session.set(argument), markup=False)

    def do_history(self, argument: str = "") -> None:
        """What was said before, searched."""

        def find(typed: str) -> list[tuple[str, str]]:
            said = [text for text in reversed(self.prompt.said) if typed.lower() in text.lower()]
            return [(" ".join(text.split())[:200], text) for text in said]

        self.app.push_screen(Pick("What you said before", find), lambda text: self.prompt.begin(text) if text else None)

    def do_editor(self, argument: str = "") -> None:
        """Writes in another program."""
        self.prompt.begin(write_in_editor(self.app, self.prompt.unfolded()))

    def do_tokens(self, argument: str = "") -> None:
        """Markdown, or tokens in colours."""
        self.toggle_class("-tokens")
        for turn in self.turns("assistant"):
            turn.show_tokens()

    def do_panel(self, argument: str = "") -> None:
        """Live graphs."""
        self.toggle_class("-panel")

    def do_why(self, argument: str = "") -> None:
        """What decides about speculation."""
        if self.session.explanation is None:
            raise SettingsError("Nothing is measured yet. Wait until the model is loaded.")
        self.app.push_screen(Why(self.session.explanation, self.passes))

    def do_help(self, argument: str = "") -> None:
        """Keys and commands."""
        self.app.push_screen(Read("Help", help_page(COMMANDS, self.session.keymap)))

    def do_log(self, argument: str = "") -> None:
        """What happened."""
        self.app.push_screen(Read("Log", "\n".join(self.session.log or ["Nothing happened yet."])))

    def do_serve(self, argument: str = "") -> None:
        """Editors are answered, or no more."""
        if argument == "off" or (self.session.serve is not None and not argument):
            self.session.serve = None
            self.run_worker(self.stop_serving(), group="serving")
            return
        if self.session.serving is not None:
            raise SettingsError("Editors are answered already. /serve off ends it.")
        from app.server.command import Settings
        from app.tui.serving import addresses_of

        self.session.serve = Settings(addresses_of(argument), self.session.api_key)
        if self.session.engine is not None:
            self.start_serving()

    def do_theme(self, argument: str = "") -> None:
        """Light or dark."""
        self.app.theme = LIGHT if self.app.current_theme.dark else DARK

    def do_quit(self, argument: str = "") -> None:
        """Leaves."""
        self.app.exit()


def described(pair: Pair) -> str:
    """A line of the list of pairs, with its size where it is still to be fetched."""
    from app.models.listing import is_here  # slow to import, and seldom needed

    missing = f" ({pair.size / 1e9:.1f} GB)" * bool(pair.size)
    return f"  {pair.name}: {pair.description}" if is_here(pair) else f"↓ {pair.name}: {pair.description}{missing}"
