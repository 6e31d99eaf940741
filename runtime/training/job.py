"""Describes a training for a target, and the folder with its files for resuming. Knows headers; loads no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from runtime.core.errors import ModelError
from runtime.core.memory import MemoryReader
from runtime.loading.profile_cache import fingerprint
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.heads import SHOWN
from runtime.models.trimmed import n_few
from runtime.training.conditions import TrainingError
from runtime.training.place import trainings
from runtime.training.samples import MAX_TEXT_TOKENS, bytes_per_token

HEAD, MODEL = "head", "model"
OWN_KINDS = "hydra", "medusa"  # heads that are computed here
TYPICAL_ACCEPTANCE = {
    HEAD: 0.6,
    MODEL: 0.4,
}  # shares of draft tokens accepted from such drafts after an hour's training
N_READ, MAX_VOCAB, HEAD_DIM, N_LAYERS = 3, 16_384, 64, 2
OWN_MEMORY = 700_000_000  # bytes for torch and a batch
MAX_HELD_OUT = 24  # held-out prompts, at most
FEWEST = 500  # tokens; fewer are not worth a training
PER_TRAINED = 8  # bytes on disk per trained weight, in a checkpoint and the next one


@dataclass(frozen=True, slots=True)
class Job:
    """The settings of one training. It learns from `n_tokens` tokens, and may keep `n_bytes` on disk meanwhile."""

    target: Path
    kind: str  # "" until the most promising kind is known
    prompts: tuple[str, ...]  # to learn from
    apart: tuple[str, ...]  # held out
    # the request, as far as it distinguishes this training from others: kind, prompts or "chats"
    order: tuple[str, ...]
    n_tokens: int = 60_000
    n_bytes: int = 2_000_000_000
    epochs: int = 8
    seed: int = 0
    threads: int = 1
    device: str = "cpu"

    @property
    def folder(self) -> Path:
        """The folder of its files for resuming, unique to the target's file and the settings. Raises OSError."""
        asked = sha256(repr((self.order, self.n_tokens, self.n_bytes, self.epochs)).encode()).hexdigest()
        return trainings() / fingerprint(self.target, asked, self.seed, self.threads, self.device)

    @property
    def most_tokens(self) -> int:
        """Number of tokens to learn from, limited by the disk budget."""
        facts = ModelFacts(read_model_header(self.target))
        room = max(0, self.n_bytes - self.overhead_bytes(facts))
        return min(self.n_tokens, room // bytes_per_token(n_values(facts, self.kind)))

    def overhead_bytes(self, facts: ModelFacts) -> int:
        """Return the bytes of all other files: held-out texts, the overshoot of the last text, checkpoints, the draft's
        file.
        """
        texts = (min(len(self.apart), MAX_HELD_OUT) + 1) * MAX_TEXT_TOKENS * bytes_per_token(n_values(facts, self.kind))
        return texts + PER_TRAINED * n_trained(facts, self.kind) + 2 * n_weights(facts, self.kind)

    @property
    def why_no_room(self) -> str:
        """The message that the disk budget is too small; "" if it is sufficient."""
        if self.most_tokens >= min(self.n_tokens, FEWEST):
            return ""
        facts = ModelFacts(read_model_header(self.target))
        n = self.overhead_bytes(facts) + FEWEST * bytes_per_token(n_values(facts, self.kind))
        return (
            f"Training a draft for this model keeps at least {n / 1e9:.2f} GB on disk meanwhile. Allow that much with "
            "`--disk`."
        )

    def check(self, work: Path) -> None:
        """Raise ModelError if the target's file is not the one that the training in `work` was started with."""
        try:
            is_same = self.folder == work.parent
        except OSError:
            is_same = False
        if not is_same:
            raise ModelError(
                f"{self.target.name} was changed or removed while a draft was trained for it. Run the command again: "
                "the new file's training starts from the beginning."
            )


def n_values(facts: ModelFacts, kind: str) -> int:
    """Return the number of values of a token's states that a draft of that kind reads."""
    n_read = {HEAD: N_READ, MODEL: 0}.get(kind, 1)
    return n_read * facts.own("embedding_length")


def n_words(facts: ModelFacts) -> int:
    """Return the size of a draft's output vocabulary: all tokens, or some of a large vocabulary."""
    return min(MAX_VOCAB, n_few(facts.n_vocab)) or facts.n_vocab


def layers_read(facts: ModelFacts) -> tuple[int, ...]:
    """Return the layers of a target whose inputs a head reads."""
    n = facts.n_trunk_layers
    return n // 3, 2 * n // 3, n - 1


def why_no_head(facts: ModelFacts) -> str:
    """Return the reason why no head can be trained for a target, as a clause; "" if one can."""
    if facts.architecture not in SHOWN:
        return f"llama.cpp does not show the layers of the architecture {facts.architecture!r}"
    if facts.n_trunk_layers < N_READ + 1:
        return f"it has only {facts.n_trunk_layers} layers"
    return "" if facts.own("embedding_length") % HEAD_DIM == 0 else "its width is not a multiple of 64"


def draft_width(facts: ModelFacts) -> int:
    """Return the width of a small draft model."""
    return max(HEAD_DIM, facts.own("embedding_length") // 3 // HEAD_DIM * HEAD_DIM)


def n_weights(facts: ModelFacts, kind: str) -> int:
    """Return the approximate number of weights that one draft token reads."""
    width, words = facts.own("embedding_length"), n_words(facts)
    if kind in OWN_KINDS:  # floats take four times as long to read as the quantized weights of the others
        return 4 * n_trained(facts, kind)
    if kind == HEAD:
        return 14 * width**2 + words * width
    narrow = draft_width(facts)
    return N_LAYERS * 13 * narrow**2 + facts.n_vocab * narrow


def n_trained(facts: ModelFacts, kind: str) -> int:
    """Return the approximate number of trained weights: no embedding of a head, some rows of a draft model's."""
    width, narrow = facts.own("embedding_length"), draft_width(facts)
    if kind in OWN_KINDS:
        return 6 * width**2 + n_words(facts) * width
    return 14 * width**2 if kind == HEAD else N_LAYERS * 13 * narrow**2 + n_words(facts) * narrow


def seconds_of_guess(facts: ModelFacts, kind: str, plain: float) -> float:
    """Return the expected seconds per draft token, given the `plain` seconds of a one-token pass, by the bytes read."""
    return plain * 1.07 * n_weights(facts, kind) / max(1, facts.n_bytes_per_token)


def most_promising(facts: ModelFacts, passes: list[float]) -> str:
    """Return the kind with the highest expected gain, given the seconds of passes over 1, 2, ... rows."""
    if why_no_head(facts):
        return MODEL
    found = {
        kind: gain(extended([share], len(passes)), seconds_of_guess(facts, kind, passes[0]), passes)
        for kind, share in TYPICAL_ACCEPTANCE.items()
    }
    return max(found, key=found.__getitem__)


def require_memory(facts: ModelFacts, kind: str) -> None:
    """Raise TrainingError if there is not enough free memory."""
    needed = OWN_MEMORY + 20 * (n_trained if kind in OWN_KINDS else n_weights)(facts, kind)
    free = min((pool.free for pool in MemoryReader()().pools), default=needed)
    if free < needed:
        raise TrainingError(
            f"Training a draft for this model takes about {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are "
            "free. Close other programs, or train for a smaller model."
        )


def gain(shares: Sequence[float], drafted: float, passes: Sequence[float]) -> float:
    """Return the speed relative to plain decode with the best number of draft tokens; 1 if none pays.

    `shares` are the acceptance probabilities of each draft token, given those before it; `drafted` the seconds of one;
    `passes` the seconds of target passes over 1, 2, ... rows.
    """
    best, expected, survives = 1.0, 1.0, 1.0
    for k, (share, seconds) in enumerate(zip(shares, passes[1:], strict=False), 1):
        survives *= share
        expected += survives
        best = max(best, expected * passes[0] / (k * drafted + seconds))
    return best


def extended(right: Sequence[float], n: int) -> list[float]:
    """Return acceptance probabilities of `n` draft tokens: the measured ones, with the last one repeated."""
    return [*right, *[right[-1] if right else 0.0] * n][:n]
