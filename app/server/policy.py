"""The server owner's settings for all requests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from runtime.models.shards import PATTERN as SHARD

QUANTIZATION = re.compile(r"[-._](UD-)?(I?Q\d\w*|TQ\d_0|B?F16|F32|MXFP4(_MOE)?)$", re.IGNORECASE)


Scales = tuple[tuple[int, float], ...] | None  # ids of LoRA adapters with their scales; None: those of the pair


@dataclass(frozen=True, slots=True)
class ServerPolicy:
    """Names, visibility and limits."""

    aliases: tuple[str, ...] = ()  # of the model; the first is its name in replies
    shows_slots: bool = False  # whether a client may see other clients' tasks
    max_tokens: int | None = None  # of a reply, whatever the request sets; None: up to the context
    lora: Scales = None  # LoRA adapters of requests that name none
    max_models: int | None = None  # that are loaded at the same time; None: as many as memory holds
    loads_models: bool = True  # whether a request loads the model that it names
    # The error of requests that end because the server does
    ended: str = "The server is shutting down. Start it again with `slipstream serve`."


DEFAULT_POLICY = ServerPolicy()


def served_names(name: str, aliases: Sequence[str]) -> tuple[str, ...]:
    """Return the names of a model, the first for replies: the owner's, or its own without `.gguf` and quantization,
    without `.gguf`, and whole.

    Clients choose the form of prompts by the model's name, so it must be that of the model and not of a file.
    """
    if aliases or not name.lower().endswith(".gguf"):
        return tuple(aliases) or (name,)
    shard = SHARD.fullmatch(name)
    stem = shard["stem"] if shard else name[: -len(".gguf")]
    return tuple(dict.fromkeys((QUANTIZATION.sub("", stem) or stem, stem, name)))
