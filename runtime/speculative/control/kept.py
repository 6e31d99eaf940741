"""State of a controller stored for the next start: acceptance of each drafter, pass times, and the probe credit.

Plain data; knows no files.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

from runtime.speculative.control.controller import Controller

CREDIT = "seconds for probes"  # key of the probe credit; other keys are drafters' names and PASSES
PASSES = "passes"


def kept(controller: Controller) -> dict[str, Any]:
    """Return the state to store."""
    learned = {name: state.acceptances.state() for name, state in controller.states.known.items()}
    passes = controller.passes.costs.state()
    return {**learned, CREDIT: controller.exploration.credit} | ({PASSES: passes} if passes else {})


def restore(controller: Controller, known: dict[str, Any]) -> None:
    """Restore the result of `kept`; parts that cannot be read are ignored."""
    for name, state in controller.states.items():
        try:
            state.acceptances.restore(known[name])
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
    with suppress(TypeError, ValueError, OverflowError):
        controller.passes.costs.restore(known.get(PASSES, ()))
    credit = known.get(CREDIT)
    if isinstance(credit, float) and math.isfinite(credit):
        controller.exploration.restore(credit)
    controller.valuation.reset()
