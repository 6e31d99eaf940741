"""POST /slots/{id}: save, restore or erase a cached conversation, if the server has a folder for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import BaseModel
from starlette.requests import Request
from starlette.types import ASGIApp

from app.server.endpoint import Endpoint
from app.server.errors import ApiError
from app.server.fields import RequestModel, read_body
from app.server.scheduled_task import ScheduledTask
from app.server.served import ServedEngine
from app.server.wire import Event, JSONBody
from runtime.engine import Chunk, Engine
from runtime.engine.stats import Stats

MADE = {"save": ("n_saved", "n_written", "save_ms"), "restore": ("n_restored", "n_read", "restore_ms")}


class SlotRequest(RequestModel):
    """The body; erasing needs no name."""

    filename: str = ""


class SlotAnswer(BaseModel):
    """What was done: tokens and bytes under the names of the action."""

    id_slot: int


class SlotTask:
    """An action on a cached conversation between replies. Implements EngineTask."""

    prompt_field, max_tokens, max_decode_seconds = "filename", None, None
    n_prompt = 0
    changes: tuple[str, ...] = ()

    def __init__(self, action: str, number: int, path: str) -> None:
        self.asked, self.done, self.seconds = (action, number, path), (0, 0), 0.0

    def work(self, engine: Engine, should_stop: Callable[[], bool]) -> Iterator[Chunk]:
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
    if not number.isdecimal() or int(number) >= served.n_slots:
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


ENDPOINT = Endpoint("/slots/{id}", act, SlotRequest, SlotAnswer)
