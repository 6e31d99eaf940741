"""Tries unknown heads, targets and vision encoders in a process of their own, because llama.cpp ends the process on
most bad files.

The result is cached for these files and this version of the library. `python -m runtime.loading.probing TARGET [FILE]`
is that process: it drafts a token with a head, or looks at a picture with an encoder, or prints what is wrong in one
line.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from runtime.backends import library
from runtime.backends.contexts import open_backend
from runtime.backends.heads.head import HeadBackend
from runtime.backends.heads.llama_heads import AssistantBackend, MtpBackend
from runtime.backends.model import IdsOnly, LlamaModel
from runtime.backends.vision import VisionEncoder
from runtime.core.backend import OnProgress
from runtime.core.children import Child, end_with_parent
from runtime.core.draft import Draft, Tokens
from runtime.core.errors import HeadError, ModelError
from runtime.core.memory import MemoryReader
from runtime.loading.heads import head_context, head_facts
from runtime.loading.options import Options
from runtime.loading.pass_timing import usual_threads
from runtime.loading.profile_cache import ProfileCache, fingerprint
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.heads import TRIED_WITH, is_tried
from runtime.models.mtp import is_apart
from runtime.models.own_heads import is_own
from runtime.models.projector import is_projector

REFUSED = 20  # exit code after printing what is wrong
ELSEWHERE = 1, -9  # exit codes of an error in Python, and of a process that the system ended for lack of memory
MAX_SECONDS, POLL_SECONDS = 120.0, 0.05  # seconds: time limit, and interval between checks
N_CTX, N_ROWS, N_BATCH = 256, 5, 64
TEXT: Tokens = np.arange(5, 21, dtype=np.int32)


def must_try(target: ModelFacts, head: ModelFacts) -> bool:
    """Return whether this combination was never tried; `head` is the target where its own layers draft. Heads that are
    computed here need no trial.
    """
    if is_own(head):
        return False
    return library.release() != TRIED_WITH or (head is not target and not is_tried(head, target))


def check(target: Path, head: Path | None, on_progress: OnProgress) -> None:
    """Try them, or use the cached result; without a head, the target's own layers draft.

    Raises HeadError, and KeyboardInterrupt if `on_progress` returned False.
    """
    memo = memo_of(target, head)
    if not isinstance(memo.read().get("ended"), str):
        require_room(target)
    raise_unless_fine(memo, target, head, on_progress)


def check_encoder(target: Path, encoder: Path, on_progress: OnProgress) -> None:
    """Try a vision encoder with its target, which is loaded already, so there is room for it.

    Raises HeadError, and KeyboardInterrupt if `on_progress` returned False.
    """
    raise_unless_fine(memo_of(target, encoder), target, encoder, on_progress)


def memo_of(target: Path, other: Path | None) -> ProfileCache:
    """Return where the result of a trial is kept."""
    own = fingerprint(other) if other else ""
    return ProfileCache(fingerprint(target, "probe", own, library.version()))


def raise_unless_fine(memo: ProfileCache, target: Path, other: Path | None, on_progress: OnProgress) -> None:
    """Try files unless the result is known. Raises HeadError and KeyboardInterrupt."""
    kept = memo.read()
    if not isinstance(kept.get("ended"), str):
        kept = {"ended": ended(target, other, on_progress)}
        memo.write(kept)
    if kept["ended"]:
        raise HeadError(f"{described(target, other)} {kept['ended']}")


def require_room(target: Path) -> None:
    """Check that the memory-mapped weights fit into free memory, or each pass would read the disk. Raises HeadError."""
    wanted, free = ModelFacts(read_model_header(target)).n_bytes, [pool.free for pool in MemoryReader()().pools]
    if wanted > min(free, default=wanted):
        raise HeadError(
            f"{target.name} has to be tried with it first, for which {wanted:,} bytes of memory must be free"
        )


def described(target: Path, head: Path | None) -> str:
    """Return a description of the trial, as the beginning of a sentence."""
    what = f"{head.name} with {target.name}" if head else f"the drafting layer of {target.name}"
    return f"{what} was tried in a process of its own, where llama.cpp {library.release()}"


def ended(target: Path, head: Path | None, on_progress: OnProgress) -> str:
    """Return how llama.cpp ended the process, in words; "" where it worked.

    Raises as `check` does, also where something else ended the process, which may not happen again.
    """
    process = Child(
        "runtime.loading.probing", *filter(None, (target, head)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, env={"GGML_NO_BACKTRACE": "1"},
    )  # fmt: skip
    try:
        wait(process, target, head, on_progress)
    finally:
        process.kill()
        output, _ = process.communicate()
    if process.returncode == REFUSED:
        raise HeadError(output.decode("utf8", "replace").strip())
    if process.returncode in ELSEWHERE:
        raise HeadError(f"{described(target, head)} failed ({how(process.returncode)})")
    return f"ended the process ({how(process.returncode)})" if process.returncode else ""


def wait(process: Child, target: Path, head: Path | None, on_progress: OnProgress) -> None:
    """Wait until the process ends by itself. Raises KeyboardInterrupt, HeadError."""
    deadline = time.monotonic() + MAX_SECONDS
    while process.poll() is None:
        if not on_progress("draft", 0.0):
            raise KeyboardInterrupt
        if time.monotonic() > deadline:
            raise HeadError(f"{described(target, head)} took more than {MAX_SECONDS:.0f} seconds")
        time.sleep(POLL_SECONDS)


def how(code: int) -> str:
    """Return the exit code in words, as a signal where it is one."""
    return f"signal {-code}" if code < 0 else f"code {code:#x}"


def draft_something(target: Path, head: Path | None) -> None:
    """Load both on the processor alone, and run them as replies do. Raises ModelError."""
    library.leave_gpus()
    with ExitStack() as stack:
        model = LlamaModel(target, gpu_layers=0, exact=True, with_mtp=head is None)
        stack.callback(model.close)
        backend = open_backend(model, min(N_CTX, model.n_ctx_train), N_ROWS, N_BATCH)
        stack.callback(backend.close)
        drafting: HeadBackend | AssistantBackend
        if head is None:
            drafting = MtpBackend(backend, 1, N_ROWS - 1)
        else:
            facts = head_facts(head, ModelFacts(read_model_header(target)), backend)
            ids = IdsOnly(facts.architecture, facts.n_vocab) if facts.n_vocab else None
            weights = LlamaModel(head, gpu_layers=0, ids=ids, facts=facts, is_head=True, with_mtp=is_apart(facts))
            stack.callback(weights.close)
            drafting = head_context(backend, weights, facts, Options(max_k=N_ROWS - 1))
        stack.callback(drafting.close)
        text: Tokens = TEXT % backend.n_vocab
        backend.forward(text)
        for n in (1, 2):
            context = np.append(text, text[:n]).astype(np.int32)
            drafting.forward(context)
            backend.forward(context, Draft((1, 2)))


def look_at_something(target: Path, encoder: Path) -> None:
    """Load both on the processor alone, and encode a picture. Raises ModelError."""
    library.leave_gpus()
    with ExitStack() as stack:
        model = LlamaModel(target, gpu_layers=0, exact=True)
        stack.callback(model.close)
        eyes = VisionEncoder(encoder, model, usual_threads(), uses_gpu=False, warms_up=False)
        stack.callback(eyes.close)
        held = eyes.place(plain_picture())
        eyes.embed(held.ids, lambda: False).result()


def plain_picture(side: int = 64) -> bytes:
    """Return the file of a black picture, `side` pixels wide and high."""
    n_bytes = 3 * side**2
    header = "<2sIHHIIiiHHIIiiII", b"BM", 54 + n_bytes, 0, 0, 54, 40, side, side, 1, 24, 0, 0, 1, 1, 0, 0
    return struct.pack(*header) + bytes(n_bytes)


def try_out(target: Path, other: Path | None) -> None:
    """Run a target with its head, its own layers or its vision encoder. Raises ModelError."""
    if other and is_projector(ModelFacts(read_model_header(other))):
        look_at_something(target, other)
    else:
        draft_something(target, other)


if __name__ == "__main__":
    end_with_parent()
    try:
        try_out(Path(sys.argv[1]), Path(sys.argv[2]) if sys.argv[2:] else None)
    except ModelError as error:
        print(error)
        sys.exit(REFUSED)
