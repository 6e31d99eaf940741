"""Names, docstrings and sentences use the field's words: those that nobody in the field would use do not come back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOTS = ("app", "runtime", "bench")
OLD_NAMES = {
    "anew", "barred", "believed", "beside", "company", "due", "hear", "heard", "patience", "said", "speak", "speaker",
    "speaking", "speaks", "whoever",
}  # fmt: skip
OLD_VERBS = re.compile(r"let_in|take_up|go(es)?_on_", re.IGNORECASE)
OLD_PHRASES = re.compile(
    r"\b(anew|barred|believed|let in|lets in|took up|take up|whoever|so many|in company|heard|goes on with|comes of|"
    r"is had|be had|is told|are told|speaks|speaking|beside)\b",
    re.IGNORECASE,
)
OLD_IN_SENTENCES = re.compile(
    r"\b(anew|whoever|so many|barred|lets? in|takes? up|took up|(is|are) told|believed|speak(s|ing)?|in company|heard|"
    r"(is|be) had|comes of|goes on with|mend)\b",
    re.IGNORECASE,
)
WORD = re.compile(r"(?<=[a-z])(?=[A-Z])|_")


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(path for root in ROOTS for path in Path(root).rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf8"))


def names_in(tree: ast.Module) -> Iterator[str]:
    """Yield what a module names itself: functions, classes, parameters, variables and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def test_no_name_has_a_word_of_the_old_vocabulary() -> None:
    found = {
        f"{path}: {name}"
        for path, tree in trees()
        for name in names_in(tree)
        if OLD_NAMES & {part.lower() for part in WORD.split(name)} or OLD_VERBS.search(name)
    }
    assert sorted(found) == []


def test_no_docstring_has_a_phrase_of_the_old_vocabulary() -> None:
    documented = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    found = [
        f"{path}: {phrase[0]}"
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, documented) and (phrase := OLD_PHRASES.search(ast.get_docstring(node) or ""))
    ]
    assert found == []


def sentences(tree: ast.Module) -> Iterator[str]:
    """Yield the strings of a module that are no docstrings; the parts of an f-string one by one."""
    ignored = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in ignored:
            yield node.value


def test_no_sentence_has_an_old_word() -> None:
    found = [
        f"{path}: {text}"
        for path, tree in trees()
        if path.parts[0] != "bench"
        for text in sentences(tree)
        if " " in text.strip() and OLD_IN_SENTENCES.search(text)
    ]
    assert found == []
