"""What is asked of an engine as the body of a request to another server; what cannot be asked there is refused.

Knows which program takes what; sends nothing.
"""

from __future__ import annotations

import json
import math
from typing import Any

from runtime.core.errors import SettingsError
from runtime.engine.engine import Ask
from runtime.sampling.grammar import Grammar
from runtime.sampling.sampler import Sampling
from runtime.upstream.server import OURS, SGLANG, Server
from runtime.upstream.words import END, Conversation

CHAT, TEXT = "/chat/completions", "/completions"
CHOICES: dict[str, dict[str, Any]] = {"auto": {}, "required": {"tool_choice": "required"}}
PREDICTING = (OURS, "")  # programs that take a prediction: others may refuse what they do not know


def path_of(prompt: Conversation | str) -> str:
    """Where a prompt of that form is sent."""
    return TEXT if isinstance(prompt, str) else CHAT


def body_of(ask: Ask, prompt: Conversation | str, server: Server) -> dict[str, Any]:
    """The body. Raises SettingsError."""
    body: dict[str, Any] = {"model": server.model, "stream": True, "stream_options": {"include_usage": True}}
    if isinstance(prompt, str):
        body["prompt"] = prompt
    else:
        body |= conversation_fields(prompt, server)
    if ask.max_tokens:  # where a prompt is only read, the reply is given up when it has been
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


def conversation_fields(prompt: Conversation, server: Server) -> dict[str, Any]:
    """Messages, tools, and what is said to the template."""
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
    """How tokens are chosen, as far as the server can be told. Raises SettingsError for biases."""
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
    if sampling.logit_bias:
        fields |= bias_fields(sampling, server)
    return fields


def bias_fields(sampling: Sampling, server: Server) -> dict[str, Any]:
    """Only that a reply must not end can be said without the ids of tokens. Raises SettingsError."""
    if server.takes_more and all(bias == (END, -math.inf) for bias in sampling.logit_bias):
        return {"ignore_eos": True}
    raise SettingsError("logit_bias names tokens, whose ids only the server knows that has the model. Leave it out.")


def form_fields(grammar: Grammar | None, is_text: bool, server: Server) -> dict[str, Any]:
    """What the reply must look like. Raises SettingsError."""
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
        f"{grammar.kind}: another server has the model, which takes a JSON schema in a chat as the form of a reply, "
        "and not this. Use one, or a model of this machine."
    )


def response_format(grammar: Grammar) -> dict[str, Any]:
    """As OpenAI's interface has it. Raises SettingsError for a schema that is none."""
    if grammar.kind == "json_object":
        return {"type": "json_object"}
    try:
        schema = json.loads(grammar.text)
    except ValueError as error:
        raise SettingsError(f"The json_schema is not valid JSON: {error}. Mend it and ask again.") from error
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema, "strict": True}}


def logprob_fields(ask: Ask, is_text: bool, server: Server) -> dict[str, Any]:
    """Which log probabilities are wanted. Raises SettingsError."""
    if ask.n_logprobs is None:
        return {}
    if ask.after_sampling and not server.is_llama_cpp_like:
        raise SettingsError("post_sampling_probs cannot be had of the server that has the model. Leave it out.")
    after = {"post_sampling_probs": True} if ask.after_sampling else {}
    return after | ({"logprobs": ask.n_logprobs} if is_text else {"logprobs": True, "top_logprobs": ask.n_logprobs})
