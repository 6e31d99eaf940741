"""Constrains a reply through llguidance: JSON by schema, any JSON object, a regular expression or a Lark grammar.

A compiled grammar is a memo like the cache: for each path, it rolls back to the shared part and continues from there,
so a rejected draft leaves no trace in it. Knows token ids; knows no model.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from runtime.core.draft import Path, Tokens, common_start
from runtime.core.errors import SettingsError
from runtime.core.watched import never
from runtime.sampling.checking import LONGEST_REASON, check_schema, check_size, too_slow
from runtime.sampling.control_tokens import ControlTokens
from runtime.sampling.gbnf_lark import gbnf_as_lark
from runtime.sampling.lark import LarkGrammar
from runtime.sampling.masks import CallChoice
from runtime.sampling.schema import closed, enforceable

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

log = logging.getLogger(__name__)
WHITESPACE = r"[ ]?|\n[ ]{0,16}"  # between JSON's parts; without a limit a model can continue forever
# Messages of the library that are no sentences
REASONS = {
    "NoExtension": "no text follows it",
    "Too many items": "too many of its parts may be next at the same place",
    "items; max is": "too many of its parts may be next at the same place",
    "too big": "it is too large",
    "fuel": "it is too large",
    "too many expressions": "it is too large",
    "Maximum number of": "it is too large",
}
# Of the library's work at one token, some tenths of a second; twice as much is its default
STEP_FUEL = 100_000
MOST_SECONDS = 0.5  # of computing a mask between two tokens
BUDGET, SHARE = 2.0, 0.1  # seconds of computing all masks of a reply, or so many per token if that is more
NO_CONTROL = ControlTokens()
KINDS = ("json_object", "json_schema", "regex", "lark", "gbnf")


@dataclass(frozen=True, slots=True)
class Grammar:
    """A kind out of KINDS, and the schema or grammar as text (empty for json_object).

    `calls` is auto or required if it constrains calls of the conversation's tools, or either if the answer is
    constrained as well. An upstream server gets that instead of the grammar. `begins` is the text of a call behind its
    mark, up to the function's name.
    """

    kind: str
    text: str = ""
    calls: str = ""
    begins: str = ""


def compile_grammar(
    grammar: Grammar,
    tokenizer: LLTokenizer,
    control: ControlTokens = NO_CONTROL,
    is_unwanted: Callable[[], bool] = never,
) -> LLMatcher:
    """Return the compiled grammar for a vocabulary, whose control tokens are text only where `control` lacks them.

    Raises SettingsError with the library's explanation, or unsupported keywords, if it is invalid, or if compiling it
    takes too long, or takes long and `is_unwanted` returns True meanwhile.
    """
    from llguidance import LLMatcher, LLParserLimits

    try:
        source = translate(grammar, LLMatcher, control)
    except ValueError as error:
        what = {"gbnf": "GBNF", "lark": "Lark"}.get(grammar.kind, "JSON")
        raise SettingsError(f"The {grammar.kind} is not valid {what}: {error}. Correct it and try again.") from error
    except RecursionError as error:
        raise SettingsError(f"The {grammar.kind} nests too deeply. Simplify it and try again.") from error
    if too_much := too_slow(grammar.text, source, is_unwanted):
        raise SettingsError(f"The {grammar.kind} cannot be compiled: {too_much}. Simplify it and try again.")
    matcher = LLMatcher(tokenizer, source, log_level=0, limits=LLParserLimits(step_lexer_fuel=STEP_FUEL))
    if matcher.is_error() and grammar.kind == "json_schema":
        check_schema(json.loads(grammar.text))  # the schema as sent, so that the error names its own keywords
    if matcher.is_error():
        raise SettingsError(
            f"The {grammar.kind} cannot be used: {reason_of(matcher.get_error())}. Correct it and try again."
        )
    return matcher


def taken_tokens(grammar: Grammar, control: ControlTokens) -> frozenset[int]:
    """Return the ids of the control tokens that a Lark grammar uses; none for other kinds."""
    return LarkGrammar(grammar.text, control).tokens if grammar.kind == "lark" else frozenset()


def reason_of(text: str) -> str:
    """Return the reason in an error message of the library as a clause, without the grammar that it repeats."""
    reason = text.strip().split("\n")[0][:LONGEST_REASON].rstrip(". ")
    return next((clause for sign, clause in REASONS.items() if sign in reason), reason)


def translate(grammar: Grammar, matcher: Any, control: ControlTokens) -> str:
    """Return the grammar in llguidance's own notation. Raises ValueError for invalid JSON or GBNF."""
    if grammar.kind == "regex":
        return str(matcher.grammar_from_regex(grammar.text))
    if grammar.kind == "lark":
        return str(matcher.grammar_from_lark(LarkGrammar(grammar.text, control).with_tokens()))
    if grammar.kind == "gbnf":
        return str(matcher.grammar_from_lark(gbnf_as_lark(grammar.text, control)))
    if grammar.kind not in KINDS:
        raise SettingsError(f"There is no grammar kind '{grammar.kind}'. Known: {', '.join(KINDS)}.")
    schema = json.loads(grammar.text) if grammar.kind == "json_schema" else {"type": "object"}
    if not isinstance(schema, (dict, bool)):
        raise ValueError("a schema is an object")
    if isinstance(schema, dict):
        check_size(schema)
        schema, left_out = enforceable(closed(schema))
        if left_out:
            log.warning("The json_schema is enforced except for %s.", " and ".join(left_out))
    return str(matcher.grammar_from_json_schema(json.dumps(schema), defaults={"whitespace_pattern": WHITESPACE}))


class GrammarMask:
    """The grammar of one reply, queried token by token. Implements TokenMask.

    With `begins`, the tokens [n] that begin a call behind its mark, a reply is over after a complete call where the
    model would write anything but another one.
    """

    def __init__(
        self,
        matcher: LLMatcher,
        n_vocab: int,
        ends: frozenset[int] = frozenset(),
        token_text: Callable[[int], str] = str,
        begins: NDArray[np.int64] | None = None,
    ) -> None:
        self.n_vocab, self._ends, self._token_text, self._begins = n_vocab, ends, token_text, begins
        self._fresh, self._matcher = matcher, matcher.deep_copy()
        self._only_ends = np.zeros(n_vocab, dtype=np.bool_)
        self._only_ends[list(ends)] = True
        self._words = np.zeros((n_vocab + 31) // 32, dtype=np.int32)
        self._reply: list[int] = []  # the reply's tokens
        self._path: list[int] = []  # further tokens that the matcher has consumed
        self._masks: dict[Path, NDArray[np.bool_]] = {}  # of this step: target and drafter query the same paths
        self._seconds = 0.0  # of computing masks
        self.allowed(())  # most of the work of a large grammar, which is done here beside the steps of others
        self._seconds = 0.0

    def begin(self, reply: Tokens) -> None:
        """Set the reply's tokens [n], which extend those of the last call.

        Raises SettingsError for a token that the grammar does not allow; an end-of-turn token after a complete reply is
        not part of it.
        """
        new = reply[len(self._reply) :].tolist()
        if new:
            self._masks.clear()
        if not self._go_to(tuple(new)):
            token = new[len(self._path)]
            if token not in self._ends or not self._matcher.is_accepting():
                raise SettingsError(
                    f"The reply has {self._token_text(token)!r}, which its grammar does not allow there. Rewrite the "
                    "grammar and try again."
                )
        self._reply += self._path
        self._path = []

    def allowed(self, path: Path) -> NDArray[np.bool_]:
        """Return the mask [n_vocab] of tokens that may follow the reply and `path`.

        If `path` leaves the grammar, it allows only tokens that end the turn. Drafts may contain such a path, but the
        target gives its first invalid token no probability, so none of it is accepted.
        """
        mask = self._masks.get(path)
        if mask is None:
            mask = self._masks[path] = self._compute() if self._go_to(path) else self._only_ends
        return mask

    def choice(self, path: Path) -> CallChoice | None:
        """See TokenMask; None also in text that may come before calls."""
        if self._begins is None or 2 * np.count_nonzero(self.allowed(path)) > self.n_vocab:
            return None
        is_complete = self._go_to(path) and self._matcher.is_accepting()
        return CallChoice(self._only_ends, self._begins) if is_complete else None

    def forced(self) -> Path:
        """Return the tokens that must come next, as the tokenization of forced text; a model may tokenize it
        differently.
        """
        return tuple(self._matcher.compute_ff_tokens()) if self._go_to(()) else ()

    def _go_to(self, path: Path) -> bool:
        """Move the matcher to the state after the reply and `path`; return whether the grammar allows all of it."""
        shared = common_start(self._path, path)
        if shared < len(self._path):
            self._matcher.rollback(len(self._path) - shared)
        n_more = self._matcher.try_consume_tokens(list(path[shared:])) if shared < len(path) else 0
        self._path = list(path[: shared + n_more])
        self._check()
        return len(self._path) == len(path)

    def _compute(self) -> NDArray[np.bool_]:
        began = time.thread_time()
        self._matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)
        self._check()
        self._check_time(time.thread_time() - began)
        return np.unpackbits(self._words.view(np.uint8), bitorder="little")[: self.n_vocab].view(np.bool_)

    def _check_time(self, seconds: float) -> None:
        """Raise SettingsError if a mask, or all of them together, took too long, as other replies wait for them."""
        self._seconds += seconds
        if (self._reply and seconds > MOST_SECONDS) or self._seconds > max(BUDGET, SHARE * (len(self._reply) + 1)):
            raise SettingsError("The grammar takes too long to follow at each token. Simplify it and try again.")

    def _check(self) -> None:
        """Raise SettingsError if the grammar is too complex for the library; the next path uses a new matcher."""
        if not self._matcher.is_error():
            return
        reason = reason_of(self._matcher.get_error())
        self._matcher, self._path = self._fresh.deep_copy(), []
        self._matcher.try_consume_tokens(self._reply)
        raise SettingsError(f"The grammar cannot be followed: {reason}. Simplify it and try again.")
