"""Translates grammars in llama.cpp's notation (GBNF) to Lark, with tokens: <[1000]>, <think>, and ! for any other."""

from __future__ import annotations

import re
from itertools import count

from runtime.sampling.control_tokens import ControlTokens, all_but, these

LEXEMES = re.compile(r'#[^\n]*|"(?:\\.|[^"\\])*+(?:"|\Z)|\[(?:\\.|[^\]\\])*+(?:\]|\Z)|!?<[^<>\s]+>')
BY_ID = re.compile(r"<\[(\d+)\]>")


def gbnf_as_lark(text: str, control: ControlTokens) -> str:
    """Return the grammar in Lark. Raises ValueError if it is invalid, or names no token of the vocabulary."""
    from llguidance.gbnf_to_lark import gbnf_to_lark

    rules = TokenRules(control, text)
    text = LEXEMES.sub(lambda match: rules.replaced(match[0]), text)
    try:
        return rules.completed(str(gbnf_to_lark(text + rules.text)))
    except Exception as error:  # the library raises this very class for a missing rule
        raise ValueError(" ".join(str(error).split()) or "it cannot be read") from error


class TokenRules:
    """Rules that stand for tokens while a grammar is translated, as the library's translation supports none."""

    def __init__(self, control: ControlTokens, text: str) -> None:
        self._control, self._references = control, dict[str, str]()
        self._prefix = next(name for n in count() if (name := f"token{n or ''}") not in text)

    @property
    def text(self) -> str:
        """The rules in GBNF. Each refers to itself, so that the library makes no terminal of a rule that uses it."""
        return "".join(f"\n{name} ::= {name}\n" for name in self._references)

    def replaced(self, part: str) -> str:
        """Return a part of the grammar with tokens replaced by such rules. Raises ValueError for an unknown token."""
        if part[0] in "#[":
            return part
        return self._control.spelled_or_whole(part, self._one) if part[0] == '"' else self._token(part)

    def completed(self, lark: str) -> str:
        """Return the translation with tokens in the place of these rules."""
        for name, reference in self._references.items():
            rule = f"\n{name.replace('-', '_')}: "
            lark = lark.replace(f"{rule}{rule[1:-2]}\n", f"{rule}{reference}\n")
        return lark

    def _token(self, part: str) -> str:
        source = part.removeprefix("!")
        by_id = BY_ID.fullmatch(source)
        token = int(by_id[1]) if by_id else self._control.find(source)
        if token is None:
            raise ValueError(f"{source} is not a token of this model's vocabulary")
        return self._one(token) if part == source else self._other(token)

    def _one(self, token: int) -> str:
        self._references[name := f"{self._prefix}-{token}"] = these([token])
        return name

    def _other(self, token: int) -> str:
        self._references[name := f"other-than-{self._prefix}-{token}"] = all_but([token, *self._control.ends])
        return name
