"""Why nothing can be drafted for a model, by its header: decided before anything is loaded or looked for."""

from __future__ import annotations

from runtime.models.cache_layout import SNAPSHOTTED, STATEFUL, layers_named
from runtime.models.facts import ModelFacts


def why_undraftable(facts: ModelFacts) -> str:
    """The reason, to follow a name and a colon; "" where drafts are possible."""
    if facts.is_embedder:
        return "it is an embedding model and writes no text"
    if facts.architecture not in SNAPSHOTTED and layers_named(facts, STATEFUL):
        return f"llama.cpp cannot take back what a draft leaves in the recurrent layers of {facts.architecture} models"
    return ""
