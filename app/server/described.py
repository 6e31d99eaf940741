"""A model as lists describe it: by its engine if it is loaded, else by its file's header."""

from __future__ import annotations

import hashlib

from app.reply_text import BEGIN
from app.server.ollama.reply import moment
from app.server.purpose import Purpose, can_infill, facts_of, purpose, purpose_of_file
from app.server.served_model import ServedModel
from app.server.wire import Event
from runtime.engine import Engine
from runtime.models.content import content_of
from runtime.models.facts import quantization


class Described:
    """What can be told of a model. `facts` are None if a remote server has it, or its file cannot be read."""

    def __init__(self, model: ServedModel) -> None:
        self.name = model.name
        self.engine: Engine | None = model.served.engine if model.is_loaded and model.served else None
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
