"""Images in request bodies: their bytes, from data URLs and Base64, and the mark that stands for each in the text.

Nothing is fetched: else a request could choose what this machine asks of others.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from app.server.fields import (
    MEDIA,
    Few,
    Many,
    OtherPart,
    RequestModel,
    Text,
    TextPart,
    as_parts,
    refuse_media,
    require_list,
    sees_images,
)
from runtime.core.errors import PictureError
from runtime.engine import mark_of
from runtime.models.picture import MAX_BYTES, check_picture

MEDIA_MARK = "<__media__>"  # as llama.cpp names it
DATA_URL = re.compile(r"data:[\w.+-]*/?[\w.+-]*(?:;[\w=.+-]+)*;base64,", re.ASCII | re.IGNORECASE)
SENT = "Input should be a data URL, such as data:image/png;base64,...: addresses are not fetched, and files not read"


class ImagePart(TextPart):
    """An image in a message. Its text is its mark."""

    image: Annotated[bytes, Field(max_length=MAX_BYTES)]


def read_media(value: object, info: ValidationInfo) -> object:
    """Return a part of a message, an image as an ImagePart. Raises PydanticCustomError for other media, for images that
    cannot be read, and for all where the model sees none.
    """
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(value, dict) and sees_images(info) and isinstance(kind, str) and MEDIA.get(kind) == "image":
        return image_part(encoded_in(value))
    return refuse_media(value)


ChatContent = Annotated[
    Many[Annotated[TextPart, BeforeValidator(read_media)]],
    BeforeValidator(as_parts, json_schema_input_type=Text | list[TextPart | OtherPart]),
]


def encoded_in(part: dict[str, Any]) -> object:
    """Return what a part in OpenAI's or Anthropic's format has: a data URL, or Base64."""
    source = part.get("source")
    if isinstance(source, dict):
        return source.get("data") if source.get("type") == "base64" else source.get("url") or ""
    url = part.get("image_url")
    return url.get("url") if isinstance(url, dict) else url


def image_part(text: object) -> ImagePart:
    """Return the part for an image, given as a data URL or in Base64. Raises PydanticCustomError."""
    data = image_bytes(text)
    return ImagePart(type="text", text=mark_of(data), image=data)


def image_bytes(text: object) -> bytes:
    """Return the file of an image. Raises PydanticCustomError if it is none, or none that can be read."""
    head = DATA_URL.match(text) if isinstance(text, str) else None
    if not isinstance(text, str) or (head is None and ":" in text[:10]):
        raise PydanticCustomError("image_url", SENT)
    try:
        data = base64.b64decode(text[head.end() if head else 0 :], validate=True)
    except (binascii.Error, ValueError):
        raise PydanticCustomError("image_base64", "Input should be an image in Base64") from None
    try:
        check_picture(data)
    except PictureError as error:
        raise PydanticCustomError(
            "image", "Input should be another image: {why}", {"why": str(error).rstrip(".")}
        ) from None
    return data


def read_images(value: object, info: ValidationInfo) -> object:
    """Return a list of images in Base64, as parts. Raises PydanticCustomError for any where the model sees none."""
    if not value:
        return value
    if not sees_images(info):
        raise PydanticCustomError("unsupported", "Input should be empty: image input is not supported, so leave it out")
    return [image_part(each) for each in require_list(value)]


Images = Annotated[
    Few[ImagePart],
    BeforeValidator(read_images, json_schema_input_type=list[str]),
]


class MarkedPrompt(RequestModel):
    """A text with the marks of images, and these."""

    text: Text
    images: Few[ImagePart]


def marked(text: object, data: object) -> MarkedPrompt:
    """Return a prompt in which each of llama.cpp's marks stands for an image in Base64. Raises PydanticCustomError."""
    images = [image_part(each) for each in require_list(data)]
    if not isinstance(text, str) or text.count(MEDIA_MARK) != len(images):
        message = "Input should have {mark} once for each of the {n} images in multimodal_data"
        raise PydanticCustomError("multimodal", message, {"mark": MEDIA_MARK, "n": len(images)})
    first, *rest = text.split(MEDIA_MARK)
    whole = first + "".join(image.text + part for image, part in zip(images, rest, strict=True))
    return MarkedPrompt(text=whole, images=images)


def images_of(parts: Iterable[object]) -> Iterator[bytes]:
    """Yield the images among the parts of messages."""
    return (part.image for part in parts if isinstance(part, ImagePart))
