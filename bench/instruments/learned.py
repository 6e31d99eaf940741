"""Learning heads for benchmarks: one planted as if it had been learned from another, and a process that computes like a
training of the head.
"""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

from bench.instruments.planted_heads import plant_eagle
from bench.instruments.shapes import Shape
from runtime.engine.loaded import LoadedEngine
from runtime.learning.place import place_of
from runtime.learning.trainer import TrainerProcess
from runtime.learning.versions import Measured, Versions
from runtime.models.registry import Pair

ENDLESS = "from runtime.training.adapting import *\ngive_way(); end_with_parent()\nwhile True: pass"
IDLE = 0.3  # seconds of training between two replies


def plant_learned(pair: Pair, shape: Shape, acceptance: float | tuple[float, float], change: int) -> Pair:
    """Return the planted pair with a head that is never right instead of the draft model, and a head learned from it
    with that acceptance, as in `plant`.

    The target must have that shape.
    """
    original = plant_eagle(pair, shape, 0.0)
    found = plant_eagle(pair, shape, acceptance, change=change, name="learned")
    assert original.draft is not None
    assert found.draft is not None
    place = place_of(original.target, original.draft)
    place.make(original.target, original.draft)
    new = Path(shutil.move(found.draft, place.work / "new.gguf"))
    Versions(place).take(new, Measured(0.0, 1.0, 1, 1.0, 0.0), 1, "")
    return replace(original, learn=True, name=pair.name)


def begin_training(engine: LoadedEngine) -> TrainerProcess:
    """Start a process that computes without end in place of trainings; it is paused until `rest`, and during every
    reply.

    Raises SystemExit if the engine's head does not learn.
    """
    if engine._learner is None:
        raise SystemExit(f"The head does not learn here: {engine.status.learning}.")
    training = engine._learner._training = TrainerProcess([sys.executable, "-c", ENDLESS])
    training.start()
    training.hold()
    return training


def rest(engine: LoadedEngine, training: TrainerProcess) -> None:
    """Run the work between two replies: store the rejected tokens, and let the training compute for a moment."""
    engine.tend()
    training.resume()
    time.sleep(IDLE)
