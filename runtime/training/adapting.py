"""Trains a head further on rejected drafts, once: `python -m runtime.training.adapting PLACE TARGET HEAD BYTES`, in a
separate process with the lowest priority.

It trains on some windows, measures on others, and replaces the old head by the new one or discards the new one. All its
files are in the place's folder: if that was removed meanwhile, nothing remains. It prints the result in a sentence.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from runtime.core.errors import NO_MEMORY, ModelError, SlipstreamError
from runtime.learning.place import Place
from runtime.learning.versions import Measured, Versions
from runtime.learning.windows import Window, Windows
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header

MIN_RISE = 0.01  # minimum rise of the share of accepted draft tokens
SURE = 2.0  # minimum rise in standard errors
MAX_TRAINED, MAX_MEASURED = 192, 48  # windows, at most; the latest ones
PR_SET_PDEATHSIG = 1
CHECK_SECONDS = 1.0  # seconds between two checks of this process's memory


class AdaptationJob(NamedTuple):
    """The inputs and outputs of one training."""

    target: Path
    head: Path  # to start from
    windows: Sequence[Window]
    new: Path  # the file to write
    work: Path  # the folder for temporary files
    seed: int


Train = Callable[[AdaptationJob], None]
# arguments: target, head before, head after, windows
Measure = Callable[[Path, Path, Path, Sequence[Window]], Measured]


class ForgottenError(SlipstreamError):
    """The data that the head was trained on has been wiped."""


def is_better(measured: Measured) -> bool:
    """Whether the new head is better with statistical certainty."""
    return measured.after - measured.before >= MIN_RISE and measured.rise > SURE * measured.error


def adapt(place: Place, target: Path, original: Path, train: Train, measure: Measure) -> str:
    """Train the current head and return the result in a sentence. Raises SlipstreamError and OSError."""
    with place.locked() as is_ours:
        if not is_ours:
            return "another process trains this head"
        return trained(place, target, original, train, measure)


def trained(place: Place, target: Path, original: Path, train: Train, measure: Measure) -> str:
    """Train as `adapt` does, with the lock of the place held."""
    number, versions = place.number, Versions(place)
    windows = Windows(place.windows, ModelFacts(read_model_header(target)).n_vocab).read()
    learned = [each for each in windows if not each.is_held_out][-MAX_TRAINED:]
    held_out = [each for each in windows if each.is_held_out][-MAX_MEASURED:]
    if not learned or not held_out:
        return "there is too little to learn from and to measure on"
    state, before, work = versions.read(), versions.current() or original, place.work
    new = work / "new.gguf"
    clear(work)
    train(AdaptationJob(target, before, learned, new, work, state.n_trained + state.n_discarded))
    measured = measure(target, before, new, held_out)
    if not number or place.number != number:
        raise ForgottenError("The head's training data was removed meanwhile, so nothing is kept.")
    told = f"{measured.before:.1%} of draft tokens accepted before, {measured.after:.1%} after"
    if is_better(measured) and (versions.current() or original) == before:
        version = versions.take(new, measured, len(learned), windows[-1].key)
        message = f"version {version.number} replaced version {version.parent}: {told}"
    else:
        versions.discard(new, measured, windows[-1].key)
        message = f"the new head was discarded: {told}"
    clear(work)
    return message


def clear(work: Path) -> None:
    """Remove the temporary files of a training."""
    for path in work.glob("*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def give_way() -> None:
    """Give this process idle priority for the processor and the disk."""
    me = psutil.Process()
    with suppress(psutil.Error, OSError, AttributeError):
        if sys.platform == "win32":
            me.nice(psutil.IDLE_PRIORITY_CLASS)
        else:
            me.nice(19)
    if hasattr(os, "SCHED_IDLE"):
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(psutil.Error, OSError, AttributeError, ValueError):
        if sys.platform == "win32":
            me.ionice(psutil.IOPRIO_VERYLOW)
        else:
            me.ionice(psutil.IOPRIO_CLASS_IDLE)


def end_with_parent() -> None:
    """End this process when its parent ends, even while it is suspended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    def wait() -> None:
        with suppress(OSError):
            while os.read(0, 1):
                pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def keep_below(n_bytes: int) -> None:
    """End this process when it uses more than `n_bytes` of memory."""

    def watch() -> None:
        me = psutil.Process()
        while True:
            time.sleep(CHECK_SECONDS)
            info = me.memory_info()
            if (taken := info.rss - getattr(info, "shared", 0)) > n_bytes:
                print(
                    f"it took {taken / 1e9:.1f} GB of memory, more than the expected {n_bytes / 1e9:.1f} GB", flush=True
                )
                os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main(args: Sequence[str]) -> int:
    """Return the exit code: 0 if the training finished, whatever its result."""
    place, target, original, n_bytes = Place(Path(args[0])), Path(args[1]), Path(args[2]), int(args[3])
    give_way()
    end_with_parent()
    keep_below(n_bytes)
    try:
        from runtime.training.further import train_further
        from runtime.training.measuring import measure

        print(adapt(place, target, original, train_further, measure), flush=True)
    except ImportError as error:
        print(f"training needs {error.name}: pip install 'slipstream[train]'", flush=True)
    except (ModelError, SlipstreamError) as error:
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
