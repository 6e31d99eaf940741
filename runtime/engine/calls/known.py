"""Forms of calls that no template writes: Hermes' form, which can be described in words, and those of models whose
templates take earlier calls as text.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from runtime.core.errors import TemplateError
from runtime.engine.calls.form import JSON, PYTHON, TYPES, CallForm, TaggedArguments, ValueStyle
from runtime.engine.calls.probing import found_form
from runtime.engine.chat_template import ChatTemplate
from runtime.engine.past_calls import CallFields

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
# What a template that offers tools and writes no calls has in its source
SIGNS = {"<|tool_call|>": GRANITE, "List of tools: ": LFM2, BEGIN: DESCRIBED}


@lru_cache(maxsize=16)
def form_of(source: str) -> CallForm | None:
    """Return the form of calls that a chat template stands for; None for one that knows neither tools nor calls."""
    if "tools" not in source and "tool_calls" not in source:
        return None
    try:
        found = found_form(ChatTemplate(source))
    except TemplateError:
        return None
    known = next((form for sign, form in SIGNS.items() if sign in source), None)
    if found or known is None:
        return found
    return replace(known, past=CallFields() if "tool_calls" in source else None)
