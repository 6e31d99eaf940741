"""Trains a head further on rejected drafts, once: `python -m runtime.training.adapting PLACE TARGET HEAD`, in a
separate process with the lowest priority.

It trains on some windows, measures on others, and replaces the old head by the new one or discards the new one. All its
files are in the place's folder: if that was removed meanwhile, nothing remains. It prints the result in a sentence.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from runtime.core import children
from runtime.core.errors import NO_MEMORY, SlipstreamError
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.training import learned_head
from runtime.training.learned_head import Measured
from runtime.training.place import Place, clear
from runtime.training.samples import Sample
from runtime.training.windows import Windows

MAX_TRAINED, MAX_MEASURED = 192, 48  # windows, at most; the latest ones
PR_SET_PDEATHSIG = 1
# arguments: target, head, texts to learn from and to measure on, the new head's file, a seed
TrainFurther = Callable[[Path, Path, Sequence[Sample], Sequence[Sample], Path, int], Measured]


def adapt(place: Place, target: Path, original: Path, train: TrainFurther) -> str:
    """Train the current head, use the new one if it is better, and return the result in a sentence. Raises
    SlipstreamError and OSError.
    """
    with place.locked() as is_ours:
        return adapted(place, target, original, train) if is_ours else "another process trains this head"


def adapted(place: Place, target: Path, original: Path, train: TrainFurther) -> str:
    """Train as `adapt` does, with the lock of the place held."""
    number, state, before = place.number, learned_head.read(place), learned_head.current(place) or original
    windows = Windows(place.windows, ModelFacts(read_model_header(target)).n_vocab).read()
    learned = [each for each in windows if not each.is_held_out][-MAX_TRAINED:]
    apart = [each for each in windows if each.is_held_out][-MAX_MEASURED:]
    if not learned or not apart:
        return "there is too little to learn from and to measure on"
    work, seen = place.work, windows[-1].key
    new, seed = work / "new.gguf", state.n_trained + state.n_discarded
    clear(work)
    measured = train(target, before, learned, apart, new, seed)
    if not number or place.number != number:
        raise SlipstreamError("The head's training data was removed meanwhile, so nothing is kept.")
    told = f"{measured.before:.1%} of draft tokens right before, {measured.after:.1%} after"
    if measured.is_better and (learned_head.current(place) or original) == before:
        number_taken = learned_head.take(place, new, measured, len(learned), seen).current
        message = f"head {number_taken} replaced the one before: {told}"
    else:
        learned_head.discard(place, new, measured, seen)
        message = f"the new head was discarded: {told}"
    clear(work)
    return message


def give_way() -> None:
    """Give this process idle priority for the processor and the disk."""
    me = psutil.Process()
    with suppress(psutil.Error, OSError, AttributeError, ValueError):
        if sys.platform == "win32":
            me.nice(psutil.IDLE_PRIORITY_CLASS)
            me.ionice(psutil.IOPRIO_VERYLOW)
        else:
            me.nice(19)
            me.ionice(psutil.IOPRIO_CLASS_IDLE)
    if hasattr(os, "SCHED_IDLE"):
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def end_with_parent() -> None:
    """End this process when its parent ends, even while it is suspended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    children.end_with_parent()


def main(args: Sequence[str]) -> int:
    """Return the exit code: 0 if the training finished, whatever its result."""
    place, target, original = Place(Path(args[0])), Path(args[1]), Path(args[2])
    give_way()
    end_with_parent()
    try:
        from runtime.training.run import train_further

        print(adapt(place, target, original, train_further), flush=True)
    except ImportError as error:
        print(f"training needs {error.name}: pip install 'slipstream[train]'", flush=True)
    except SlipstreamError as error:
        print(error, flush=True)
    except MemoryError:
        print(NO_MEMORY, flush=True)
    except RuntimeError as error:  # from PyTorch, also when memory runs out
        print(f"PyTorch failed ({str(error).splitlines()[0]})", flush=True)
    except OSError as error:
        print(f"{error.filename or 'a file'} could not be used ({error.strerror})", flush=True)
    else:
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
