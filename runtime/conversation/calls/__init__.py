"""Handles tool calls in each model's own format: finds the form from the chat template, and builds the grammar that
constrains a reply and the parser that reads it.

Knows text, chat templates and JSON schemas. Must not know token ids or a protocol.
"""

from runtime.conversation.calls.bare import BareCalls
from runtime.conversation.calls.form import CallForm, JsonArguments
from runtime.conversation.calls.grammar import MAY_THINK, NO_THOUGHT, OPEN_THOUGHT, call_grammar
from runtime.conversation.calls.harmony import HarmonyParser, harmony_grammar, is_harmony
from runtime.conversation.calls.known import DESCRIBED, HERMES, form_of
from runtime.conversation.calls.parser import CallParser
from runtime.conversation.calls.past import past_turns, plain_tools
from runtime.conversation.calls.schemas import Function
from runtime.conversation.calls.stream import ReplyPart

__all__ = [
    "DESCRIBED",
    "HERMES",
    "MAY_THINK",
    "NO_THOUGHT",
    "OPEN_THOUGHT",
    "BareCalls",
    "CallForm",
    "CallParser",
    "Function",
    "HarmonyParser",
    "JsonArguments",
    "ReplyPart",
    "call_grammar",
    "form_of",
    "harmony_grammar",
    "is_harmony",
    "past_turns",
    "plain_tools",
]
