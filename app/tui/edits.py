"""Edits of attached files in replies: finds the code block that is a new version of a file, and its diff.

Knows texts and their similarity; reads and writes no file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, unified_diff
from itertools import combinations, islice

from app.chats.store import StoredMessage
from app.reply_text import split_reasoning
from app.tui.attach import attached_in, fenced
from app.tui.markdown_dialect import markdown_parser

ACCEPTED = "accepted"  # fact of a reply: paths of the files that were written with its edits
ALIKE = 0.5  # share of common lines from which on a block counts as the edited file
ALIKE_LETTERS = 0.6  # the same by letters, for a short file, where every line may have changed
SHORT = 2000  # letters
AROUND = 3  # lines shown around a change
FENCE = re.compile(r"^(`{3,}|~{3,})([^`\n]*)$", re.MULTILINE)
LEFT_OUT = re.compile(r"(\.\.\.|…).*\b(rest|existing|unchanged|remain\w*|same|omitted)\b|"
                      r"\b(rest|existing|unchanged|remain\w*|same|omitted)\b.*(\.\.\.|…)", re.IGNORECASE)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Edit:
    """A file before an edit, as the chat knows it, and after it, as in a reply; without line breaks at the end."""

    path: str
    before: str
    after: str

    @property
    def diff(self) -> list[str]:
        """The lines of a unified diff without its file header: removed (-), added (+) and context lines."""
        lines = unified_diff(self.before.split("\n"), self.after.split("\n"), n=AROUND, lineterm="")
        return list(lines)[2:]

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of added and removed lines."""
        return sum(line.startswith("+") for line in self.diff), sum(line.startswith("-") for line in self.diff)

    @property
    def leaves_out(self) -> bool:
        """Whether the reply only hints at a part of the file, as in `# ... rest as before`."""
        return any(line.startswith("+") and LEFT_OUT.search(line) for line in self.diff)


def edits_in(reply: str, files: Mapping[str, str]) -> list[Edit]:
    """Return the edits of files in a reply, each from the block that is most similar to the file."""
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
    """Return the contents of the Markdown code blocks in a text."""
    tokens = markdown_parser().parse(text)
    return [each.content.rstrip("\n") for each in tokens if each.type == "fence"]


def closest_span(answer: str, text: str) -> tuple[float, str]:
    """Return the similarity and the text of the span of an answer that is most similar to `text`, a file with fences of
    its own.

    Markdown would end a block at the first inner fence. Returns (0.0, "") if the span is more similar to one of the
    file's own code blocks.
    """
    spans = [*islice(spans_in(answer), 100), unfenced(answer, text)]
    share, span = max((likeness(text, span), span) for span in spans)
    is_part = any(likeness(part, span) > share for part in code_blocks(text))
    return (0.0, "") if is_part else (share, span)


def spans_in(answer: str) -> Iterator[str]:
    """Yield the text between each fence and a later one that may close it, if all fences in between are paired."""
    fences = list(FENCE.finditer(answer))
    for i, j in combinations(range(len(fences)), 2):
        if closes(fences[j], fences[i]) and are_paired(fences[i + 1 : j]):
            yield answer[fences[i].end() + 1 : fences[j].start()].rstrip("\n")


def closes(fence: re.Match[str], opening: re.Match[str]) -> bool:
    """Return whether a fence may close the opening one: at least as long, and with no word after it."""
    return fence[1].startswith(opening[1]) and not fence[2].strip()


def are_paired(fences: Sequence[re.Match[str]]) -> bool:
    """Return whether every opening fence is closed."""
    opening: re.Match[str] | None = None
    for fence in fences:
        if opening is None:
            opening = fence
        elif closes(fence, opening):
            opening = None
    return opening is None


def unfenced(answer: str, text: str) -> str:
    """Return the part of an answer from the file's first line to its last one, without a fence; "" if either is
    missing.
    """
    lines, known = answer.split("\n"), text.strip("\n").split("\n")
    if known[0] not in lines or known[-1] not in lines:
        return ""
    return "\n".join(lines[lines.index(known[0]) : len(lines) - lines[::-1].index(known[-1])])


def likeness(text: str, other: str) -> float:
    """Return the similarity of two texts, as a multiple of the threshold for an edited copy."""
    lines = share_in_common(text.split("\n"), other.split("\n"), ALIKE) / ALIKE
    if max(len(text), len(other)) > SHORT:
        return lines
    return max(lines, share_in_common(text, other, ALIKE_LETTERS) / ALIKE_LETTERS)


def share_in_common(one: Sequence[str], other: Sequence[str], least: float) -> float:
    """Return the common share of lines or letters; 0.0 below `least`."""
    matcher = SequenceMatcher(None, one, other, autojunk=isinstance(one, list))  # frequent lines are slow
    may_be = matcher.real_quick_ratio() >= least and matcher.quick_ratio() >= least
    return matcher.ratio() if may_be else 0.0


def files_in(messages: Sequence[StoredMessage]) -> dict[str, str]:
    """Return the files attached to the questions, each in its latest version: as attached, or as written by an accepted
    edit.
    """
    files: dict[str, str] = {}
    for each in messages:
        if each.role == "user":
            files |= attached_in(each.content)
        elif paths := each.facts.get(ACCEPTED):
            files |= {edit.path: edit.after for edit in edits_in(each.content, files) if edit.path in paths}
    return files


def last_edits(messages: Sequence[StoredMessage]) -> list[Edit]:
    """Return the edits in the last message, a reply, that were not accepted yet; none for an incomplete reply."""
    if not messages or messages[-1].role != "assistant" or "end" in messages[-1].facts:
        return []
    accepted = messages[-1].facts.get(ACCEPTED, [])
    return [edit for edit in edits_in(messages[-1].content, files_in(messages[:-1])) if edit.path not in accepted]


def expected_in(messages: Sequence[StoredMessage]) -> str:
    """Return text that a reply to the last question is likely to repeat: the files attached to it, or else those that
    the reply before it edited, in their edited versions.
    """
    at = max((i for i, each in enumerate(messages) if each.role == "user"), default=0)
    if not messages:
        return ""
    named = attached_in(messages[at].content)
    if not named and at:
        named = {edit.path: edit.after for edit in edits_in(messages[at - 1].content, files_in(messages[: at - 1]))}
    return "\n\n".join(fenced(path, text) for path, text in named.items())
