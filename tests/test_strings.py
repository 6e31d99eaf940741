"""The sentences in the code have none of the words that nobody in the field would use."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROMPTS = "app/bench/prompts.py"  # texts for models
OLD_WORDS = re.compile(
    r"\b(anew|whoever|so many|barred|lets? in|takes? up|took up|(is|are) told|believed|speak(s|ing)?|in company|heard|"
    r"(is|be) had|comes of|goes on with|mend)\b",
    re.IGNORECASE,
)


def sentences(code: str) -> Iterator[str]:
    """Yield the strings of a file that have at least two spaces and are no docstrings, with {} for values."""
    tree = ast.parse(code)
    ignored = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    ignored |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        text = written(node) if id(node) not in ignored else ""
        if text.count(" ") >= 2 and re.search("[a-z]", text):
            yield text


def written(node: ast.AST) -> str:
    """Return the text of a string or an f-string; "" for any other node."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    parts = node.values if isinstance(node, ast.JoinedStr) else ()
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)


def all_sentences() -> list[tuple[str, str]]:
    """Return each string with its file, sorted and each once."""
    files = [path for folder in ("app", "runtime") for path in (ROOT / folder).rglob("*.py")]
    found = {(path.relative_to(ROOT).as_posix(), text) for path in files for text in sentences(path.read_text("utf8"))}
    return sorted(found)


def test_no_sentence_has_an_old_word() -> None:
    found = [f"{file}: {text}" for file, text in all_sentences() if OLD_WORDS.search(text) and file != PROMPTS]
    assert found == []


@pytest.mark.parametrize(
    ("code", "texts"),
    [
        ('"""Says it all."""\n', []),
        ('def f():\n    "Says it all."\n', []),
        ('x = "one word"\n', []),
        ('x = "two more words"\n', ["two more words"]),
        ('x = "in two " "parts of code"\n', ["in two parts of code"]),
        ('x = f"{n} files in {folder}"\n', ["{} files in {}"]),
        ("x = f\"here is {'nothing at all' if n else n}\"\n", ["here is {}", "nothing at all"]),
        ('x = "1 2 3"\n', []),
    ],
)
def test_a_sentence_is_found(code: str, texts: list[str]) -> None:
    assert list(sentences(code)) == texts
