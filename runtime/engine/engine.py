"""What an engine can be asked, whether the models are in this process or in another: the only door for the command
line, the chat and the server. Plain data in, plain data out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtime.conversation.chat_template import USUAL_FORM, Message, TemplateForm
from runtime.conversation.prompt import Prompt
from runtime.conversation.quoting import Rendered
from runtime.core.errors import SettingsError
from runtime.engine.output import Chunk, Output
from runtime.loading.exactness import Exactness
from runtime.models.registry import Pair
from runtime.sampling.grammar import Grammar
from runtime.sampling.sampler import Sampling
from runtime.sampling.thoughts import ThoughtBudget
from runtime.speculative.control.explain import Explanation, Pass


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What does not change while a pair is loaded."""

    n_ctx: int
    n_ctx_train: int  # tokens of context that the model was trained on
    n_vocab: int
    n_embd: int  # numbers of an embedding
    n_bytes: int  # size of the target's weights
    template: str  # the chat template's source; "" when the model has none
    fit: str  # what was loaded given the memory that was free, in a sentence; "" where that is not known
    left_out: str  # what of the pair, or of what was asked for, is lacking, and why, without a full stop; "": nothing
    exactness: Exactness
    is_reproducible: bool  # has a reply with a seed the same text with any drafter?
    can_draft: bool  # are drafts possible for what this model is?
    # Is it worth a trial whether the layout of weights in which all passes round alike costs speed here?
    could_be_exact: bool
    has_gpu: bool  # are there devices with memory of their own?
    can_infill: bool  # was the model trained to fill in the middle?
    is_short: bool = False  # did memory not suffice for all that was asked for?
    shares_passes: bool = False  # can several replies have rows of one pass?
    upstream: str = ""  # the server that has the model, and knows its tokens; "": it is on this machine


@dataclass(frozen=True, slots=True)
class Ask:
    """What a reply is to be. One that was broken off begins with the tokens that it has `said`, in these `passes`."""

    prompt: Prompt
    sampling: Sampling
    max_tokens: int | None = None  # 0: the prompt is only read
    stops: tuple[str, ...] = ()
    grammar: Grammar | None = None
    thoughts: ThoughtBudget | None = None
    n_logprobs: int | None = None
    after_sampling: bool = False
    when_full: str = "stop"
    prediction: str = ""
    said: tuple[int, ...] = ()
    passes: tuple[Pass, ...] = ()
    is_short: bool = False  # does it go before others, where replies take turns?
    n_indent: int = 0  # spaces or tabs that each line after the first must begin with; the reply ends at another
    is_traced: bool = False  # do its passes say why they were as they were?


class Engine(ABC):
    """A pair in memory. Replies are added and made step by step on one thread; text may be asked about on any."""

    pair: Pair
    facts: EngineFacts

    @abstractmethod
    def encode(self, prompt: Prompt) -> list[int]:
        """The ids of a prompt, a conversation in the model's chat template. Raises TemplateError, SettingsError."""

    @abstractmethod
    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        form: TemplateForm = USUAL_FORM,
    ) -> Rendered:
        """The conversation as the text that the model reads, and what of it is no mark of its template. Raises
        TemplateError.
        """

    @abstractmethod
    def tokenize(self, text: str, *, special: bool = True, bos: bool = False) -> list[int]:
        """Ids of `text`; with `special`, names of control tokens in it are those tokens; with `bos`, begun as the model
        wants a prompt. Raises ContextError for a prompt that cannot fit.
        """

    @abstractmethod
    def token_bytes(self, token: int) -> bytes:
        """What the token adds to the text; b"" for a control token."""

    @abstractmethod
    def is_end(self, token: int) -> bool:
        """Does the model end its turn with this token?"""

    @property
    @abstractmethod
    def end_tokens(self) -> tuple[int, ...]:
        """All tokens with which it does."""

    @abstractmethod
    def token_text(self, token: int) -> str:
        """The token as text; control tokens by their names."""

    def reply(
        self,
        prompt: Prompt,
        sampling: Sampling,
        max_tokens: int | None = None,
        stops: Sequence[str] = (),
        cancel: Callable[[], bool] = lambda: False,
        on_prefill: Callable[[int, int], None] = lambda done, total: None,
        *,
        grammar: Grammar | None = None,
        thoughts: ThoughtBudget | None = None,
        n_logprobs: int | None = None,
        after_sampling: bool = False,
        when_full: str = "stop",
        prediction: str = "",
    ) -> Iterator[Chunk]:
        """Streams the reply. `n_logprobs` likeliest tokens come with each token, as the model sees it or as it is
        `after_sampling`; `when_full` is one of POLICIES.

        `prediction` is text that the reply is expected to repeat for the most part: the drafter of that name makes use
        of it. Raises ContextError when the prompt does not fit, SettingsError, TemplateError, ModelError.
        """
        ask = Ask(
            prompt, sampling, max_tokens, tuple(stops), grammar, thoughts, n_logprobs, after_sampling, when_full,
            prediction,
        )  # fmt: skip
        return self.answer(ask, cancel, on_prefill)

    @abstractmethod
    def answer(self, ask: Ask, cancel: Callable[[], bool], on_prefill: Callable[[int, int], None]) -> Iterator[Chunk]:
        """Returns the reply in chunks, as `reply` says."""

    @abstractmethod
    def add(self, ask: Ask) -> int:
        """Begins a reply. Returns its number, by which `step` tells of it. Raises what `reply` raises, unless the first
        step does.
        """

    @abstractmethod
    def step(self) -> list[Output]:
        """Returns what comes next of the replies that were added; nothing where that takes a while."""

    @abstractmethod
    def cancel(self, number: int) -> None:
        """Ends a reply soon, on any thread: its last chunk says that it was cancelled."""

    @abstractmethod
    def end(self, number: int) -> None:
        """Ends a reply of which nobody reads the rest."""

    @abstractmethod
    def passes(self, first: int = 0) -> tuple[Pass, ...]:
        """The target passes of the last reply, also while it is made, from the `first` on."""

    @abstractmethod
    def explain(self) -> Explanation:
        """What decides about speculation now, as far as the last reply has come."""

    @abstractmethod
    def embed(self, tokens: Sequence[int]) -> list[float]:
        """The text of these ids as a vector of length 1. Raises ContextError, ModelError."""

    def conversation(self, action: str, number: int, path: str = "") -> tuple[int, int]:
        """Save a held conversation to a file, of which the one used last has number 0, `restore` one, or `erase` it.
        Return its tokens and the bytes of the file. Raises SettingsError.
        """
        raise SettingsError("No conversation is held here: another server has the model.")

    @abstractmethod
    def tend(self) -> None:
        """Housekeeping between replies, on their thread: gives up or takes back what memory asks for."""

    @property
    def learning(self) -> str:
        """What is done about a head that is to learn, or why nothing is, in a clause; "" where none is to."""
        return ""

    @abstractmethod
    def close(self) -> None:
        """Frees the models."""

    @property
    @abstractmethod
    def holds_one(self) -> bool:
        """Can only one conversation be held, so that other replies wait until that one has ended?"""

    @property
    @abstractmethod
    def n_held(self) -> int:
        """Conversations that need not be read again."""

    @property
    @abstractmethod
    def memory_level(self) -> str:
        """How short memory was at the last token: OK, TIGHT or CRITICAL."""

    @property
    @abstractmethod
    def given_up(self) -> str:
        """What was given up for that and why, with numbers; "" while nothing is."""
