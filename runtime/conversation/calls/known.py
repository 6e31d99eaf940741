"""Lists forms of calls that no template writes: Hermes' form, which can be described in words, and those of models
whose templates take earlier calls as text.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from runtime.conversation.calls.form import JSON, PYTHON, TYPES, CallForm, TaggedArguments, ValueStyle
from runtime.conversation.calls.parser import reads_back
from runtime.conversation.calls.probing import found_form
from runtime.conversation.calls.schemas import Function
from runtime.conversation.chat_template import ChatTemplate
from runtime.conversation.past_calls import CallFields
from runtime.core.errors import TemplateError

BEGIN, END = "<tool_call>", "</tool_call>"
HERMES = CallForm(
    f'{BEGIN}\n{{"name": "', '", "arguments": ', f"}}\n{END}", f'}}\n{END}\n{BEGIN}\n{{"name": "', trigger=BEGIN
)
DESCRIBED = replace(HERMES, past=None)
GRANITE = CallForm(
    '<|tool_call|>[{"name": "', '", "arguments": ', "}]", '}, {"name": "', trigger="<|tool_call|>", past=None
)
PYTHONIC = TaggedArguments(
    "", ", ", {kind: ValueStyle("=", "", JSON if kind in ("string", "number") else PYTHON) for kind in TYPES}
)
LFM2 = CallForm(
    "<|tool_call_start|>[", "(", ")]<|tool_call_end|>", "), ", PYTHONIC, trigger="<|tool_call_start|>", past=None
)
# Text in the source of templates that offer tools and write no calls
SIGNS = {"<|tool_call|>": GRANITE, "List of tools: ": LFM2, BEGIN: DESCRIBED}


@lru_cache(maxsize=16)
def form_of(source: str) -> CallForm | None:
    """Return the form of calls for a chat template, or None if it supports no tools or its form is unknown."""
    if "tools" not in source and "tool_calls" not in source:
        return None
    try:
        found = found_form(ChatTemplate(source))
    except TemplateError:
        return None
    probed = (Function("get_weather"), Function("get"))
    if found and not reads_back(found, probed, "get_weather", {"city": "Oslo", "days": 3}):
        found = None
    known = next((form for sign, form in SIGNS.items() if sign in source), None)
    if found or known is None:
        return found
    return replace(known, past=CallFields() if "tool_calls" in source else None)
