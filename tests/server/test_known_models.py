"""The models that a server knows: which name is whose, and what comes and goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.server.described import Need
from app.server.errors import ApiError
from app.server.known_models import KnownModels
from app.server.policy import ServerPolicy
from app.server.served_model import ServedModel
from app.server.served_models import ServedModels
from runtime.models.registry import Pair
from tests.support.coder import write_coder
from tests.support.encoders import write_encoder
from tests.support.machine import Machine, models_on, pair, run, use


def test_an_unknown_name_is_refused_with_those_like_it() -> None:
    async def work() -> None:
        models = models_on(Machine(1), "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b", "smollm2")
        with pytest.raises(ApiError) as caught:
            await models.known.find("qwen")
        assert caught.value.status == 404
        assert str(caught.value) == "There is no model 'qwen' here. Served: qwen2.5-coder-0.5b, qwen2.5-coder-1.5b."
        with pytest.raises(ApiError, match=r"Served: .*, smollm2\."):
            await models.known.find("../../etc/passwd")

    run(work())


def test_models_that_come_are_found_and_those_that_go_are_forgotten() -> None:
    async def work() -> None:
        names = ["a", "b"]
        machine = Machine(3)
        known = KnownModels(
            [ServedModel(["a"], pair("a"))], lambda: [ServedModel([name], pair(name)) for name in names]
        )
        models = ServedModels(known, machine.open_pair, ServerPolicy())
        await use(models, "a")
        await use(models, "b")
        names[:] = ["c"]
        with pytest.raises(ApiError):
            await models.known.find("d")
        assert [each.name for each in models.models] == ["a", "b"]  # the disk was looked at a moment ago
        await models.known.refresh(is_asked=True)
        assert [each.name for each in models.models] == ["a", "b", "c"]  # those that are loaded stay

    run(work())


def test_without_a_name_it_is_one_for_the_purpose_the_one_used_last_first(tmp_path: Path) -> None:
    async def work() -> None:
        async def found() -> list[str]:
            return [(await known.find("", each)).name for each in needs]

        encoder, ranking = (write_encoder(tmp_path, ranks=ranks)[0] for ranks in (False, True))
        pairs = [Pair("ranking", ranking), Pair("a", Path("a.gguf")), Pair("b", Path("b.gguf"))]
        known = KnownModels([ServedModel([each.name], each) for each in pairs])
        needs: list[Need] = ["completion", "insert", "embedding", "reranking"]
        assert await found() == ["a", "a", "a", "ranking"]
        known.models[2].used_at, known.models[0].used_at = 1.0, 2.0
        assert await found() == ["b", "b", "b", "ranking"]
        coder = write_coder(tmp_path / "coder.gguf")
        known.models += [
            ServedModel(["encoder"], Pair("encoder", encoder)),
            ServedModel(["coder"], Pair("coder", coder)),
        ]
        assert await found() == ["b", "coder", "encoder", "ranking"]
        del known.models[0]
        assert (await known.find("", "reranking")).name == "b"  # which says that it ranks nothing

    run(work())
