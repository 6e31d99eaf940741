"""What each endpoint answers, for the OpenAPI description.

More may be said than is promised here; nothing here makes an answer.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from app.server.facts import ContentAnswer, HealthAnswer, ModelsAnswer, PromptAnswer, PropsAnswer, TokensAnswer

Finish = Literal["stop", "length", "tool_calls"]


class PromptDetails(BaseModel):
    """Of the prompt's tokens."""

    cached_tokens: int


class CompletionDetails(BaseModel):
    """Of the reply's tokens."""

    accepted_prediction_tokens: int
    rejected_prediction_tokens: int
    reasoning_tokens: int


class Usage(BaseModel):
    """Tokens, in OpenAI's words."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class Timings(BaseModel):
    """Counts and milliseconds, with llama.cpp's names where it has them."""

    prompt_n: int
    prompt_ms: float
    predicted_n: int
    predicted_ms: float
    predicted_per_second: float
    draft_n: int
    draft_n_accepted: int
    draft_ms: float
    verify_ms: float
    tokens_per_target_pass: float
    drafter: str
    fallback_reason: str | None


class FunctionCall(BaseModel):
    """Which function, and its arguments as JSON text."""

    name: str
    arguments: str


class ToolCall(BaseModel):
    """A function that the model wants called."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class LikelyToken(BaseModel):
    """A token and the logarithm of its probability."""

    id: int
    token: str
    logprob: float
    bytes: list[int]


class ChosenToken(LikelyToken):
    """A token of the reply, and those that were likeliest in its place."""

    top_logprobs: list[LikelyToken]


class ChatLogprobs(BaseModel):
    """Of a chat's reply."""

    content: list[ChosenToken]


class ReplyMessage(BaseModel):
    """What the model says."""

    role: Literal["assistant"]
    content: str | None
    tool_calls: list[ToolCall] | None = None
    reasoning_content: str | None = None


class ChatChoice(BaseModel):
    """The only reply."""

    index: Literal[0]
    message: ReplyMessage
    finish_reason: Finish
    logprobs: ChatLogprobs | None


class ChatAnswer(BaseModel):
    """Of /chat/completions."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    timings: Timings


class TextLogprobs(BaseModel):
    """Of a text's tokens, each list as long as the others."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class TextChoice(BaseModel):
    """The only text."""

    index: Literal[0]
    text: str
    finish_reason: Finish
    logprobs: TextLogprobs | None


class TextAnswer(BaseModel):
    """Of /completions."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage
    timings: Timings


class OutputText(BaseModel):
    """A part of a response's message."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any]


class OutputMessage(BaseModel):
    """A response's message."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    status: Literal["completed", "incomplete"]
    content: list[OutputText]


class ResponseAnswer(BaseModel):
    """Of /responses."""

    id: str
    object: Literal["response"]
    created_at: int
    model: str
    status: Literal["completed", "incomplete"]
    output: list[OutputMessage]
    usage: dict[str, Any]
    timings: Timings


class RootAnswer(BaseModel):
    """Of /completion and /infill; with `response_fields` only those."""

    content: str = ""
    tokens: list[int] = []
    stop: bool = True
    stop_type: Literal["limit", "eos", "word"] = "limit"
    model: str = ""
    truncated: bool = False
    tokens_predicted: int = 0
    tokens_evaluated: int = 0
    tokens_cached: int = 0
    timings: Timings | dict[str, Any] = {}
    completion_probabilities: list[ChosenToken] = []


class Vector(BaseModel):
    """An embedding, as numbers or as base64 of 32-bit floats."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingsUsage(BaseModel):
    """Tokens that were read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(BaseModel):
    """Of /embeddings."""

    object: Literal["list"]
    data: list[Vector]
    model: str
    usage: EmbeddingsUsage


class Refusal(BaseModel):
    """Why not, and which field of the request it is about."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(BaseModel):
    """Of every endpoint, for whatever is refused."""

    error: Refusal


ANSWERS: dict[str, type[BaseModel]] = {
    "/chat/completions": ChatAnswer, "/completions": TextAnswer, "/responses": ResponseAnswer,
    "/completion": RootAnswer, "/infill": RootAnswer,
    "/embeddings": EmbeddingsAnswer, "/tokenize": TokensAnswer, "/detokenize": ContentAnswer,
    "/apply-template": PromptAnswer,
    "/health": HealthAnswer, "/models": ModelsAnswer, "/props": PropsAnswer,
}  # fmt: skip
