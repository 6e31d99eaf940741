"""An engine over the toy library: all of ours from the backends up, with everything that files and kernels decide set
by a test.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import llama_cpp.llama_cpp as lib

from bench.instruments.toy import facts
from runtime.backends.adapters import LoadedAdapters
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.shared import SharedBackend
from runtime.conversation.prompt import PromptEncoder
from runtime.core.drafter import Drafter, traits_of
from runtime.core.limits import UNLIMITED, Limits
from runtime.drafters.lookahead import LookaheadDrafter, WindowShape
from runtime.drafters.model import ModelDrafter
from runtime.drafters.ngram import NgramDrafter
from runtime.engine.loaded import LoadedEngine
from runtime.loading.decoding import shared_passes
from runtime.loading.exactness import Exactness, Roundings
from runtime.loading.options import Options
from runtime.models.registry import Pair
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.decoder import Decoder
from runtime.speculative.target import Sharing, TargetPasses
from tests.support.toy_library import DRAFT_SECONDS, END, N_VOCAB, PASS_SECONDS, ROW_SECONDS, ToyModel

PAIR = Pair("toy", target=Path("toy.gguf"))
N_CTX, N_BATCH, N_SEATS = 128, 48, 3
MAX_K, BLUR = 5, 0.15
PIECES = [b"", *(bytes([ord("a") + i]) for i in range(N_VOCAB - 1))]


class ToyVocab:
    """A letter for each token, but for one that ends a turn."""

    n_vocab, bos, adds_bos = N_VOCAB, END, False

    def __init__(self) -> None:
        self.pieces = self.named_pieces = dict(enumerate(PIECES))
        self.ends = {token: token == END for token in range(N_VOCAB)}

    def text_or_name(self, token: int) -> str:
        return PIECES[token].decode() or "<end>"


@dataclass(frozen=True)
class Setup:
    """How replies are made: in `shared` passes, in `turns`, or in turns with `trees`, by lookahead in place of a draft
    model; drafts of `fixed_k` tokens, or as many as pay; passes of more than `exact_rows` rows round otherwise.
    """

    kind: str = "shared"
    drafters: tuple[str, ...] = ()
    fixed_k: int | None = None
    exact_rows: int = sys.maxsize
    limits: Limits = UNLIMITED
    n_slots: int = N_SEATS  # conversations that are held

    @property
    def target(self) -> ToyModel:
        return ToyModel(exact_rows=self.exact_rows)


class ToyEngine(LoadedEngine):
    """A LoadedEngine whose models are the toy library's."""

    def __init__(self, setup: Setup, has_drafters: bool = True) -> None:
        vocab, exact = ToyVocab(), Exactness(min(setup.exact_rows, MAX_K + 1), MAX_K + 1, together=True)
        self.backends = [opened(setup, setup.target, vocab)]
        target = self.backends[0]
        names = setup.drafters if has_drafters else ()
        drafters = [self._drafter(name, setup, vocab) for name in names]
        self.pair, self._learner = PAIR, None
        self.vocab: Any = vocab
        self.decoder = decoder_of(setup, target, drafters)
        self._loaded: Any = SimpleNamespace(
            options=Options(limits=setup.limits),
            backend=target,
            roundings=Roundings(exact, exact),
            close_embedder=lambda: None,
            close=self._free,
        )
        for backend in self.backends:
            backend.set_slots(setup.n_slots)
        self.facts = facts(
            n_ctx=N_CTX,
            n_vocab=N_VOCAB,
            template="",
            exactness=exact,
            shares_passes=self.decoder.target.shared is not None,
        )
        self._encoder = PromptEncoder(self.vocab, "", "toy", N_CTX)
        self._start()

    def _drafter(self, name: str, setup: Setup, vocab: ToyVocab) -> Drafter:
        if name == NgramDrafter.name:
            return NgramDrafter()
        if setup.kind == "trees":
            return LookaheadDrafter(WindowShape(2, 2))
        backend = opened(setup, ToyModel(BLUR), vocab)
        self.backends.append(backend)
        return ModelDrafter(backend, N_VOCAB, MAX_K, shared_passes(backend))

    def _free(self) -> None:
        for backend in self.backends:
            backend.close()


def opened(setup: Setup, model: ToyModel, vocab: ToyVocab) -> LlamaBackend:
    """A context of that model, as `kind` wants it."""
    held: Any = SimpleNamespace(
        handle=model,
        vocab=vocab,
        adapters=one_adapter(model),
        cache_types=("Q8_0", "F16"),
        n_embd=1,
        path=Path("toy.gguf"),
        is_recurrent=False,
        window=0,
        vision=None,
        is_spatial=False,
    )
    held.context_params = partial(LlamaModel.context_params, held)
    if setup.kind == "shared":
        return SharedBackend(held, N_CTX, MAX_K + 1, N_BATCH, N_SEATS)
    return LlamaBackend(held, N_CTX, MAX_K + 1, N_BATCH, can_branch=setup.kind == "trees")


def one_adapter(model: ToyModel) -> LoadedAdapters:
    """One, which is off for requests that do not name it."""
    found = LoadedAdapters(model)
    found.keys, found.usual, found.handles = ("toy",), (0.0,), {"toy": lib.llama_adapter_lora_p_ctypes()}
    return found


def decoder_of(setup: Setup, target: LlamaBackend, drafters: list[Drafter]) -> Decoder:
    """A decoder that believes what the toy library's passes take."""
    costs = PassCosts()
    for rows in range(1, MAX_K + 2):
        costs.set(rows, PASS_SECONDS + ROW_SECONDS * rows)
    known = {each.name: traits_of(each, DRAFT_SECONDS) for each in drafters}
    controller = Controller(costs, known, MAX_K, setup.fixed_k)
    passes = shared_passes(target)
    sharing = Sharing(passes, setup.exact_rows) if passes else None
    return Decoder(TargetPasses(target, setup.exact_rows, sharing), drafters, controller)
