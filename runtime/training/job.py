"""What is to be trained for a target, and where what it needs to go on is kept. Knows headers; loads no torch."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from runtime.core.errors import ModelError
from runtime.loading.profile_cache import fingerprint
from runtime.memory.system import MemoryReader
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.heads import SHOWN
from runtime.models.trimmed import n_few
from runtime.tools.made_drafts import trainings
from runtime.training.extra import TrainingError
from runtime.training.samples import LONGEST, bytes_per_token
from runtime.training.verdict import extended, gain

KINDS = HEAD, MODEL = "head", "model"
USUAL = {HEAD: 0.6, MODEL: 0.4}  # shares of guesses that such drafts had accepted after an hour's training
N_READ, MOST_WORDS, HEAD_DIM, N_LAYERS = 3, 16_384, 64, 2
OWN_MEMORY = 700_000_000  # bytes that torch and a batch take
MOST_APART = 24  # prompts that are held out, at most
FEWEST = 500  # tokens that are worth a training
PER_TRAINED = 24  # bytes on disk for each weight that is trained: itself and two averages, in a checkpoint and the next


@dataclass(frozen=True, slots=True)
class Job:
    """One training. `n_tokens` of texts are learned from; `n_bytes` may be kept on disk meanwhile."""

    target: Path
    kind: str  # "" until it is known what promises most
    prompts: tuple[str, ...]  # to learn from
    apart: tuple[str, ...]  # held out
    order: tuple[str, ...]  # what was asked for, as far as it tells this training from others: kind, prompts or "chats"
    n_tokens: int = 60_000
    n_bytes: int = 2_000_000_000
    epochs: int = 8
    seed: int = 0
    threads: int = 1
    device: str = "cpu"

    @property
    def folder(self) -> Path:
        """Where what it needs to go on is kept; another target's file or another order has another. Raises OSError."""
        asked = sha256(repr((self.order, self.n_tokens, self.n_bytes, self.epochs)).encode()).hexdigest()
        return trainings() / fingerprint(self.target, asked, self.seed, self.threads, self.device)

    @property
    def most_tokens(self) -> int:
        """Tokens whose samples the budget has room for, of those wanted."""
        facts = ModelFacts(read_model_header(self.target))
        room = max(0, self.n_bytes - self.n_beside(facts))
        return min(self.n_tokens, room // bytes_per_token(n_values(facts, self.kind)))

    def n_beside(self, facts: ModelFacts) -> int:
        """Bytes of all that is kept beside these: held-out texts and the end of the last one, checkpoints, the draft's
        file while it is written.
        """
        texts = (min(len(self.apart), MOST_APART) + 1) * LONGEST * bytes_per_token(n_values(facts, self.kind))
        return texts + PER_TRAINED * n_trained(facts, self.kind) + 2 * n_weights(facts, self.kind)

    @property
    def why_no_room(self) -> str:
        """What to say where the budget has room for too little; "" where it has enough."""
        if self.most_tokens >= min(self.n_tokens, FEWEST):
            return ""
        facts = ModelFacts(read_model_header(self.target))
        n = self.n_beside(facts) + FEWEST * bytes_per_token(n_values(facts, self.kind))
        return (
            f"Training a draft for this model keeps at least {n / 1e9:.2f} GB on disk meanwhile. Allow that much with "
            "`--disk`."
        )

    def check(self, work: Path) -> None:
        """Raises ModelError where the target's file is no longer the one that the training in `work` began with."""
        try:
            is_same = self.folder == work.parent
        except OSError:
            is_same = False
        if not is_same:
            raise ModelError(
                f"{self.target.name} was changed or removed while a draft was trained for it. Give the command again: "
                "the new file's training begins anew."
            )


def n_values(facts: ModelFacts, kind: str) -> int:
    """Values of a token's states that a draft of that kind reads."""
    return N_READ * facts.own("embedding_length") if kind == HEAD else 0


def n_words(facts: ModelFacts) -> int:
    """Words that a draft guesses among: all, or some of a large vocabulary."""
    return min(MOST_WORDS, n_few(facts.n_vocab)) or facts.n_vocab


def layers_read(facts: ModelFacts) -> tuple[int, ...]:
    """The layers of a target whose inputs a head reads."""
    n = facts.n_trunk_layers
    return n // 3, 2 * n // 3, n - 1


def why_no_head(facts: ModelFacts) -> str:
    """Why no head can be trained for a target, in a clause; "" where one can."""
    if facts.architecture not in SHOWN:
        return f"llama.cpp shows no layers of the architecture {facts.architecture!r}"
    if facts.n_trunk_layers < N_READ + 1:
        return f"it has only {facts.n_trunk_layers} layers"
    return "" if facts.own("embedding_length") % HEAD_DIM == 0 else "its width is no multiple of 64"


def draft_width(facts: ModelFacts) -> int:
    """Of a small draft model."""
    return max(HEAD_DIM, facts.own("embedding_length") // 3 // HEAD_DIM * HEAD_DIM)


def n_weights(facts: ModelFacts, kind: str) -> int:
    """Weights that a guess reads, roughly."""
    width, words = facts.own("embedding_length"), n_words(facts)
    if kind == HEAD:
        return 14 * width**2 + words * width
    narrow = draft_width(facts)
    return N_LAYERS * 13 * narrow**2 + facts.n_vocab * narrow


def n_trained(facts: ModelFacts, kind: str) -> int:
    """Weights that are trained, roughly; a head's words are its target's, and of a draft model's some are."""
    width, narrow = facts.own("embedding_length"), draft_width(facts)
    return 14 * width**2 if kind == HEAD else N_LAYERS * 13 * narrow**2 + n_words(facts) * narrow


def seconds_of_guess(facts: ModelFacts, kind: str, plain: float) -> float:
    """What a guess should take, where a plain pass takes `plain` seconds, by the bytes that both read."""
    return plain * 1.07 * n_weights(facts, kind) / max(1, facts.n_bytes_per_token)


def most_promising(facts: ModelFacts, passes: list[float]) -> str:
    """The kind that promises most, where passes over 1, 2, ... rows take so many seconds."""
    if why_no_head(facts):
        return MODEL
    found = {
        kind: gain(extended([share], len(passes)), seconds_of_guess(facts, kind, passes[0]), passes)
        for kind, share in USUAL.items()
    }
    return max(found, key=found.__getitem__)


def require_memory(facts: ModelFacts, kind: str) -> None:
    """Raises TrainingError where there is not enough of it."""
    needed = OWN_MEMORY + 20 * n_weights(facts, kind)
    free = min((pool.free for pool in MemoryReader()().pools), default=needed)
    if free < needed:
        raise TrainingError(
            f"Training a draft for this model takes about {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are "
            "free. Close other programs, or train for a smaller model."
        )
