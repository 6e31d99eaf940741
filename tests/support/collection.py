"""llama.cpp's own collection of chat templates and vocabularies, from the source package of llama-cpp-python: fetched
once into a cache folder, checked, and never built.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

from bench.instruments.weights import FOLDER, TIMEOUT, FetchError

NAME = "llama_cpp_python-0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
INSIDE = PurePosixPath(NAME, "vendor/llama.cpp/models")
PIP = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:"]


def fetched_collection(folder: Path = FOLDER) -> Path:
    """Return the folder with `templates/*.jinja` and `ggml-vocab-*.gguf`. Raises FetchError where it cannot be had."""
    found = folder / f"collection-{NAME}"
    if not found.is_dir():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as temporary:
                unpack(download(Path(temporary)), Path(temporary) / "models")
                (Path(temporary) / "models").rename(found)
        except OSError as error:
            raise FetchError(f"The collection of templates cannot be kept in {folder}: {error.strerror}.") from error
    return found


def download(folder: Path) -> Path:
    """The source package. Raises FetchError."""
    package = NAME.replace("_", "-").rpartition("-")
    command = [*PIP, "--dest", str(folder), f"{package[0]}=={package[2]}"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT)
    except (subprocess.SubprocessError, OSError) as error:
        raise FetchError(f"The source package of {package[0]} cannot be fetched ({type(error).__name__}).") from error
    archive = folder / f"{NAME}.tar.gz"
    if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
        raise FetchError(f"{archive.name} is not what is expected: its checksum differs.")
    return archive


def unpack(archive: Path, into: Path) -> None:
    """The templates and vocabularies alone."""
    into.mkdir()
    (into / "templates").mkdir()
    with tarfile.open(archive) as source:
        for member in source:
            path = PurePosixPath(member.name)
            if member.isfile() and path.is_relative_to(INSIDE) and path.suffix in (".jinja", ".gguf"):
                data = source.extractfile(member)
                assert data is not None
                with data, (into / path.relative_to(INSIDE)).open("wb") as target:
                    shutil.copyfileobj(data, target)


@cache
def collection() -> Path:
    """The folder, or the test is skipped with the reason."""
    try:
        return fetched_collection()
    except FetchError as error:
        pytest.skip(str(error))
