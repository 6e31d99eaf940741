"""What a model is for: writing text, also into a gap, making vectors, or ranking. Known from its file's header before
it is loaded.

Must not know HTTP.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

from app.server.served_model import ServedModel
from runtime.core.errors import SlipstreamError
from runtime.engine import Engine
from runtime.engine.pooling import Pooling
from runtime.models.content import Status, status_of
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.pooling import PoolingKind

Purpose = Literal["completion", "embedding", "reranking"]
Need = Purpose | Literal["insert"]  # what a request needs of a model; insert: text for a gap
NEXT_BEST: dict[Need, Need] = {"insert": "completion", "embedding": "completion"}  # which may do where none is for it


def purpose(engine: Engine) -> Purpose:
    """Return what a loaded model is for."""
    return purpose_of(engine.facts.pooling)


def purpose_of(pooling: Pooling | PoolingKind | None) -> Purpose:
    """Return what a model is for that pools so; None: it writes text."""
    return "completion" if pooling is None else "reranking" if pooling.ranks else "embedding"


def purpose_of_file(facts: ModelFacts | None) -> Purpose:
    """Return what a model is for by the facts of its file; one without any counts as one that writes text."""
    return purpose_of(facts.pooling if facts and facts.pooling.is_pooled else None)


def meets(model: ServedModel, need: Need) -> bool:
    """Return whether a model is for that, loaded or not. It may read a file's header."""
    engine = model.served.engine if model.is_loaded and model.served else None
    facts = facts_of(model.pair.target) if not engine and model.pair and not model.pair.upstream else None
    if need == "insert":
        return can_infill(engine, facts)
    return (purpose(engine) if engine else purpose_of_file(facts)) == need


def can_infill(engine: Engine | None, facts: ModelFacts | None) -> bool:
    """Return whether a model can write into a gap, by its engine if it is loaded, else by its file."""
    return engine.facts.can_infill if engine else bool(facts and facts.fills_gaps)


def facts_of(path: Path) -> ModelFacts | None:
    """Return the facts in a file's header; None where that cannot be read."""
    try:
        return read_facts(path, status_of(path))
    except (SlipstreamError, OSError):
        return None


@lru_cache(maxsize=256)
def read_facts(path: Path, status: Status) -> ModelFacts:
    """Return the facts in a file's header, which is slow to read. Raises SlipstreamError and OSError."""
    return ModelFacts(read_model_header(path))
