"""A model as lists describe it, and what it is for: by its engine if it is loaded, else by its file's header."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Literal

from app.reply_text import BEGIN
from app.server.served_model import ServedModel
from app.server.wire import Event
from runtime.core.errors import SlipstreamError
from runtime.engine import Engine
from runtime.engine.pooling import Pooling
from runtime.models.content import Status, content_of, status_of
from runtime.models.facts import ModelFacts, quantization
from runtime.models.header import read_model_header
from runtime.models.pooling import PoolingKind


class Described:
    """What can be told of a model. `facts` are None if a remote server has it, or its file cannot be read."""

    def __init__(self, model: ServedModel) -> None:
        self.name = model.name
        self.engine = model.engine
        pair = self.engine.pair if self.engine else model.pair
        assert pair is not None
        self.pair, self.facts = pair, None if pair.upstream else facts_of(pair.target)

    @property
    def purpose(self) -> Purpose:
        """What it is for."""
        return purpose(self.engine) if self.engine else purpose_of_file(self.facts)

    @property
    def n_bytes(self) -> int:
        """The size of its weights."""
        return self.engine.facts.n_bytes if self.engine else self.facts.n_bytes if self.facts else 0

    @property
    def n_context(self) -> int:
        """Tokens of its context, or those that it was trained on while it is not loaded."""
        return self.engine.facts.n_ctx if self.engine else self.facts.n_context if self.facts else 0

    @property
    def n_trained(self) -> int:
        """Tokens of the longest context that it was trained on."""
        return self.engine.facts.n_ctx_train if self.engine else self.facts.n_context if self.facts else 0

    @property
    def template(self) -> str:
        """The source of its chat template."""
        return self.engine.facts.template if self.engine else self.facts.template if self.facts else ""

    @property
    def quantization(self) -> str:
        """The name of its quantization; "" where it is unknown."""
        return quantization(self.facts) if self.facts else ""

    @property
    def size(self) -> str:
        """Its number of parameters, in billions or millions; "" where it is unknown."""
        n = self.facts.n_parameters if self.facts else 0
        return "" if not self.facts else f"{n / 1e9:.1f}B" if n >= 1e9 else f"{n / 1e6:.2f}M"

    @property
    def kind(self) -> Event:
        """Its family, size and quantization, as Ollama and llama.cpp tell them."""
        family = self.facts.architecture if self.facts else ""
        return {
            "parent_model": "", "format": "gguf", "family": family, "families": [family] if family else [],
            "parameter_size": self.size, "quantization_level": self.quantization,
        }  # fmt: skip

    @property
    def digest(self) -> str:
        """A key of its name and content. A whole file is slow to read."""
        content = self.engine.facts.content if self.engine else content_of(self.pair.target) if self.facts else ""
        return hashlib.sha256(f"{self.name} {content}".encode()).hexdigest()

    @property
    def changed(self) -> str:
        """The modification time of its file, or the start of 1970 if there is none."""
        return moment(self.pair.target.stat().st_mtime if self.facts else 0)

    @property
    def abilities(self) -> list[str]:
        """Its capabilities, as Ollama names them. Tools always work: a model whose template lacks them has them
        described in its prompt.
        """
        if self.purpose != "completion":
            return [self.purpose]
        fills = can_infill(self.engine, self.facts)
        thinks = BEGIN in self.template
        return ["completion", "tools", *["insert"] * fills, *["thinking"] * thinks, *["vision"] * self.sees]

    @property
    def sees(self) -> bool:
        """Whether it sees images, as far as that is known while it is not loaded."""
        return bool(self.engine and self.engine.facts.vision)


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
    engine = model.engine
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


def moment(seconds: float | None = None) -> str:
    """Return a time in seconds since 1970, by default now, in RFC 3339 format."""
    at = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return at.isoformat().replace("+00:00", "Z")
