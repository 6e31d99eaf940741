"""/slots: the running tasks, without their text. Disabled unless the server was started with `--slots`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, RootModel
from starlette.requests import Request
from starlette.types import ASGIApp

from app.server.endpoint import Endpoint
from app.server.errors import ApiError
from app.server.llamacpp.generation_settings import UNLIMITED, sampling_settings
from app.server.scheduled_task import ScheduledTask
from app.server.served import ServedEngine
from app.server.task import CompletionTask
from app.server.wire import Event, JSONBody


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
        "params": sampling_settings(asked.sampling) if isinstance(asked, CompletionTask) else {},
        "next_token": [{"has_next_token": n_remain != 0, "n_remain": n_remain, "n_decoded": task.n_decoded}],
    }


ENDPOINT = Endpoint("/slots", show, response=Slots)
