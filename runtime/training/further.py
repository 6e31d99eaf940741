"""Trains a head on windows: they are texts for `refine`, for a few minutes in one thread.

Knows windows; refining.py knows how a head is trained.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.training.adapting import AdaptationJob
from runtime.training.extra import TrainingError
from runtime.training.refining import refine
from runtime.training.samples import Text
from runtime.training.trainer import BATCH_TOKENS, Schedule

RATE = 6e-4  # a loss of earlier skill is found by the measurement
STEPS, MAX_EPOCHS = 80, 24  # fewer steps teach little; more epochs over few texts teach those texts only
SECONDS = 600.0


def train_further(job: AdaptationJob) -> None:
    """Write the new head. Raises TrainingError, ModelError."""
    texts = [Text(each.tokens, max(1, each.begin)) for each in job.windows]
    if refine(job.target, job.head, texts, job.new, schedule(texts), job.seed, work=job.work) is None:
        raise TrainingError("Too few drafts were rejected to learn from. More replies bring more.")


def schedule(texts: Sequence[Text]) -> Schedule:
    """Return a schedule with enough epochs over the texts for about STEPS steps."""
    n_batches = max(1, sum(len(each.tokens) for each in texts) // BATCH_TOKENS)
    return Schedule(min(MAX_EPOCHS, -(-STEPS // n_batches)), RATE, seconds=SECONDS)
