"""Decides from its header whether a model can be drafted for, before anything is loaded or searched."""

from __future__ import annotations

from runtime.models.cache_layout import SNAPSHOTTED, STATEFUL, layers_named
from runtime.models.facts import ModelFacts


def why_undraftable(facts: ModelFacts) -> str:
    """Return the reason as a clause after a name and a colon; "" if drafts are possible."""
    if facts.is_embedder:
        return "it is an embedding model and writes no text"
    if facts.architecture not in SNAPSHOTTED and layers_named(facts, STATEFUL):
        return f"llama.cpp cannot take back what a draft leaves in the recurrent layers of {facts.architecture} models"
    return ""
