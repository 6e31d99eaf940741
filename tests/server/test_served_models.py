"""A server's models: which of them is loaded, which goes for another, and who waits."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from app.server.errors import ApiError
from runtime.core.errors import ModelError
from tests.support.machine import MIB, Machine, models_on, pair, run, use, using
from tests.support.waiting import wait_for


def test_a_model_is_loaded_when_it_is_named_and_stays_while_there_is_memory() -> None:
    async def work() -> None:
        machine = Machine(3)
        models = models_on(machine, "a", "b", "c")
        for name in ("b", "a", "b", "B:latest", ""):
            await use(models, name)
        assert machine.opened == ["b", "a"]
        assert [each.state for each in models.models] == ["loaded", "loaded", "unloaded"]

    run(work())


def test_the_one_used_least_recently_goes_for_another_one() -> None:
    async def work() -> None:
        machine = Machine(2)
        models = models_on(machine, "a", "b", "c")
        for name in ("a", "b", "a", "c"):
            await use(models, name)
        assert machine.names == ["a", "c"]

    run(work())


def test_what_did_not_fit_together_is_not_tried_at_every_swap() -> None:
    async def work() -> None:
        machine = Machine(1)
        models = models_on(machine, "a", "b")
        for name in ("a", "b", "a", "b", "a"):
            await use(models, name)
        assert machine.opened == ["a", "b", "b", "a", "a", "b", "a"]  # each once in vain

    run(work())


def test_a_model_that_answers_is_not_ended_for_another_one_which_waits() -> None:
    async def work() -> None:
        machine = Machine(1)
        models = models_on(machine, "a", "b")
        await use(models, "a")
        with using(models.models[0]):
            waiting = asyncio.ensure_future(use(models, "b"))
            behind = asyncio.ensure_future(asyncio.sleep(0.05))
            await behind
            assert machine.names == ["a"]
            assert not models.models[0].is_loaded  # what comes now waits behind the other
        await waiting
        assert machine.names == ["b"]

    run(work())


def test_requests_that_wait_for_one_model_cost_one_other_its_place() -> None:
    async def work() -> None:
        machine = Machine(2)
        models = models_on(machine, "a", "b", "c")
        await use(models, "b")
        await use(models, "a")
        with using(models.models[0]):
            await asyncio.gather(*(use(models, "c") for _ in range(3)))
            assert machine.names == ["a", "c"]

    run(work())


def test_who_leaves_while_waiting_costs_nobody_a_model() -> None:
    async def work() -> None:
        machine = Machine(1)
        models = models_on(machine, "a", "b")
        await use(models, "a")
        with using(models.models[0]):
            waiting = asyncio.ensure_future(use(models, "b"))
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await use(models, "a")
        assert machine.opened.count("a") == 1
        assert machine.names == ["a"]

    run(work())


def test_a_model_that_stays_goes_for_none() -> None:
    async def work() -> None:
        machine = Machine(1)
        models = models_on(machine, "a", "b")
        models.models[0].stays = True
        await use(models, "a")
        with pytest.raises(ApiError, match="The model 'b' cannot be loaded: b needs 100 MiB of memory"):
            await use(models, "b")
        assert machine.names == ["a"]

    run(work())


def test_a_model_that_cannot_be_loaded_is_not_tried_at_every_request() -> None:
    async def work() -> None:
        machine = Machine(2)
        machine.broken.add("a")
        models = models_on(machine, "a", "b")
        for _ in range(3):
            with pytest.raises(ApiError, match=r"The model 'a' cannot be loaded: its file is damaged\."):
                await use(models, "a")
        assert machine.opened == ["a"]
        assert models.models[0].state == "unloaded"
        await use(models, "b")

    run(work())


def test_a_request_that_comes_while_others_load_keeps_a_model_whose_time_is_over() -> None:
    async def work() -> None:
        machine = Machine(2)
        models = models_on(machine, "a", keep_alive=0.01)
        await use(models, "a")
        models.expire(models.models[0])
        async with models._turn:  # another model is being loaded
            await asyncio.sleep(0.05)
            await use(models, "a")
        await asyncio.sleep(0.05)
        assert machine.names == ["a"]

    run(work())


def test_a_model_leaves_when_its_time_is_over_unless_a_request_comes() -> None:
    async def work() -> None:
        machine = Machine(2)
        models = models_on(machine, "a", keep_alive=0.1)
        await use(models, "a")
        models.expire(models.models[0])
        await asyncio.sleep(0.05)
        with using(models.models[0]):
            await asyncio.sleep(0.1)
        assert machine.names == ["a"]
        models.expire(models.models[0])
        await asyncio.to_thread(wait_for, lambda: not machine.names)

    run(work())


def test_an_engine_that_is_lost_is_loaded_again_at_the_next_request() -> None:
    async def work() -> None:
        machine = Machine(2)
        models = models_on(machine, "a")
        await use(models, "a")
        machine.loaded[0].lose(ModelError("It is gone."))
        await use(models, "a")
        assert machine.opened == ["a", "a"]

    run(work())


def test_each_that_waits_has_the_model_once_before_another_takes_its_place() -> None:
    async def work() -> None:
        machine = Machine(1)
        models = models_on(machine, "a", "b")
        had = list[str]()

        async def ask(name: str) -> None:
            model = await models.known.find(name)
            await asyncio.ensure_future(models.hold(model))
            had.append(name)
            model.release()

        await asyncio.gather(*(ask(name) for name in "ababab"))
        assert sorted(had) == ["a"] * 3 + ["b"] * 3
        assert len(machine.opened) <= 3 * len(had)

    run(work())


def test_only_so_many_may_wait_for_a_model() -> None:
    async def work() -> None:
        machine = Machine(1)
        models = models_on(machine, "a", "b")
        models._max_waiting = 2
        await use(models, "a")
        with using(models.models[0]):
            waiting = [asyncio.ensure_future(use(models, "b")) for _ in range(2)]
            await asyncio.sleep(0.05)
            with pytest.raises(ApiError, match="2 requests wait for a model"):
                await use(models, "b")
        await asyncio.gather(*waiting)

    run(work())


def test_a_server_that_stops_loads_nothing_more() -> None:
    async def work() -> None:
        machine = Machine(1)
        models = models_on(machine, "a", "b")
        await use(models, "a")
        models.stop()
        with pytest.raises(ApiError, match="shutting down"):
            await use(models, "b")
        await asyncio.to_thread(models.join)
        assert machine.names == []

    run(work())


def test_a_draft_by_its_own_name_takes_what_is_mapped_once() -> None:
    """The pair's 40 MiB are its own, its other 60 are mapped, and the draft's 100 are to be free beside what is not."""

    async def work(draft: str) -> list[str]:
        machine = Machine(1.5)
        models = models_on(machine, "pair", "draft")
        models.models[0].pair = replace(pair("pair"), draft=Path(draft))
        await use(models, "pair")
        await use(models, "draft")
        return machine.names

    assert asyncio.run(work("draft.gguf")) == ["pair", "draft"]
    assert asyncio.run(work("other.gguf")) == ["draft"]


def test_drafts_of_idle_models_go_before_any_model_does() -> None:
    async def work() -> None:
        machine = Machine(5)
        machine.n_drafts = {"a": 80 * MIB, "b": 80 * MIB, "c": 80 * MIB}
        models = models_on(machine, "a", "b", "c", "d")
        for name in ("a", "b", "c"):
            await use(models, name)
        with using(models.models[0]):
            await use(models, "d")
            assert machine.names == ["a", "b", "c", "d"]
            assert [each.n_drafts // MIB for each in machine.loaded] == [80, 0, 0, 0]

    run(work())
