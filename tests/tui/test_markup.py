"""Nothing that the chat shows is read as markup: titles, names of models, files and presets, texts, errors.

Textual reads a string as markup in most places where it is shown: `[red]x` loses its beginning, and `[/]` ends the app.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.core.errors import ModelError
from runtime.models.registry import Pair
from tests.support.scripted import ScriptedEngine
from tests.support.tui import chats_path, opened, piloted

path = chats_path

TUI = Path(__file__).parents[2] / "app" / "tui"
READS_ALWAYS = {"Static", "Label", "OptionList"}  # widgets that read later texts, too
READS = {"Button": "label", "Collapsible": "title", "Tab": "label", "Checkbox": "label", "Link": "text"}
ATTRIBUTES = {"border_title", "border_subtitle", "tooltip"}
ROWS = {"add_row", "add_column"}  # of a table of rich
PLAIN = {"Content", "Text", "Content.styled", "Content.assemble", "Text.assemble"}


def faults(code: str) -> list[str]:
    """Each place of a file where a text that is not ours may be read as markup."""
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.stmt | ast.expr)]
    return [f"{node.lineno}: {ast.unparse(node)}" for node in nodes if reads(node)]


def reads(node: ast.AST) -> bool:
    match node:
        case ast.ClassDef():
            return any(ast.unparse(base) in READS_ALWAYS for base in node.bases) and not begins_without(node)
        case ast.Call(func=ast.Name(id=name)) if name in READS_ALWAYS:
            return not is_without_markup(node)
        case ast.Call(func=ast.Name(id=name)):
            return name in READS and not all(map(is_ours, texts(node, READS[name])))
        case ast.Call(func=ast.Attribute(attr=name)):
            return "from_markup" in name or (name in ROWS and not all(map(is_ours, node.args)))
        case ast.Assign():
            return not all(is_ours(text) for target in node.targets for text in assigned(target, node.value))
    return False


def begins_without(node: ast.ClassDef) -> bool:
    """Does each way to make such a widget switch markup off?"""
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
    begins = [each for method in methods for each in ast.walk(method) if is_call(each, "super().__init__")]
    return bool(begins) and all(map(is_without_markup, begins))


def is_call(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == name


def is_without_markup(node: ast.AST) -> bool:
    assert isinstance(node, ast.Call)
    return any(word.arg == "markup" and ast.unparse(word.value) == "False" for word in node.keywords)


def texts(node: ast.Call, name: str) -> list[ast.expr]:
    """What a widget is to say: its first argument or that of this name."""
    first = [] if name == "title" else node.args[:1]
    return first + [word.value for word in node.keywords if word.arg == name]


def assigned(target: ast.expr, value: ast.expr) -> Iterator[ast.expr]:
    """What is assigned to attributes that are read as markup."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for each, part in zip(target.elts, value.elts, strict=True):
            yield from assigned(each, part)
    elif isinstance(target, ast.Attribute) and target.attr in ATTRIBUTES:
        yield value


def is_ours(text: ast.expr) -> bool:
    """Is it a constant of ours, or no markup?"""
    return isinstance(text, ast.Constant) or (isinstance(text, ast.Call) and ast.unparse(text.func) in PLAIN)


def test_no_text_that_is_not_ours_is_read_as_markup() -> None:
    found = [
        f"{file.relative_to(TUI)}:{fault}" for file in TUI.rglob("*.py") for fault in faults(file.read_text("utf8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("code", "is_fault"),
    [
        ("Static(name)", True),
        ("Static(id='top')", True),
        ("Label('x', markup=True)", True),
        ("Label(name, markup=False)", False),
        ("class A(Static):\n    pass", True),
        ("class A(Static):\n    def __init__(self):\n        super().__init__(id='a')", True),
        ("class A(OptionList):\n    def __init__(self):\n        super().__init__(markup=False)", False),
        ("Button(f'Show {n}')", True),
        ("Button('Show')", False),
        ("Button(Content(f'Show {n}'))", False),
        ("Collapsible(x, title=title)", True),
        ("dialog.border_title = title", True),
        ("dialog.border_title, dialog.border_subtitle = 'ours', title", True),
        ("dialog.border_title = Content(title)", False),
        ("self.tooltip = f'{path}'", True),
        ("table.add_row(key, Text(name))", True),
        ("table.add_row('key', Text(name))", False),
        ("Content.from_markup(text)", True),
    ],
)
def test_a_fault_is_found(code: str, is_fault: bool) -> None:
    assert bool(faults(code)) == is_fault


BAD = "[/] what is that? [bold"


@piloted
async def test_a_chats_title_is_text_wherever_it_is_shown(path: Path) -> None:
    async with opened(path, size=(120, 40)) as chat:
        await chat.ask(BAD)
        await chat.until(f"Slipstream · scripted · {BAD}")
        await chat.press("ctrl+n", "ctrl+o")
        await chat.until("Chats", BAD)
        await chat.press("ctrl+d")
        await chat.until(f"Press Ctrl+D again to delete “{BAD}” for good.")
        await chat.press("ctrl+e")
        await chat.until("Rename chat", BAD)
        await chat.press("escape")
        await chat.type("nothing like it")
        await chat.press("ctrl+d")
        await chat.until("There is nothing to delete.")


@piloted
async def test_folders_of_exports_are_text(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = path.parent / "a[" / "b]"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    async with opened(path, size=(160, 40)) as chat:
        await chat.ask("[red]x")
        await chat.until("[red]x")
        await chat.press("ctrl+o", "ctrl+x")
        await chat.until("Written to", "x.md")
        await chat.press("escape")
        await chat.say("/export [/bold].md")
        await chat.until("[/bold].md")
        await chat.say("/export nothing[/]/at all.md")
        await chat.until("nothing[/]")


@piloted
async def test_names_of_models_presets_and_templates_are_text(path: Path) -> None:
    file = Pair("m[/b].gguf", Path("m[/b].gguf"), temperature=0.0)
    damaged = ModelError("m[/b].gguf is damaged: [/]. Download it again.")
    async with opened(path, ScriptedEngine("[/] one [bold]two"), damaged, pair=file, size=(140, 40)) as chat:
        await chat.until("m[/b].gguf is ready")
        await chat.ask("Q")
        for command, shown in {
            "/settings": "Settings: m[/b].gguf in this chat",
            "/why": "m[/b].gguf",
            "/system [/] be [red]brief": "system prompt",
            "/system": "[/] be [red]brief",
            "/preset save x": "Saved: b].gguf",
            "/preset [/x]": "There is no preset '[/x]'",
            "/preset": "x: b].gguf",
            "/context 64": "m[/b].gguf",
            "/template [/t]": "There is no template '[/t]'",
            "/template t [/] text": "Saved",
            "/template": "t: [/] text",
            "/history": "Q",
            "/delete-turn": "“Q”",
            "/copy": "Copied the reply",
            "/log": "loaded m[/b].gguf",
            "/help": "Help",
        }.items():
            await chat.say(command)
            await chat.until(shown)
            await chat.press("escape")
        await chat.say("/model demo")
        await chat.until("m[/b].gguf is damaged: [/].", "m[/b].gguf still answers.")


@piloted
async def test_an_error_of_the_engine_and_a_store_are_text(path: Path) -> None:
    engine = ScriptedEngine("one [fail]")
    async with opened(path, engine) as chat:
        await chat.ask("[/]")
        await chat.until("does not answer")
        chat.screen.notify("[/] is [red]red")
        await chat.until("[/] is [red]red")
