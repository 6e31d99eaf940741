"""The configurations that `bench.peers` compares: our engine, llama.cpp's own server, llama-cpp-python's prompt lookup.

The server is the one in the wheel `xllamacpp`. Each `open_*` runs in a process of its own, because a process must not
load two builds of llama.cpp; so this module imports neither at its top. Knows each side's settings and clock, and the
settings that get a row.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from runtime.core.errors import ModelError
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.heads import begins_for
from runtime.models.mtp import has_mtp
from runtime.models.registry import Pair

OWN_THREADS = ", own threads"
Q8_0 = 8  # ggml.h, enum ggml_type: the cache type of our contexts on a CPU
# By the name of the pair's drafter
DRAFT_TYPES = {"model": "DRAFT_SIMPLE", "eagle": "DRAFT_EAGLE3", "dflash": "DRAFT_DFLASH", "mtp": "DRAFT_MTP"}
SEED = 7  # for sampled replies
SHORT = {"size_n": 3, "size_m": 8}  # n-gram lengths that a short reply can match; the defaults are 12 and 48


@dataclass(frozen=True, slots=True)
class Prompt:
    """A question, and its ids in the model's chat template; the reply's temperature and JSON schema."""

    question: str
    ids: list[int]
    temperature: float = 0.0
    form: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply, and its cost without the prefill."""

    text: str
    tokens: float  # generated in those seconds
    seconds: float
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """The common settings of all configurations."""

    pair: Pair
    max_tokens: int
    is_raw: bool = False  # whether to use no chat template


@dataclass(frozen=True, slots=True)
class Way:
    """A configuration: `opens(job, way)` runs in its own process and returns a function that answers."""

    name: str
    opens: Callable[[Job, Way], Callable[[Prompt], Answer]]
    plain: str  # name of the configuration that its speed and text are compared with
    threads: int | None = None  # None: the side's own choice
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Server:
    """The capabilities of the packaged server."""

    types: dict[str, int]  # kinds of speculation
    sized: tuple[str, ...]  # those with configurable n-gram lengths
    n_max: int
    p_min: float
    build: str


class WayError(Exception):
    """The reason why a configuration gives no answer."""


def open_ours(job: Job, way: Way) -> Callable[[Prompt], Answer]:
    """Open our engine; the settings are Options."""
    from runtime.engine import Grammar, Message, Options, Sampling
    from runtime.engine.loaded import LoadedEngine

    engine = LoadedEngine(job.pair, Options(threads=way.threads, **way.settings))

    def answer(prompt: Prompt) -> Answer:
        question = prompt.question if job.is_raw else [Message("user", prompt.question)]
        grammar = Grammar("json_schema", prompt.form) if prompt.form else None
        sampling = Sampling(prompt.temperature, seed=SEED if prompt.temperature else None)
        chunks = list(engine.reply(question, sampling, job.max_tokens, grammar=grammar))
        stats = chunks[-1].stats
        assert stats is not None
        text = "".join(chunk.text for chunk in chunks)
        return Answer(text, stats.predicted_n, stats.decode_seconds, stats.draft_n, stats.draft_n_accepted)

    return answer


def common_params(settings: Mapping[str, Any]) -> Any:
    """Return llama.cpp's parameters, set by dotted name."""
    import xllamacpp  # type: ignore[import-untyped]

    params = xllamacpp.CommonParams()
    for name, value in settings.items():
        *owner, last = name.split(".")
        setattr(reduce(getattr, owner, params), last, value)
    return params


def open_server(job: Job, way: Way) -> Callable[[Prompt], Answer]:
    """Open llama.cpp's server in this process; the settings are its parameters by dotted name."""
    import xllamacpp

    settings: dict[str, Any] = {
        "model.path": str(job.pair.target),
        "n_ctx": job.pair.context,
        "verbosity": 0,
        **way.settings,
    }
    if way.threads:
        owners = ("", "speculative.draft.")
        settings |= {
            f"{owner}{kind}.n_threads": way.threads for owner in owners for kind in ("cpuparams", "cpuparams_batch")
        }
    server = xllamacpp.Server(common_params(settings))

    def answer(prompt: Prompt) -> Answer:
        asked = {"prompt": prompt.ids, "max_tokens": job.max_tokens, "temperature": prompt.temperature, "seed": SEED}
        form = {"json_schema": json.loads(prompt.form)} if prompt.form else {}
        reply = server.handle_completions(asked | form)
        if "error" in reply:
            raise WayError(reply["error"]["message"])
        timings = reply["timings"]
        seconds = timings["predicted_ms"] / 1e3
        drafted, accepted = timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)
        return Answer(
            reply["choices"][0]["text"], timings["predicted_per_second"] * seconds, seconds, drafted, accepted
        )

    return answer


def open_lookup(job: Job, way: Way) -> Callable[[Prompt], Answer]:
    """Open llama-cpp-python's `Llama`; the settings are those of its prompt lookup, none for plain decode."""
    import llama_cpp
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    drafter = LlamaPromptLookupDecoding(**way.settings) if way.settings else None
    threads = {"n_threads": way.threads, "n_threads_batch": way.threads}
    llama = llama_cpp.Llama(str(job.pair.target), n_ctx=job.pair.context, draft_model=drafter, verbose=False, **threads)

    def answer(prompt: Prompt) -> Answer:
        tokens: list[int] = []
        began = 0.0
        for token in llama.generate(prompt.ids, temp=0):
            began = began or time.perf_counter()  # the first token ends the prefill
            tokens.append(token)
            if len(tokens) == job.max_tokens or llama_cpp.llama_vocab_is_eog(llama._model.vocab, token):
                break
        seconds = time.perf_counter() - began
        return Answer(
            llama.detokenize(tokens, prev_tokens=prompt.ids).decode("utf8", "replace"), len(tokens) - 1, seconds
        )

    return answer


def examine_server() -> Server:
    """Return the capabilities of the wheel's server. Run in a process of its own."""
    import xllamacpp

    speculative = xllamacpp.CommonParams().speculative
    types = {
        kind.name.removeprefix("COMMON_SPECULATIVE_TYPE_"): int(kind) for kind in xllamacpp.common_speculative_type
    }
    sized = tuple(name for name in types if hasattr(getattr(speculative, name.lower(), None), "size_n"))
    build = f"{xllamacpp.__version__} {xllamacpp.get_system_info()}"
    return Server(types, sized, speculative.draft.n_max, speculative.draft.p_min, build)


def prepare(job: Job, questions: Sequence[str]) -> tuple[Job, int, list[Prompt], str]:
    """Return the job with a context that the model can fill, the threads for one row, the prompts, and our build of
    llama.cpp.

    Run in a process of its own.
    """
    import llama_cpp.llama_cpp as lib

    from runtime.backends import library
    from runtime.backends.llama import LlamaBackend
    from runtime.engine import Message, Options
    from runtime.engine.loaded import LoadedEngine

    engine = LoadedEngine(job.pair, Options())
    backend = engine.decoder.target.backend
    assert isinstance(backend, LlamaBackend)
    prompts = [
        Prompt(question, engine.encode(question if job.is_raw else [Message("user", question)]))
        for question in questions
    ]
    threads: int = lib.llama_n_threads(backend.handle)
    return replace(job, pair=replace(job.pair, context=engine.facts.n_ctx)), threads, prompts, library.version()


def end(threads: int | None) -> str:
    """Return the end of a configuration's name: a remark if the side itself chooses its threads."""
    return "" if threads else OWN_THREADS


def ours(threads: int | None) -> list[Way]:
    """Return our configurations."""
    plain = Way(f"ours, plain{end(threads)}", open_ours, f"ours, plain{end(threads)}", threads, {"drafters": ()})
    return [plain, Way(f"ours, adaptive{end(threads)}", open_ours, plain.name, threads)]


def server_basics(pair: Pair, server: Server, threads: int | None) -> list[Way]:
    """Return the server's configurations: plain, and with the draft model at its defaults."""
    plain = Way(f"server, plain{end(threads)}", open_server, f"ours, plain{end(threads)}", threads)
    if drafts_by(pair) not in DRAFT_TYPES:
        return [plain]
    return [
        plain,
        Way(f"server, draft defaults{end(threads)}", open_server, plain.name, threads, draft_settings(pair, server)),
    ]


def drafts_by(pair: Pair) -> str:
    """Return the drafter for a pair's draft, or for drafting layers in its target's file; "" if it has none."""
    if pair.draft is not None:
        return begins_for(pair.draft) or "model"
    try:
        return "mtp" if has_mtp(ModelFacts(read_model_header(pair.target))) else ""
    except (ModelError, OSError):
        return ""


def draft_settings(pair: Pair, server: Server) -> dict[str, Any]:
    """Return the settings for the pair's draft: its path loads it, but it is used only if the type is set too."""
    file = {"speculative.draft.mparams.path": str(pair.draft)} if pair.draft else {}
    return file | {"speculative.types": [server.types[DRAFT_TYPES[drafts_by(pair)]]]}


def draft_lengths(pair: Pair, server: Server, lengths: Iterable[int], p_min: float) -> dict[str, dict[str, Any]]:
    """Return the server's settings by name, for drafts of at most each of these lengths."""
    return {
        f"draft n_max {n_max}, p_min {p_min:g}": draft_settings(pair, server)
        | {"speculative.draft.n_max": n_max, "speculative.draft.p_min": p_min}
        for n_max in lengths
    }


def server_settings(pair: Pair, server: Server, threads: int) -> list[Way]:
    """Return all other settings that could make the server faster."""
    settings: dict[str, dict[str, Any]] = {"plain, Q8_0 cache": {"cache_type_k": Q8_0, "cache_type_v": Q8_0}}
    for p_min in (0.0, 0.75) if drafts_by(pair) in DRAFT_TYPES else ():
        lengths = [n for n in range(1, 9) if (n, p_min) != (server.n_max, server.p_min)]
        settings |= draft_lengths(pair, server, lengths, p_min)
    for kind in [kind for kind in server.types if kind.startswith("NGRAM")]:
        settings[kind.lower()] = {"speculative.types": [server.types[kind]]}
        if kind in server.sized:
            short = {f"speculative.{kind.lower()}.{name}": length for name, length in SHORT.items()}
            settings[f"{kind.lower()}, short"] = settings[kind.lower()] | short
    return [Way(f"server, {name}", open_server, "server, plain", threads, values) for name, values in settings.items()]


def lookups(threads: int) -> list[Way]:
    """Return llama-cpp-python's configurations: plain, and prompt lookup as recommended for CPUs and by default."""
    plain = Way("llama-cpp-python, plain", open_lookup, "ours, plain", threads)
    return [
        plain,
        *(
            Way(f"llama-cpp-python, lookup of {n}", open_lookup, plain.name, threads, {"num_pred_tokens": n})
            for n in (2, 10)
        ),
    ]
