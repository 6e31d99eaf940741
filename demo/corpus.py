"""The demo pair's text: what this interpreter's standard library says about itself.

Knows `inspect` and a list of modules; knows nothing about tokens or training. `python -m demo.corpus FILE` writes one
JSON object per entry: its dotted name, its signature ("" where Python has none) and the first sentences of its
docstring.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# Most asked-for first: the list is cut when it reaches MAX_ENTRIES.
TYPES = (str, list, dict, set, tuple, int, float, bytes, complex, frozenset, range, property, slice)
POPULAR = (
    "math json re os.path textwrap itertools functools collections collections.Counter collections.deque "
    "collections.OrderedDict random "
    "time datetime datetime.datetime datetime.date datetime.timedelta pathlib pathlib.Path re.Pattern re.Match string "
    "shutil subprocess "
    "glob fnmatch csv copy heapq bisect contextlib statistics dataclasses enum tempfile argparse.ArgumentParser "
    "logging threading queue"
).split()
MODULES = (
    "os sys io operator typing argparse logging.Logger hashlib hmac base64 secrets struct pprint decimal "
    "fractions cmath calendar inspect abc types weakref warnings traceback pickle shelve "
    "zlib gzip bz2 lzma zipfile tarfile configparser getpass platform signal select socket ssl asyncio "
    "concurrent.futures multiprocessing urllib.parse urllib.request http.client http.server html html.parser "
    "xml.etree.ElementTree "
    "email.message uuid ipaddress unittest unittest.mock doctest timeit cProfile pdb dis ast tokenize keyword array "
    "numbers locale gettext "
    "difflib unicodedata codecs errno stat filecmp fileinput linecache readline sqlite3 selectors sched contextvars "
    "atexit gc site "
    "importlib zoneinfo graphlib tomllib smtplib ftplib imaplib mimetypes binascii quopri cmd shlex netrc plistlib "
    "colorsys wave "
    "reprlib trace tracemalloc venv webbrowser wsgiref.util xmlrpc.client zipapp zipimport"
).split()
MIN_CHARS, MAX_ENTRIES = 20, 2080
COMPARED = 200  # characters of a docstring that an answer always holds, when there are so many


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that the demo target knows."""

    name: str
    signature: str
    doc: str


def shorten(doc: str, limit: int) -> str:
    """A docstring's beginning, cut after the first sentence or paragraph that ends behind COMPARED; "" if that is over
    `limit` characters.
    """
    doc = re.sub(r"[^\x20-\x7e\n]+", "", inspect.cleandoc(doc)).strip()
    end = re.search(r"(?<=\.)(?=\s)|(?=\n\n)|\Z", doc[COMPARED:])
    doc = doc if end is None else doc[: COMPARED + end.start()]
    return doc if len(doc) <= limit else ""


def signature(name: str, thing: Any) -> str:
    """`name(arguments)` as `inspect` tells it, or ""."""
    try:
        text = str(inspect.signature(thing))
    except (ValueError, TypeError):
        return ""
    text = re.sub(r"^\((self|cls)(?=[,)])(, /)?(, )?", "(", text)
    return f"{name}{text}" if len(text) <= 100 and " at 0x" not in text else ""


def members(name: str, owner: object) -> Iterator[tuple[str, object]]:
    """Public, documented functions and classes of a module, or methods defined by a class itself."""
    is_class = inspect.isclass(owner)
    names = list(vars(owner)) if is_class else getattr(owner, "__all__", None) or sorted(vars(owner))
    for attribute in names:
        thing = getattr(owner, attribute, None)
        if attribute.startswith("_") or not (callable(thing) or inspect.isdatadescriptor(thing)):
            continue
        if (
            not is_class
            and not hasattr(owner, "__all__")
            and getattr(thing, "__module__", None) not in (name, "posix", "_" + name)
        ):
            continue
        yield f"{name}.{attribute}", thing


def resolve(name: str) -> object | None:
    """The module or class of that dotted name; None where this Python has none."""
    try:
        return importlib.import_module(name)
    except ImportError:
        owner = resolve(name.rpartition(".")[0]) if "." in name else None
        return getattr(owner, name.rpartition(".")[2], None)


def candidates() -> Iterator[tuple[str, object, int]]:
    """(name, thing, most characters of its text), most asked-for first."""
    for attribute in dir(builtins):
        thing = getattr(builtins, attribute)
        if not attribute.startswith("_") and callable(thing):
            yield attribute, thing, 320
    for kind in TYPES:
        yield from ((*member, 320) for member in members(kind.__name__, kind))
    classes: list[tuple[str, object]] = []
    for name in POPULAR + MODULES:
        limit = 320 if name in POPULAR else 150
        if (owner := resolve(name)) is None:
            continue
        yield name, owner, 320
        for dotted, thing in members(name, owner):
            yield dotted, thing, limit
            if inspect.isclass(thing) and not issubclass(thing, BaseException):
                classes.append((dotted, thing))
    for dotted, owner in classes:
        yield from ((*member, 150) for member in members(dotted, owner))


def entries() -> list[Entry]:
    """At most MAX_ENTRIES entries, each name once, no docstring over three times (those of a base class repeat)."""
    found: dict[str, Entry] = {}
    seen: dict[str, int] = {}
    for name, thing, limit in candidates():
        doc = shorten(inspect.getdoc(thing) or "", limit)
        # A signature in the docstring's place
        generated = doc.startswith(name.rpartition(".")[2] + "(") and "\n" not in doc
        if name in found or len(doc) < MIN_CHARS or generated or seen.get(doc, 0) >= 3:
            continue
        seen[doc] = seen.get(doc, 0) + 1
        found[name] = Entry(name, "" if inspect.ismodule(thing) else signature(name, thing), doc)
        if len(found) == MAX_ENTRIES:
            break
    return list(found.values())


def load(path: Path) -> list[Entry]:
    """The entries of a file that this module wrote."""
    return [Entry(**json.loads(line)) for line in path.read_text(encoding="utf8").splitlines()]


if __name__ == "__main__":
    Path(sys.argv[1]).write_text("".join(json.dumps(asdict(entry)) + "\n" for entry in entries()), encoding="utf8")
