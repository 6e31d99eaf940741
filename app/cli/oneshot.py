"""`slipstream run`: one prompt, one reply, streamed to standard output.

Knows the terminal; leaves options to choices.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app.chats.pictures import Attached, ChatPicture, picture_of, shown_to
from app.cli.report import describe
from app.cli.run import PrintOptions
from app.models.starting import BUNDLED, LAST, StartModel
from app.reply_text import ShownTokens
from app.terminal import Interrupt, WaitProgress, inert, marked, print_json, print_message, print_note
from app.tui.attach import names_in, pictures_named
from app.tui.picture_files import quoted
from runtime.core.errors import SettingsError
from runtime.core.outside import expanded, read_plain
from runtime.engine import (
    ChatPrompt,
    Chunk,
    Engine,
    Grammar,
    Message,
    Options,
    Prompt,
    Sampling,
    TokenLogprobs,
    with_images,
)
from runtime.models.picture import check_picture
from runtime.models.registry import Pair

IMAGE = "[an image]"  # in a conversation that is kept


@dataclass(frozen=True, slots=True)
class OneshotRequest:
    """The prompt, and the settings for its reply."""

    prompt: str
    system: str
    raw: bool
    max_tokens: int | None
    stops: tuple[str, ...]
    sampling: Sampling
    grammar: Grammar | None
    n_logprobs: int | None
    prediction: str = ""
    before: tuple[Message, ...] = ()  # the conversation that it continues
    pictures: Attached = field(default_factory=dict)  # what the question is about
    earlier: tuple[bytes, ...] = ()  # files of the pictures in that conversation

    def text(self, sees: bool) -> Prompt:
        """Return the raw prompt, or the conversation, with the pictures before the question; earlier ones are notes for
        a model that does not see.
        """
        images, question = (
            tuple(self.pictures.values()),
            "\n".join([*(each.mark for each in self.pictures), self.prompt]),
        )
        if self.raw:
            return with_images(question, images)
        shown = (*self.earlier, *images) if sees else images
        return shown_to(ChatPrompt(tuple(self._turns(question))), shown)

    @property
    def conversation(self) -> list[Message]:
        """The messages up to the question, with notes for its pictures."""
        return self._turns("\n".join([*[IMAGE] * len(self.pictures), self.prompt]))

    @property
    def named(self) -> str:
        """The question for a chat, in which all of its pictures are named."""
        names = set(names_in(self.prompt))
        return " ".join([self.prompt, *(f"@{quoted(each.name)}" for each in self.pictures if each.name not in names)])

    def _turns(self, question: str) -> list[Message]:
        """Return the messages up to a question. Its system prompt replaces that of the conversation before."""
        before = [each for each in self.before if not self.system or each.role != "system"]
        return [Message("system", self.system)] * bool(self.system) + before + [Message("user", question)]


@dataclass(frozen=True, slots=True)
class PrintedReply:
    """A reply that was printed: its text, and the exit code; 0 for a whole one."""

    text: str
    code: int


def pictures(paths: Sequence[Path], question: str) -> dict[ChatPicture, bytes]:
    """Return the pictures in these files, and those that a question names, with their files. Raises SettingsError for
    one of the former that cannot be read.
    """
    return dict(map(read_picture, paths)) | pictures_named(question)


def read_picture(path: Path) -> tuple[ChatPicture, bytes]:
    """Return a picture and its file. Raises SettingsError for one that cannot be read."""
    try:
        data = read_plain(expanded(path))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read ({error.strerror}). Check `--image`.") from error
    return picture_of(str(path), data, check_picture(data, path.name)), data


def say_which(start: StartModel) -> None:
    """Print which model answers if none was named, unless it is the bundled one or cannot be found."""
    is_here = start.pair.upstream or start.pair.target.exists()
    if start.origin and is_here and not start.problem and start.pair.name != BUNDLED:
        why = "used last" if start.origin == LAST else "of the settings"
        print_message(f"{start.pair.name} answers, the model {why}. -m names another.")


def printed(
    pair: Pair, options: Options, request: OneshotRequest, shown: PrintOptions, open_engine: Callable[..., Engine]
) -> PrintedReply:
    """Load the model, answer and print; return the reply. Raises BrokenPipeError if nobody reads it."""
    interrupt, texts = Interrupt(), list[str]()
    with interrupt.watching(), WaitProgress() as progress:
        engine = open_engine(
            pair, options, lambda what, share: progress.load(what, share, keep_loading=not interrupt.pressed)
        )
        try:
            if engine.facts.left_out:
                print_message(f"{engine.facts.left_out}.")
            progress.read(0, 0)
            prompt = request.text(bool(engine.facts.vision))
            chunks = engine.reply(
                prompt, request.sampling, request.max_tokens, request.stops, lambda: interrupt.pressed,
                progress.read, grammar=request.grammar, n_logprobs=request.n_logprobs, prediction=request.prediction,
            )  # fmt: skip
            chunks = gathered(chunks, texts, progress)
            last = show_json(engine, chunks) if shown.as_json else show_text(chunks, shown.color)
        finally:
            engine.close()
    if last.notice:
        print_message(last.notice)
    if shown.stats and last.stats is not None:
        print_note(describe(last.stats, engine.facts.fit, engine.status.learning))
    return PrintedReply("".join(texts), interrupt.code if last.finish_reason == "cancelled" else 0)


def gathered(chunks: Iterator[Chunk], texts: list[str], progress: WaitProgress) -> Iterator[Chunk]:
    """Yield the chunks, collect their texts, and end the progress before the first."""
    for chunk in chunks:
        if chunk.text or chunk.finish_reason is not None:
            progress.stop()
        texts.append(chunk.text)
        yield chunk


def show_text(chunks: Iterator[Chunk], color: bool) -> Chunk:
    """Print the reply as it is generated. With `color`, accepted draft tokens are marked on a terminal."""
    out, on_terminal = sys.stdout, sys.stdout.isatty()
    chunk, ends = Chunk(""), "\n"
    for chunk in chunks:
        text = chunk.text
        if on_terminal:
            text = marked(chunk.pieces, chunk.drafted) if color else inert(text)
        out.write(text)
        out.flush()
        ends = chunk.text[-1:] or ends
    if ends != "\n" or chunk.finish_reason == "cancelled":
        print(flush=True)  # before anything on standard error
    return chunk


def show_json(engine: Engine, chunks: Iterator[Chunk]) -> Chunk:
    """Print one JSON object when the reply is complete."""
    parts = list(chunks)
    last, text = parts[-1], "".join(part.text for part in parts)
    if (stats := last.stats) is not None:
        usage = {
            "prompt_tokens": stats.prompt_n,
            "completion_tokens": stats.predicted_n,
            "total_tokens": stats.prompt_n + stats.predicted_n,
        }
        reply: dict[str, object] = {
            "model": engine.pair.name,
            "text": text,
            "finish_reason": last.finish_reason,
            "usage": usage,
            "timings": stats.timings(),
            "memory": describe_memory(engine),
        }
        shown = ShownTokens(engine)
        if likely := [token.entry for part in parts for token in shown.read(part)]:
            reply["logprobs"] = [describe_logprobs(engine, entry) for entry in likely]
        print_json(reply)
    return last


def describe_memory(engine: Engine) -> dict[str, object]:
    """Return the level of memory pressure, what was given up because of it, and what was loaded in the free memory.
    Absent values are null.
    """
    status = engine.status
    return {"level": status.memory_level, "given_up": status.given_up or None, "fit": engine.facts.fit or None}


def describe_logprobs(engine: Engine, entry: TokenLogprobs) -> dict[str, object]:
    """Return log probabilities in the format of OpenAI's API."""
    top = [{"token": engine.token_text(token), "logprob": round(value, 6)} for token, value in entry.top]
    return {"token": engine.token_text(entry.token), "logprob": round(entry.logprob, 6), "top_logprobs": top}
