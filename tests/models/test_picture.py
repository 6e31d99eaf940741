"""A picture is checked before anything decodes it: one sentence for each that cannot be read, whatever its bytes."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.core.errors import PictureError
from runtime.models.picture import MAX_BYTES, PictureSize, check_picture
from tests.support import pictures

PNG = pictures.png(pictures.noise(7, 5))
PIXELS = pictures.noise(8, 5)
TEXT = pictures.chunk(b"tEXt", b"Comment\0" + bytes(2**20))
BOMB = pictures.png(PIXELS, data=bytes(2**24))
WHOLE = {
    "png": (PNG, PictureSize("PNG", 7, 5)),
    "jpeg": (pictures.jpeg(640, 480), PictureSize("JPEG", 640, 480)),
    "gif": (pictures.gif(), PictureSize("GIF", 1, 1)),
    "bmp": (pictures.bmp(PIXELS), PictureSize("BMP", 8, 5)),
    "text": (pictures.png(PIXELS, [TEXT]), PictureSize("PNG", 8, 5)),
}
REFUSED = {
    "huge": (pictures.png(PIXELS, size=(100_000, 100_000)), "100000 x 100000 pixels"),
    "wide": (pictures.jpeg(65_535, 2), "65535 x 2 pixels"),
    "truncated": (PNG[:-20], "damaged or incomplete"),
    "without its end": (PNG[:-12], "damaged or incomplete"),
    "empty": (pictures.png(PIXELS, size=(0, 5)), "damaged or incomplete"),
    "bomb": (BOMB, "inflates to more than its 8 x 5 pixels"),
    "text": (PNG[:33] + struct.pack(">I", 2**31) + b"tEXt" + PNG[33:], "damaged or incomplete"),
    "long": (bytes(MAX_BYTES + 1), "33 MiB|32 MiB"),
    "animated": (pictures.gif(2), "an animated GIF"),
    "outside": (pictures.gif(inner=(9, 9)), "damaged or incomplete"),
    "scans": (pictures.jpeg(9, 9, 100), "more than 64 scans"),
    "half": (pictures.jpeg(9, 9)[:-2], "damaged or incomplete"),
    "short": (pictures.bmp(PIXELS)[:-1], "damaged or incomplete"),
    "svg": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "is an SVG, which cannot be read"),
    "xml": (b"<?xml version='1.0'?><svg/>", "is an SVG"),
    "webp": (b"RIFF\0\0\0\0WEBPVP8 ", "is a WebP"),
    "heic": (b"\0\0\0\x18ftypheic", "is a HEIC"),
    "sound": (b"RIFF\0\0\0\0WAVEfmt ", "is not a picture"),
    "nothing": (b"", "is not a picture"),
}


@pytest.mark.parametrize(("data", "size"), WHOLE.values(), ids=WHOLE)
def test_a_whole_picture_has_its_format_and_size(data: bytes, size: PictureSize) -> None:
    assert check_picture(data) == size


@pytest.mark.parametrize(("data", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_refused_in_a_sentence(data: bytes, message: str) -> None:
    with pytest.raises(PictureError, match=f"photo.png .*({message})") as refused:
        check_picture(data, "photo.png")
    assert str(refused.value).count("\n") == 0
    assert str(refused.value).endswith(".")


@given(st.sampled_from(["png", "jpeg", "gif", "bmp"]), st.data())
def test_no_bytes_raise_anything_else(kind: str, choices: st.DataObject) -> None:
    data = WHOLE[kind][0]
    changed = bytearray(data)
    for _ in range(choices.draw(st.integers(1, 4))):
        changed[choices.draw(st.integers(0, len(data) - 1))] = choices.draw(st.integers(0, 255))
    cut = bytes(changed[: choices.draw(st.integers(0, len(data)))])
    for each in (bytes(changed), cut):
        with suppress(PictureError):
            check_picture(each)


@pytest.mark.parametrize("kind", WHOLE)
def test_no_beginning_of_a_picture_is_one(kind: str) -> None:
    data = WHOLE[kind][0]
    for end in range(0, len(data), 1 + len(data) // 200):
        with pytest.raises(PictureError):
            check_picture(data[:end])
