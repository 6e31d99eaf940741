"""/infill for editors: the text at the cursor, given the text before and after it."""

from __future__ import annotations

from app.server.bounds import Few, Text
from app.server.endpoint import generation_endpoint
from app.server.fields import RequestModel
from app.server.llamacpp.completion import LlamaCppRequest
from app.server.llamacpp.completion_response import LlamaCppBody
from app.server.task import CompletionTask
from runtime.engine import Engine, Infill


class ExtraFile(RequestModel):
    """Text from elsewhere that may help."""

    text: Text
    filename: str | None = None


class InfillRequest(LlamaCppRequest):
    """The body of a request to /infill: `prompt` is what stands between the prefix and the cursor."""

    input_prefix: Text
    input_suffix: Text
    input_extra: Few[ExtraFile] | None = None
    prompt: Text | None = None

    def task(self, engine: Engine) -> CompletionTask:
        """Return the task for the engine. Raises SettingsError and ApiError."""
        files = tuple((extra.filename or "", extra.text) for extra in self.input_extra or ())
        prompt = Infill(self.input_prefix + (self.prompt or ""), self.input_suffix, files)
        return self.task_for(lambda engine: prompt, engine, is_short=True)


ENDPOINT = generation_endpoint("/infill", InfillRequest, LlamaCppBody)
