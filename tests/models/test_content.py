"""Other weights under the same name, with the same size and time, are another model for all that is kept of one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bench.instruments.shapes import TINY, write_random
from runtime.core import spawning
from runtime.core.errors import ModelError
from runtime.engine import Options, Sampling
from runtime.engine.process.client import EngineProcess
from runtime.loading.profile_cache import fingerprint
from runtime.models import content
from runtime.models.content import content_of, state_of
from runtime.models.header import TensorInfo, read_header
from runtime.models.registry import Pair, bundled

PROMPT = " ".join(f"Line {i}: the ferry left {i} minutes late and nobody minded." for i in range(12))
SEEDED = Sampling(temperature=0, seed=1)


def in_place(path: Path, change: Callable[[bytearray], None]) -> None:
    """Change the bytes of a file, and neither its size nor its time."""
    before, data = path.stat(), bytearray(path.read_bytes())
    change(data)
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def inverted(start: int, n: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        data[start : start + n] = bytes(255 - byte for byte in data[start : start + n])

    return change


def places(path: Path) -> Iterator[tuple[TensorInfo, int]]:
    """Each tensor and its position in the file."""
    header = read_header(path)
    return ((tensor, header.data_start + tensor.offset) for tensor in header.tensors)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copy(bundled("demo/draft.gguf"), tmp_path / "model.gguf"))


@pytest.mark.parametrize("part", ["all", "first quarter", "last quarter"])
def test_every_tensor_counts_also_where_only_a_part_of_it_changes(model: Path, part: str) -> None:
    known = {fingerprint(model, "x")}
    for tensor, start in places(model):
        n = tensor.n_bytes if part == "all" else max(1, tensor.n_bytes // 4)
        in_place(model, inverted(start + tensor.n_bytes - n if part == "last quarter" else start, n))
        found = fingerprint(model, "x")
        assert found not in known, tensor.name
        known.add(found)


def test_the_settings_in_a_header_count(model: Path) -> None:
    before, name = state_of(model), b"llama.rope.freq_base"
    in_place(model, lambda data: inverted(data.index(name) + len(name) + 4, 2)(data))
    assert state_of(model) != before


def test_a_change_of_a_megabyte_in_a_gigabyte_is_noticed(tmp_path: Path) -> None:
    """In a file without holes it would take a minute to write; samples lie as far apart in this one."""
    path = tmp_path / "large.gguf"
    with path.open("wb") as file:
        file.truncate(2**30)
    before, status = content_of(path), path.stat()
    with path.open("r+b") as file:
        file.seek(678_901_234)
        file.write(b"x" * 2**20)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert content_of(path) != before


def test_every_shard_counts(tmp_path: Path) -> None:
    parts = [tmp_path / f"model-0000{i}-of-00002.gguf" for i in (1, 2)]
    for part in parts:
        write_random(part, TINY)
    before = fingerprint(parts[0])
    tensor, start = next(places(parts[1]))
    in_place(parts[1], inverted(start, tensor.n_bytes))
    assert fingerprint(parts[0]) != before


def test_the_same_content_elsewhere_or_later_is_the_same_content(model: Path) -> None:
    copy = Path(shutil.copy(model, model.with_name("copy.gguf")))
    assert content_of(copy) == content_of(model)
    before = state_of(model)
    os.utime(model, (1, 1))
    assert state_of(model) != before
    os.link(model, model.with_name("link.gguf"))
    model.chmod(0o400)
    os.utime(model, ns=(0, 10**9))
    assert state_of(model) == state_of(model.with_name("link.gguf"))


def test_what_is_no_model_has_content_too_and_what_is_gone_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "notes.gguf"
    path.write_bytes(b"x" * 5000)
    before = fingerprint(path)
    in_place(path, inverted(2000, 2000))
    assert fingerprint(path) != before
    with pytest.raises(ModelError):
        read_header(path)
    path.write_bytes(b"")
    assert fingerprint(path) != before
    path.unlink()
    with pytest.raises(OSError, match="No such file"):
        fingerprint(path)


def test_an_unchanged_file_is_sampled_once(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = state_of(model)
    monkeypatch.setattr(content, "samples", None)
    assert state_of(model) == before


def test_other_weights_get_no_stored_prompt_and_give_their_own_reply(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the models' own process, with a prompt cache on disk, as people have it."""
    shutil.copy(bundled("demo/target.gguf"), model)
    monkeypatch.setattr(spawning, "HOST", "tests.support.eager_host")

    def reply(n_bytes: int) -> tuple[str, int]:
        options = Options(threads=1, n_ctx=1024, drafters=(), prompt_bytes=n_bytes)
        with closing(EngineProcess(Pair("model", model), options)) as engine:
            *chunks, last = engine.reply(PROMPT, SEEDED, 16)
            assert last.stats is not None
            return "".join(chunk.text for chunk in (*chunks, last)), last.stats.cached_n

    first, n_cached = reply(10**9)
    assert n_cached == 0
    assert reply(10**9)[1] > 100  # it is stored
    blocks = [(start, tensor.n_bytes) for tensor, start in places(model) if ".ffn_" in tensor.name]

    def swapped(data: bytearray) -> None:
        for start, n in blocks:
            data[start : start + n] = data[start + n // 2 : start + n] + data[start : start + n // 2]

    in_place(model, swapped)
    found = reply(10**9)
    assert found == (reply(0)[0], 0)
    assert found[0] != first
