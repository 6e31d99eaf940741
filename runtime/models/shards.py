"""Names of GGUF files: shards of large models, name-00001-of-00003.gguf and so on, and encoders. Opens no file."""

from __future__ import annotations

import re

MAX_SHARDS = 999
ENCODER = "mmproj"  # how names of vision encoders begin
PATTERN = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<total>\d{5})\.gguf", re.IGNORECASE | re.DOTALL)


def shard_names(name: str) -> list[str]:
    """Return the names of all shards of the model of `name`, in order; only `name` if it is not split."""
    match = PATTERN.fullmatch(name)
    if match is None or not 1 <= (total := int(match["total"])) <= MAX_SHARDS:
        return [name]
    return [f"{match['stem']}-{number:05}-of-{match['total']}{name[-5:]}" for number in range(1, total + 1)]


def is_first_shard(name: str) -> bool:
    """Whether this file opens a model: one that is not split, or the first shard."""
    return name.lower().endswith(".gguf") and name == shard_names(name)[0]


def is_encoder(name: str) -> bool:
    """Whether a file's name is that of a vision encoder."""
    return name.rpartition("/")[2].startswith(ENCODER)
