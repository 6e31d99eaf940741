"""The fields that Ollama's requests share: options, formats and thinking, translated to the other interfaces."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from app.server.bounds import Object
from app.server.fields import RequestModel, Whole
from app.server.generation import Stops
from app.server.llamacpp.completion import NoImages
from app.server.openai.common import JsonSchema, ResponseFormat

SHARED = (
    "temperature", "top_k", "top_p", "min_p", "seed", "presence_penalty", "frequency_penalty", "repeat_penalty",
    "repeat_last_n", "stop",
)  # fmt: skip


class OllamaOptions(RequestModel):
    """How tokens are sampled. Others, such as `num_ctx` and `num_gpu`, are set by the server."""

    temperature: float | None = None
    top_k: Whole | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: Whole | None = None
    num_predict: Whole | None = None  # below 0: no limit
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repeat_penalty: float | None = None
    repeat_last_n: Whole | None = None
    stop: Stops | None = None


def none_for_empty(value: object) -> object:
    """Return None for "", which some clients send for no format."""
    return None if value == "" else value


class OllamaRequest(RequestModel):
    """The fields that the requests for text share."""

    model: str = ""
    stream: bool | None = None  # absent: yes
    format: Annotated[Literal["json"] | Object | None, BeforeValidator(none_for_empty)] = None
    options: OllamaOptions | None = None
    think: bool | str | None = None  # or an effort: low, medium, high
    images: NoImages = None

    def settings(self) -> dict[str, Any]:
        """Return the fields that requests for text share in OpenAI's interface."""
        options = self.options or OllamaOptions()
        shared = {name: value for name in SHARED if (value := getattr(options, name)) is not None}
        limit = options.num_predict
        return shared | {
            "max_tokens": None if limit is None or limit < 0 else limit,
            "stream": self.stream is not False,
            "response_format": self._response_format(),
        }

    def thoughts(self) -> dict[str, Any]:
        """Return the fields of a chat about thinking."""
        effort = self.think if isinstance(self.think, str) else None
        return {"enable_thinking": True if effort else self.think, "reasoning_effort": effort}

    def _response_format(self) -> ResponseFormat | None:
        if isinstance(self.format, dict):
            return ResponseFormat(type="json_schema", json_schema=JsonSchema(schema=self.format))
        return ResponseFormat(type="json_object") if self.format else None
