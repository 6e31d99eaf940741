"""The learned head of a pair, and the learner that trains it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from runtime.core.errors import ModelError
from runtime.learning.conditions import LEARNS
from runtime.learning.learner import BackgroundLearner, learner_of
from runtime.learning.place import place_of
from runtime.learning.versions import Versions
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.heads import begins_for
from runtime.models.registry import Pair


def learned_head(pair: Pair) -> Path | None:
    """Return the learned head that replaces a pair's own, even where none can be trained now; None without one."""
    if pair.learn and pair.draft is not None and begins_for(pair.draft) == LEARNS:
        with suppress(OSError):
            return Versions(place_of(pair.target, pair.draft)).current()
    return None


def opened_learner(pair: Pair) -> BackgroundLearner | None:
    """Return the learner of a pair whose draft is a head; None without a draft or where a file cannot be read."""
    if pair.draft is None:
        return None
    with suppress(OSError, ModelError):
        facts = ModelFacts(read_model_header(pair.target))
        return learner_of(pair.target, pair.draft, facts.n_vocab)
    return None
