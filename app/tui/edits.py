"""A file that a question names, as a reply would have it: which of the reply's blocks that is, and what it changes.

Knows texts and how alike they are; reads and writes no file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, unified_diff
from itertools import combinations, islice

from app.chats.store import StoredMessage
from app.reasoning import split_reasoning
from app.tui.desktop.attach import attached_in, fenced
from app.tui.markdown_dialect import markdown_parser

ACCEPTED = "accepted"  # a fact of a reply: the files that were written as it has them
ALIKE = 0.5  # share of lines in common from which on a block is the file, edited
ALIKE_LETTERS = 0.6  # the same for the letters of a short file, of which each line may be another
SHORT = 2000  # letters
AROUND = 3  # lines shown around a change
FENCE = re.compile(r"^(`{3,}|~{3,})([^`\n]*)$", re.MULTILINE)
MOST_SPANS = 100  # compared with a file
LEFT_OUT = re.compile(r"(\.\.\.|…).*\b(rest|existing|unchanged|remain\w*|same|omitted)\b|"
                      r"\b(rest|existing|unchanged|remain\w*|same|omitted)\b.*(\.\.\.|…)", re.IGNORECASE)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Edit:
    """A file as the chat knows it, and as a reply has it; without line breaks at the end."""

    path: str
    before: str
    after: str

    @property
    def diff(self) -> list[str]:
        """The lines that go (-), come (+) and stay around them, below a line @@ with their numbers for each place."""
        lines = unified_diff(self.before.split("\n"), self.after.split("\n"), n=AROUND, lineterm="")
        return list(lines)[2:]

    @property
    def counts(self) -> tuple[int, int]:
        """How many lines come and go."""
        return sum(line.startswith("+") for line in self.diff), sum(line.startswith("-") for line in self.diff)

    @property
    def leaves_out(self) -> bool:
        """Does the reply only hint at a part of the file, as in `# ... rest as before`?"""
        return any(line.startswith("+") and LEFT_OUT.search(line) for line in self.diff)


def edits_in(reply: str, files: Mapping[str, str]) -> list[Edit]:
    """The files that a reply has otherwise than they are, by the block that is most like each."""
    if not files:
        return []
    answer, closest = split_reasoning(reply)[1], dict[str, tuple[float, str]]()
    fenced = [path for path, text in files.items() if FENCE.search(text)]
    for block in code_blocks(answer) or [answer.strip("\n")]:
        share, path = max((likeness(text, block), path) for path, text in files.items())
        if share >= closest.get(path, (1.0, ""))[0] and path not in fenced:
            closest[path] = share, block
    closest |= {path: found for path in fenced if (found := closest_span(answer, files[path]))[0] >= 1}
    return [
        Edit(path, text, closest[path][1]) for path, text in files.items() if closest.get(path, (0, text))[1] != text
    ]


def code_blocks(text: str) -> list[str]:
    """What Markdown takes for blocks of code."""
    tokens = markdown_parser().parse(text)
    return [each.content.rstrip("\n") for each in tokens if each.type == "fence" and each.markup != ">>>"]


def closest_span(answer: str, text: str) -> tuple[float, str]:
    """The part of an answer that is most like a file with code blocks in it, which Markdown would end at the first of
    them; (0.0, "") where that is most like one of these blocks.
    """
    spans = [*islice(spans_in(answer), MOST_SPANS), unfenced(answer, text)]
    share, span = max((likeness(text, span), span) for span in spans)
    is_part = any(likeness(part, span) > share for part in code_blocks(text))
    return (0.0, "") if is_part else (share, span)


def spans_in(answer: str) -> Iterator[str]:
    """What stands between any fence and a later one that may close it, where each fence between has its pair."""
    fences = list(FENCE.finditer(answer))
    for i, j in combinations(range(len(fences)), 2):
        if closes(fences[j], fences[i]) and are_paired(fences[i + 1 : j]):
            yield answer[fences[i].end() + 1 : fences[j].start()].rstrip("\n")


def closes(fence: re.Match[str], opening: re.Match[str]) -> bool:
    """Is it at least as long as the opening one, and has no word behind it?"""
    return fence[1].startswith(opening[1]) and not fence[2].strip()


def are_paired(fences: Sequence[re.Match[str]]) -> bool:
    """Is every opening fence closed?"""
    opening: re.Match[str] | None = None
    for fence in fences:
        if opening is None:
            opening = fence
        elif closes(fence, opening):
            opening = None
    return opening is None


def unfenced(answer: str, text: str) -> str:
    """From the file's first line in an answer to its last one, where no fence is around it; "" where one is missing."""
    lines, known = answer.split("\n"), text.strip("\n").split("\n")
    if known[0] not in lines or known[-1] not in lines:
        return ""
    return "\n".join(lines[lines.index(known[0]) : len(lines) - lines[::-1].index(known[-1])])


def likeness(text: str, other: str) -> float:
    """How alike two texts are, as a multiple of what makes one an edited copy of the other."""
    lines = share_in_common(text.split("\n"), other.split("\n"), ALIKE) / ALIKE
    if max(len(text), len(other)) > SHORT:
        return lines
    return max(lines, share_in_common(text, other, ALIKE_LETTERS) / ALIKE_LETTERS)


def share_in_common(one: Sequence[str], other: Sequence[str], least: float) -> float:
    """Of lines or letters; 0.0 where it is less than `least`."""
    matcher = SequenceMatcher(None, one, other, autojunk=isinstance(one, list))  # frequent lines take long
    may_be = matcher.real_quick_ratio() >= least and matcher.quick_ratio() >= least
    return matcher.ratio() if may_be else 0.0


def files_in(messages: Sequence[StoredMessage]) -> dict[str, str]:
    """The files that questions named, each as it was read last, or as it was written where a reply's was accepted."""
    files: dict[str, str] = {}
    for each in messages:
        if each.role == "user":
            files |= attached_in(each.content)
        elif paths := each.facts.get(ACCEPTED):
            files |= {edit.path: edit.after for edit in edits_in(each.content, files) if edit.path in paths}
    return files


def last_edits(messages: Sequence[StoredMessage]) -> list[Edit]:
    """What the last message, a reply, would change and was not accepted yet; nothing of one that was cut off."""
    if not messages or messages[-1].role != "assistant" or "end" in messages[-1].facts:
        return []
    accepted = messages[-1].facts.get(ACCEPTED, [])
    return [edit for edit in edits_in(messages[-1].content, files_in(messages[:-1])) if edit.path not in accepted]


def expected_in(messages: Sequence[StoredMessage]) -> str:
    """What a reply to the last question is likely to repeat: the files that it names, or else those that the reply
    before it edited, as that has them.
    """
    at = max((i for i, each in enumerate(messages) if each.role == "user"), default=0)
    if not messages:
        return ""
    named = attached_in(messages[at].content)
    if not named and at:
        named = {edit.path: edit.after for edit in edits_in(messages[at - 1].content, files_in(messages[: at - 1]))}
    return "\n\n".join(fenced(path, text) for path, text in named.items())
