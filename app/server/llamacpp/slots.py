"""/slots: the running tasks, without their text. /slots/{id}: a cached conversation is saved, restored or erased."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, RootModel
from starlette.requests import Request
from starlette.types import ASGIApp

from app.server.endpoint import model_endpoint
from app.server.errors import ApiError
from app.server.fields import RequestModel, read_body
from app.server.llamacpp.completion import UNLIMITED, sampling_settings
from app.server.scheduled_task import ScheduledTask
from app.server.served import ServedEngine
from app.server.task import CompletionTask, StepTask
from app.server.wire import Event, JSONBody
from runtime.engine import Chunk, Engine
from runtime.engine.stats import Stats

MADE = {"save": ("n_saved", "n_written", "save_ms"), "restore": ("n_restored", "n_read", "restore_ms")}


class NextToken(BaseModel):
    """The progress of a reply. -1 tokens remain if there is no limit."""

    has_next_token: bool
    n_remain: int
    n_decoded: int


class Slot(BaseModel):
    """A place for a request; the task's number is -1 where there is none."""

    id: int
    id_task: int
    n_ctx: int
    speculative: bool
    is_processing: bool
    params: dict[str, Any]
    next_token: list[NextToken]


class Slots(RootModel[list[Slot]]):
    """The body of /slots."""


async def show(served: ServedEngine, request: Request) -> ASGIApp:
    """Answer with the body of Slots. Raises ApiError if slots are hidden."""
    if not served.policy.shows_slots:
        raise ApiError(501, "Slots are not shown. Start the server with `slipstream serve --slots` to see them.")
    engine, active = served.engine, served.active
    places: list[ScheduledTask | None] = [*active, *[None] * (served.n_slots - len(active))]
    common = {"n_ctx": engine.facts.n_ctx, "speculative": engine.facts.can_draft}
    return JSONBody([{"id": i} | common | state(task) for i, task in enumerate(places)])


def state(task: ScheduledTask | None) -> Event:
    """Return the state of a slot."""
    if task is None:
        idle = {"has_next_token": False, "n_remain": UNLIMITED, "n_decoded": 0}
        return {"id_task": -1, "is_processing": False, "params": {}, "next_token": [idle]}
    asked, limit = task.task, task.task.max_tokens
    n_remain = UNLIMITED if limit is None else limit - task.n_decoded
    return {
        "id_task": task.number,
        "is_processing": True,
        "params": sampling_settings(asked.ask.sampling) if isinstance(asked, CompletionTask) else {},
        "next_token": [{"has_next_token": n_remain != 0, "n_remain": n_remain, "n_decoded": task.n_decoded}],
    }


class SlotRequest(RequestModel):
    """The body; erasing needs no name."""

    filename: str = ""


class SlotAnswer(BaseModel):
    """What was done: tokens and bytes under the names of the action."""

    id_slot: int


class SlotTask(StepTask):
    """An action on a cached conversation between replies."""

    prompt_field = "filename"

    def __init__(self, action: str, number: int, path: str) -> None:
        self.asked, self.done, self.seconds = (action, number, path), (0, 0), 0.0

    def steps(self, engine: Engine, should_stop: Callable[[], bool]) -> Iterator[Chunk]:
        """Run the action in one step."""
        began = time.perf_counter()
        self.done = engine.conversation(*self.asked)
        self.seconds = time.perf_counter() - began
        yield Chunk("", finish_reason="stop", stats=Stats())


def path_of(folder: Path, name: str) -> str:
    """Return the path of the file with that name. Raises ApiError for a name that leads out of the folder."""
    if not name or name in (".", "..") or Path(name).name != name or "\\" in name or "\0" in name or len(name) > 200:
        raise ApiError(400, "filename must be the name of a file, without a folder.", "filename")
    return str(folder / name)


async def act(served: ServedEngine, request: Request) -> ASGIApp:
    """Run the query's `action`. Raises ApiError."""
    folder, action = request.app.state.slot_folder, request.query_params.get("action", "")
    if folder is None:
        message = "Slots are not saved: this server was started without a folder for them."
        raise ApiError(501, message, code="unsupported")
    if action not in (*MADE, "erase"):
        raise ApiError(400, f"action is '{action[:40]}'. It must be save, restore or erase.", "action")
    number = request.path_params["id"]
    if not (number.isascii() and number.isdecimal()) or int(number) >= served.n_slots:
        raise ApiError(400, f"Slots have the numbers 0 to {served.n_slots - 1}.", "id_slot")
    body = await read_body(request, SlotRequest, served.engine.facts.n_ctx) if action in MADE else SlotRequest()
    path = path_of(folder, body.filename) if action in MADE else ""
    task = SlotTask(action, int(number), path)
    scheduled = ScheduledTask(task)
    served.submit(scheduled)
    await scheduled.started()
    async for _ in scheduled.chunks():
        pass
    return JSONBody({"id_slot": int(number)} | told(task, body.filename))


def told(task: SlotTask, filename: str) -> Event:
    """Return the answer in llama.cpp's format."""
    action, (n_tokens, n_bytes) = task.asked[0], task.done
    if action == "erase":
        return {"n_erased": n_tokens}
    tokens, size, milliseconds = MADE[action]
    taken = {milliseconds: round(1e3 * task.seconds, 3)}
    return {"filename": filename, tokens: n_tokens, size: n_bytes, "timings": taken}


ENDPOINT = model_endpoint("/slots", show, response=Slots)
FILES = model_endpoint("/slots/{id}", act, SlotRequest, SlotAnswer)
