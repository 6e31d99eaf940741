"""Names of models that are stored with the chats: of the one that wrote a reply, in its facts; of those loaded lately.

Knows replies and names of models; loads no model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.chats.database import kept_value
from runtime.models.addresses import API
from runtime.models.registry import AS_TRAINED, Pair

if TYPE_CHECKING:  # importing it is slow, and names of recent models are read without
    from app.chats.store import StoredMessage

Facts = Mapping[str, Any]
MODEL, LOADS = "model", "loads"  # facts of a reply: the model's name for people, and the name that loads it
RECENT, REMEMBERED = "recent models", 8  # the preference with the names of models loaded lately, and how many it keeps


def name_of(pair: Pair) -> str:
    """Return the name that loads a model again: a pair's own, the path of a file, or the address of a server."""
    address = f"{pair.upstream.partition('//')[0]}//{pair.name}"
    if pair.upstream.removesuffix(API) == address.rstrip("/").removesuffix(API):  # no registry has it
        return address + f"#{pair.upstream_model}" * bool(pair.upstream_model)
    return pair.name if pair.context != AS_TRAINED else str(pair.target.absolute())


def signed(pair: Pair) -> Facts:
    """Return the facts of a reply that name its model."""
    return {MODEL: pair.name, LOADS: name_of(pair)}


def is_other(facts: Facts, signature: Facts | None) -> bool:
    """Return whether another model than the signed one wrote the reply; None stands for no model. False if the author
    is not known.
    """
    known = LOADS if LOADS in facts else MODEL
    return known in facts and (signature is None or facts[known] != signature[known])


def loadable(facts: Facts, recent: Sequence[str]) -> str:
    """Return the name that loads the reply's model; replies of older versions have only a name for people."""
    name = str(facts[MODEL])
    return str(facts.get(LOADS) or next((each for each in recent if Path(each).name == name), name))


def author_of(messages: Sequence[StoredMessage]) -> Facts:
    """Return the facts of the model that wrote most replies, the latest of several; {} if no author is known."""
    replies = [each.facts for each in messages if MODEL in each.facts]
    counts = Counter(each.get(LOADS, each[MODEL]) for each in replies)
    return max(reversed(replies), key=lambda each: counts[each.get(LOADS, each[MODEL])], default={})


def label_of(messages: Sequence[StoredMessage], reply: StoredMessage) -> str:
    """Return the model of a reply if the reply before is by another one, else "". The first reply of a chat has its
    label if the chat has several models.
    """
    wrote = str(reply.facts.get(MODEL, ""))
    before = next((each for each in reversed(messages) if each.id < reply.id and MODEL in each.facts), None)
    compared = messages if before is None else [before]
    return wrote if any(each.facts.get(MODEL, wrote) != wrote for each in compared) else ""


def recent_models(path: Path | None = None) -> Iterator[str]:
    """Yield the recently loaded models, the latest first; none if the chats cannot be read, which begins here."""
    yield from names_in(kept_value(RECENT, path))


def names_in(text: str) -> list[str]:
    """Return the names in a stored list of models: pairs by name, files by path."""
    return [name for name in text.split("\n") if name]


def with_latest(name: str, recent: Sequence[str]) -> str:
    """Return the list of recent models, to be stored, after that one was loaded."""
    return "\n".join([name, *(each for each in recent if each != name)][:REMEMBERED])
