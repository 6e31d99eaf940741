"""Converts an engine's request into the body of a request to another server; refuses settings not supported there.

Knows the settings that each program accepts; sends nothing.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

from runtime.conversation.window import chat_prompt_of, without_oldest
from runtime.core.errors import SettingsError
from runtime.core.rare_sampling import RARE_NAMES, USUAL, RareSampling
from runtime.engine.engine import Ask
from runtime.sampling.grammar import Grammar
from runtime.sampling.settings import Sampling
from runtime.upstream.server import LLAMA_CPP, OURS, SGLANG, VLLM, Server
from runtime.upstream.words import END, Conversation

CHAT, TEXT = "/chat/completions", "/completions"
CHOICES: dict[str, dict[str, Any]] = {"auto": {}, "required": {"tool_choice": "required"}}
PREDICTING = (OURS, "")  # programs that accept a prediction: others may refuse unknown fields


def path_of(prompt: Conversation | str) -> str:
    """Return the path of the interface for a prompt of that form."""
    return TEXT if isinstance(prompt, str) else CHAT


def body_of(ask: Ask, prompt: Conversation | str, server: Server) -> dict[str, Any]:
    """Return the body of a request. Raises SettingsError."""
    body: dict[str, Any] = {"model": server.model, "stream": True, "stream_options": {"include_usage": True}}
    if isinstance(prompt, str):
        body["prompt"] = prompt
    else:
        body |= conversation_fields(prompt, server)
    if ask.max_tokens:  # 0: the prompt is only read, and then the reply is cancelled
        body["max_tokens"] = ask.max_tokens
    if server.is_llama_cpp_like:
        body["return_progress"] = True
    body |= sampling_fields(ask.sampling, server) | form_fields(ask.grammar, isinstance(prompt, str), server)
    body |= logprob_fields(ask, isinstance(prompt, str), server)
    if ask.thoughts and server.is_llama_cpp_like:
        body["thinking_budget_tokens"] = ask.thoughts.n_tokens
    if ask.prediction and server.program in PREDICTING and not isinstance(prompt, str):
        body["prediction"] = {"type": "content", "content": ask.prediction}
    return body


def without_oldest_turn(ask: Ask) -> Ask | None:
    """Return a request without its oldest turn; None if none may be left out."""
    talk = chat_prompt_of(ask.prompt) if ask.when_full == "drop-oldest" else None
    kept = without_oldest(talk.messages) if talk else []
    if talk is None or len(kept) == len(talk.messages):
        return None
    return replace(ask, prompt=replace(talk, messages=tuple(kept)))


def conversation_fields(prompt: Conversation, server: Server) -> dict[str, Any]:
    """Return the fields of messages, tools, and variables of the template."""
    messages, fields = [*prompt.messages], dict[str, Any]()
    if prompt.begun:
        messages.append({"role": "assistant", "content": prompt.begun})
        if server.takes_more:
            fields |= {"continue_final_message": True, "add_generation_prompt": False}
    variables = {name: value for name, value in prompt.variables.items() if (name, value) != ("enable_thinking", True)}
    if variables and server.takes_more:
        fields["chat_template_kwargs"] = variables
    elif effort := variables.get("reasoning_effort"):
        fields["reasoning_effort"] = effort
    return fields | {"messages": messages} | ({"tools": list(prompt.tools)} if prompt.tools else {})


def sampling_fields(sampling: Sampling, server: Server) -> dict[str, Any]:
    """Return the fields for sampling that the server accepts. Raises SettingsError for biases."""
    fields: dict[str, Any] = {"temperature": sampling.temperature, "top_p": sampling.top_p}
    if sampling.seed is not None:
        fields["seed"] = sampling.seed
    for name in ("frequency_penalty", "presence_penalty"):
        if value := getattr(sampling, name):
            fields[name] = value
    if server.takes_more:
        fields |= {
            "top_k": sampling.top_k if sampling.top_k > 0 else 0 if server.is_llama_cpp_like else -1,
            "min_p": sampling.min_p,
        }
        if sampling.repetition_penalty != 1:
            name = "repeat_penalty" if server.is_llama_cpp_like else "repetition_penalty"
            fields[name] = sampling.repetition_penalty
    if server.is_llama_cpp_like and sampling.penalises:
        fields["repeat_last_n"] = sampling.penalty_last_n
    if sampling.logit_bias:
        fields |= bias_fields(sampling, server)
    return fields | rare_fields(sampling.rare, server)


def rare_fields(rare: RareSampling, server: Server) -> dict[str, Any]:
    """Return the fields for rare samplers that are used. Raises SettingsError for one that the server does not have."""
    changed = {name: getattr(rare, name) for name in RARE_NAMES if getattr(rare, name) != getattr(USUAL, name)}
    taken = {OURS: RARE_NAMES, LLAMA_CPP: [name for name in RARE_NAMES if name != "min_tokens"], VLLM: ["min_tokens"]}
    if lacking := next((name for name in changed if name not in taken.get(server.program, ())), None):
        raise SettingsError(f"{lacking} is not available from the server that has the model. Leave it out.")
    return changed


def bias_fields(sampling: Sampling, server: Server) -> dict[str, Any]:
    """Return the field for a reply that must not end. Raises SettingsError for other biases, which need token ids."""
    if server.takes_more and all(bias == (END, -math.inf) for bias in sampling.logit_bias):
        return {"ignore_eos": True}
    raise SettingsError("logit_bias names token ids, which only the server with the model knows. Leave it out.")


def form_fields(grammar: Grammar | None, is_text: bool, server: Server) -> dict[str, Any]:
    """Return the fields for the form of the reply. Raises SettingsError."""
    if grammar is None:
        return {}
    if grammar.calls in CHOICES:
        return CHOICES[grammar.calls]
    if grammar.kind == "gbnf" and server.is_llama_cpp_like:
        return {"grammar": grammar.text}
    if grammar.kind == "regex" and server.program == SGLANG:
        return {"regex": grammar.text}
    if grammar.kind in ("json_object", "json_schema") and not is_text:
        return {"response_format": response_format(grammar)}
    if grammar.kind == "json_schema" and server.is_llama_cpp_like:
        return {"json_schema": json.loads(grammar.text)}
    raise SettingsError(
        f"{grammar.kind}: the server that has the model does not support this form of a reply, only a JSON schema in a "
        "chat. Use one, or a model of this machine."
    )


def response_format(grammar: Grammar) -> dict[str, Any]:
    """Return the form of the reply in OpenAI's interface. Raises SettingsError for an invalid schema."""
    if grammar.kind == "json_object":
        return {"type": "json_object"}
    try:
        schema = json.loads(grammar.text)
    except ValueError as error:
        raise SettingsError(f"The json_schema is not valid JSON: {error}. Correct it and try again.") from error
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema, "strict": True}}


def logprob_fields(ask: Ask, is_text: bool, server: Server) -> dict[str, Any]:
    """Return the fields for log probabilities. Raises SettingsError."""
    if ask.n_logprobs is None:
        return {}
    if ask.after_sampling and not server.is_llama_cpp_like:
        raise SettingsError("post_sampling_probs is not available from the server that has the model. Leave it out.")
    after = {"post_sampling_probs": True} if ask.after_sampling else {}
    return after | ({"logprobs": ask.n_logprobs} if is_text else {"logprobs": True, "top_logprobs": ask.n_logprobs})
