"""A GGUF's own tokenizer, through llama.cpp, also in the form that grammars need. Implements Tokenizer; knows token ids
and bytes, no chat.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeVar

import llama_cpp.llama_cpp as lib

from runtime.sampling.control_tokens import ControlTokens
from runtime.sampling.dry import Breakers, SpelledTokens, breakers_of

if TYPE_CHECKING:
    from llguidance import LLTokenizer

BLOCK = 2**14  # minimum characters of a part
T = TypeVar("T")
ANY = "a"  # a text, to see which tokens are put around it
KEPT_PARTS = 64  # parts of long texts whose ids are cached, of a few thousand tokens each
KEPT_BREAKERS = 8  # sets of DRY's sequence breakers whose tokens are cached
NO_TEXT = b"\xff"  # llguidance: prefix of the name of a token that no text spells
TYPICAL_BYTES = 64  # bytes of text of most tokens; longer ones take two calls


class Memo(dict[int, T]):
    """A property of each token, computed by the library once and cached."""

    def __init__(self, ask: Callable[[int], T]) -> None:
        super().__init__()
        self._ask = ask

    def __missing__(self, token: int) -> T:
        """Compute and cache the property of a token."""
        answer = self[token] = self._ask(token)
        return answer


@dataclass(frozen=True, slots=True)
class Mark:
    """A token that is found in text by its name, before the rest of the text is tokenized.

    Control tokens are found only on request. White space that a mark strips has no token.
    """

    token: int
    text: str
    is_control: bool
    strips_before: bool
    strips_after: bool


class Vocab:
    """The vocabulary of a loaded model; valid as long as the model."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.n_vocab = int(lib.llama_vocab_n_tokens(handle))
        self.adds_bos = bool(lib.llama_vocab_get_add_bos(handle))
        self.bos = int(lib.llama_vocab_bos(handle))
        self.eos = int(lib.llama_vocab_eos(handle))
        self.end = self.eos if (eot := int(lib.llama_vocab_eot(handle))) < 0 else eot  # of a turn
        self.pieces = Memo(lambda token: self._read_piece(token, special=False) if token >= 0 else b"")  # < 0: images
        self.named_pieces = Memo(lambda token: self._read_piece(token, special=True))  # control tokens by their names
        self._parts: dict[tuple[str, bool], Sequence[int]] = {}
        self.ends = Memo(lambda token: token >= 0 and bool(lib.llama_vocab_is_eog(handle, token)))

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Return the ids of `text`, with none added around it; with `special`, control tokens in it are recognized."""
        if len(text) <= BLOCK:
            return self._encode(text, special)
        return [token for part in self._cutters[special].parts(text) for token in self._encoded(part, special)]

    def _encoded(self, part: str, special: bool) -> Sequence[int]:
        """Return the ids of a part from a cache: a conversation that continues begins with the same parts again."""
        if (ids := self._parts.pop((part, special), None)) is None:
            ids = tuple(self._encode(part, special))
        self._parts[part, special] = ids  # the most recent one
        if len(self._parts) > KEPT_PARTS:
            with suppress(KeyError, RuntimeError, StopIteration):  # another thread may be doing the same
                del self._parts[next(iter(self._parts))]
        return ids

    def _encode(self, text: str, special: bool, framed: bool = False) -> list[int]:
        data = text.encode("utf8", "replace")
        room = len(data) + 16
        ids = (ctypes.c_int32 * room)()
        n = lib.llama_tokenize(self.handle, data, len(data), ids, room, framed, special)
        if n < 0:
            ids = (ctypes.c_int32 * -n)()
            n = lib.llama_tokenize(self.handle, data, len(data), ids, -n, framed, special)
        return ids[:n]

    @cached_property
    def frame(self) -> tuple[list[int], list[int]]:
        """The tokens that the model expects before and after a whole text, as an embedding model reads it."""
        bare, whole = self._encode(ANY, False), self._encode(ANY, False, framed=True)
        places = range(len(whole) - len(bare) + 1)
        start = next((i for i in places if whole[i : i + len(bare)] == bare), len(whole))
        return whole[:start], whole[start + len(bare) :]

    @cached_property
    def joints(self) -> tuple[list[int], list[int], list[int]]:
        """The tokens before, between and after the two texts of a pair, as llama.cpp puts them for reranking models."""
        sep = int(lib.llama_vocab_sep(self.handle))
        end = [self.eos if self.eos >= 0 else sep] if lib.llama_vocab_get_add_eos(self.handle) else []
        between = [*end, *([sep] if lib.llama_vocab_get_add_sep(self.handle) else [])]
        return [self.bos] if self.adds_bos else [], between, end

    @cached_property
    def marks(self) -> tuple[Mark, ...]:
        """All tokens that are found by their names. Read once, which takes a few tenths of a second."""
        control, own = lib.LLAMA_TOKEN_ATTR_CONTROL | lib.LLAMA_TOKEN_ATTR_UNKNOWN, lib.LLAMA_TOKEN_ATTR_USER_DEFINED
        kinds = map(lib.llama_vocab_get_attr, repeat(self.handle), range(self.n_vocab))
        return tuple(
            Mark(
                token,
                text,
                bool(kind & control),
                bool(kind & lib.LLAMA_TOKEN_ATTR_LSTRIP),
                bool(kind & lib.LLAMA_TOKEN_ATTR_RSTRIP),
            )
            for token, kind in enumerate(kinds)
            if kind & (control | own) and (text := self.text(token))
        )

    @cached_property
    def _cutters(self) -> dict[bool, Cutter]:
        """Cutters for texts in which control tokens are recognized (True), and in which they are not (False)."""
        eager = [mark.text for mark in self.marks if mark.strips_before]
        found = {special: [mark.text for mark in self.marks if special or not mark.is_control] for special in (0, 1)}
        return {bool(special): Cutter(texts, eager) for special, texts in found.items()}

    @cached_property
    def longest(self) -> int:
        """Maximum number of bytes of text that a token may stand for."""
        return max(1, *(len(self.pieces[token] or self.text(token).encode()) for token in range(self.n_vocab)))

    @cached_property
    def breakers(self) -> Callable[[tuple[str, ...]], Breakers]:
        """A function that returns the tokens of DRY's sequence breakers, of which the latest are cached."""
        spelled = SpelledTokens([self.named_pieces[token] for token in range(self.n_vocab)])

        def encode(rest: bytes) -> list[int]:
            return self.encode(rest.decode("utf8", "replace"), special=False)

        return lru_cache(KEPT_BREAKERS)(lambda texts: breakers_of(texts, spelled, encode))

    def _read_piece(self, token: int, *, special: bool) -> bytes:
        room = 64
        while True:
            buffer = ctypes.create_string_buffer(room)
            n = lib.llama_token_to_piece(self.handle, token, buffer, room, 0, special)
            if n >= 0:
                return buffer.raw[:n]
            room = -n

    def text(self, token: int) -> str:
        """Return the token as the vocabulary spells it; "" for no token (-1)."""
        return (lib.llama_vocab_get_text(self.handle, token) or b"").decode("utf8", "replace") if token >= 0 else ""

    @cached_property
    def grammar_tokenizer(self) -> LLTokenizer:
        """The vocabulary in llguidance's form; takes up to a second to create.

        A token is text where the reply shows it as text, whatever its type. llguidance's own function for llama.cpp,
        whose interface this uses, does not treat user-defined tokens as text.
        """
        from llguidance import LLTokenizer

        ends, tokens = self.control_tokens.ends, self.texts()
        for token in [token for token, text in enumerate(tokens) if not text] + list(ends):
            name = self.special_text(token).encode()
            tokens[token] = NO_TEXT + name if name else b""
        tokenize = ctypes.cast(lib.llama_tokenize, ctypes.c_void_p).value
        found: LLTokenizer = LLTokenizer.from_llamacpp(  # type: ignore[attr-defined]  # lacks a declaration
            tokens=tokens, vocab_ptr=self.handle, tokenize_fptr=tokenize, eos_token=sorted(ends)
        )
        return found

    def texts(self) -> list[bytes]:
        """Return the `pieces` of all tokens, read in a third of the time."""
        read, handle, buffer = lib.llama_token_to_piece, self.handle, ctypes.create_string_buffer(TYPICAL_BYTES)
        sizes = ((token, read(handle, token, buffer, TYPICAL_BYTES, 0, False)) for token in range(self.n_vocab))
        return [buffer.raw[:n] if n >= 0 else self.pieces[token] for token, n in sizes]

    @cached_property
    def control_tokens(self) -> ControlTokens:
        """The control tokens that a grammar may name, and those that end a turn."""
        ends_turn, attributes, handle = lib.llama_vocab_is_eog, lib.llama_vocab_get_attr, self.handle
        ends = frozenset(token for token in range(self.n_vocab) if ends_turn(handle, token))
        control = [token for token in range(self.n_vocab) if attributes(handle, token) & lib.LLAMA_TOKEN_ATTR_CONTROL]
        names = {token: self.special_text(token) for token in control if token not in ends}
        return ControlTokens({name: token for token, name in names.items() if name}, ends, self._named)

    def _named(self, name: str) -> int | None:
        """Return the single token that a text stands for as a control token, or None."""
        ids = self.encode(name, special=True)
        return ids[0] if len(ids) == 1 and self.special_text(ids[0]) == name else None

    @cached_property
    def fim(self) -> dict[str, int]:
        """The model's tokens for fill-in-the-middle: those of prefix, suffix, middle, repo and file that it has."""
        read = {
            "prefix": lib.llama_vocab_fim_pre, "suffix": lib.llama_vocab_fim_suf, "middle": lib.llama_vocab_fim_mid,
            "repo": lib.llama_vocab_fim_rep, "file": lib.llama_vocab_fim_sep,
        }  # fmt: skip
        return {name: token for name, get in read.items() if (token := int(get(self.handle))) >= 0}

    def special_text(self, token: int) -> str:
        """Return a control token as it is written in text; "" for no token (-1)."""
        return self.named_pieces[token].decode("utf8", "replace") if token >= 0 else ""

    def text_or_name(self, token: int) -> str:
        """Return a token as text; control tokens by their names."""
        return self.pieces[token].decode("utf8", "replace") or self.special_text(token)


class Cutter:
    """Splits text before one of `marks`, the special tokens, unless it is in `eager` and absorbs the text before it."""

    def __init__(self, marks: Collection[str], eager: Collection[str] = ()) -> None:
        self._marks, self._eager = sorted(filter(None, marks), key=len, reverse=True), frozenset(eager)
        self._any = re.compile("|".join(map(re.escape, self._marks))) if self._marks else None

    def parts(self, text: str) -> Iterator[str]:
        """Yield the parts of the text in order."""
        start = 0
        while len(text) - start > BLOCK and (end := self._border(text, start + BLOCK)) is not None:
            yield text[start:end]
            start = end
        yield text[start:]

    def _border(self, text: str, start: int) -> int | None:
        """Return the first place from `start` on where the text may be split; None if there is none."""
        for found in self._any.finditer(text, start) if self._any else ():
            if found[0] not in self._eager and not self._is_inside(text, found.start()):
                return found.start()
        return None

    def _is_inside(self, text: str, place: int) -> bool:
        """Return whether a mark could span the place."""
        return any(text.find(mark, max(0, place - len(mark) + 1), place + len(mark) - 1) >= 0 for mark in self._marks)
