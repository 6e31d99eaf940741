"""What changes of an engine while its pair is loaded. Plain data."""

from __future__ import annotations

from typing import NamedTuple


class Status(NamedTuple):
    """The state of an engine."""

    n_running: int = 0  # replies
    n_waiting: int = 0  # replies, until others have ended
    n_held: int = 0  # cached conversations
    memory_level: str = "OK"  # at the last token: OK, TIGHT or CRITICAL
    given_up: str = ""  # what is suspended because memory is short, and why, with numbers
    learning: str = ""  # state of the head's training, or why there is none, in a clause; "": the pair asks for none
    ahead: tuple[int, int] = (0, 0)  # tokens read ahead, and those of them that later prompts had in the cache
    preparing: tuple[int, ...] = ()  # numbers of requests whose prompts are encoded and whose grammars are compiled
