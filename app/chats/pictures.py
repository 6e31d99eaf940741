"""Pictures of a chat: what a question stores about each, and what a model reads in its place.

Knows questions and bytes of files; reads no file and decodes no picture.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from runtime.engine import ChatPrompt, Prompt, mark_of, mark_of_hash, marks_in, with_images
from runtime.models.picture import PictureSize

PICTURES = "pictures"  # fact of a question
UNSEEN = "[a picture that is not shown]"  # for a model that sees none, and for one that is lost


class ChatPicture(NamedTuple):
    """A picture that was asked about. The store has its file by the hash, `key`."""

    name: str  # as it was written after the @
    key: str
    size: str  # for people, such as PNG, 640 x 480 pixels

    @property
    def line(self) -> str:
        """Its name and size."""
        return f"{self.name}, {self.size}"

    @property
    def mark(self) -> str:
        """Its mark in a prompt."""
        return mark_of_hash(self.key)


Attached = Mapping[ChatPicture, bytes]  # pictures with their files


def picture_of(name: str, data: bytes, size: PictureSize) -> ChatPicture:
    """Return what is stored about a picture's file."""
    return ChatPicture(name, hashlib.sha256(data).hexdigest(), f"{size.kind}, {size.width} x {size.height} pixels")


def facts_of(pictures: Iterable[ChatPicture]) -> dict[str, Any]:
    """Return the facts of a question with these pictures."""
    found = [list(each) for each in pictures]
    return {PICTURES: found} if found else {}


def pictures_in(facts: Mapping[str, Any]) -> list[ChatPicture]:
    """Return the pictures of a question, from its facts; what a damaged disk has changed is left out."""
    listed = facts.get(PICTURES)
    return [
        ChatPicture(*each)
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, list) and len(each) == len(ChatPicture._fields) and all(isinstance(x, str) for x in each)
    ]


def with_marks(text: str, pictures: Sequence[ChatPicture]) -> str:
    """Return a question after its pictures, each as its name and its mark, as attached files are."""
    return "\n\n".join([*(f"{each.name}:\n{each.mark}" for each in pictures), text])


def noted(prompt: ChatPrompt, images: Collection[bytes]) -> ChatPrompt:
    """Return a conversation with a note in place of each mark whose image is not there."""
    marks = set(map(mark_of, images))

    def shown(mark: str) -> str:
        return mark if mark in marks else UNSEEN

    messages = (replace(each, content=marks_in(each.content, shown)) for each in prompt.messages)
    return replace(prompt, messages=tuple(messages))


def shown_to(prompt: ChatPrompt, images: Collection[bytes]) -> Prompt:
    """Return a conversation with its images, none for a model that does not see, and with notes for the others."""
    return with_images(noted(prompt, images), images)


def part_of(data: bytes, picture: ChatPicture) -> dict[str, Any]:
    """Return a picture as a part of a message in the format of OpenAI's API."""
    url = f"data:image/{picture.size.partition(',')[0].lower()};base64,{base64.b64encode(data).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}
