"""Origins: how browsers and webviews identify the page or app that sends a request. Must not know who admits them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from runtime.core.errors import SettingsError

LOCAL_ORIGIN = r"https?://((localhost|[a-z0-9-]+\.localhost|127\.0\.0\.1)\.?|\[::1\]|\[::ffff:7f00:1\])(:\d+)?"
ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(\*|[a-z0-9._-]+|\[[0-9a-f:.]+\])(:\d{1,5})?")


def as_origin(text: str) -> str:
    """Return an origin as it is sent. `*` stands for any host of an app's scheme. Raises SettingsError."""
    found = ORIGIN.fullmatch(text.lower().removesuffix("/"))
    if found is None:
        raise SettingsError(f"'{text}' is not an origin. Write SCHEME://HOST, such as app://obsidian.md.")
    if found[2] == "*" and found[1] in ("http", "https"):
        raise SettingsError(f"'{text}' would admit every web page. Name its host, or set an API key instead.")
    return found[0]


def pattern(origins: Iterable[str]) -> str:
    """Return a regular expression for this machine's own pages and these origins."""
    return "|".join([LOCAL_ORIGIN, *(re.escape(origin).replace(r"\*", "[^/:]+") for origin in origins)])
