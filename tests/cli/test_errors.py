"""What is wrong with a call of `slipstream` is said in one clear line, with the remedy."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from bench.instruments.shapes import TINY, write_random
from tests.support.cli import failing, spawned
from tests.support.mute import write_mute


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("-m", "{junk}"), "not a GGUF file"),
        (("-m", "{cut}"), "damaged or incomplete. Download it again"),
        (("-m", "{headless}"), "damaged or incomplete"),
        (("-m", "{foreign}"), "architecture 'martian', which this version of llama.cpp cannot run"),
        (("-m", "{folder}"), "Name one of them"),
        (("--draft", "{mute}"), "mute.gguf cannot draft for target.gguf: only 0% of the words of usual text"),
        (("--draft", "{cut}"), "damaged or incomplete"),
        (("-m", "{tiny}"), "has no chat template"),
        (("--top-p", "0"), "top_p is 0.0"),
        (("--repetition-penalty", "0"), "repetition_penalty is 0.0"),
        (("--regex", "(open"), "The regex cannot be used"),
        (("--json-schema", "{schema}"), "The json_schema is not valid JSON"),
        (("--context", "16"), "the context holds 16"),
    ],
)
@pytest.mark.usefixtures("models_here")
def test_bad_input_gets_one_line_with_the_remedy(bad_files: dict[str, Path], args: tuple[str, ...], words: str) -> None:
    assert words in failing(
        "run", "What is a list in Python, and what is it good for?", *(arg.format(**bad_files) for arg in args)
    )


@pytest.fixture(scope="module")
def bad_files(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> dict[str, Path]:
    folder, data = tmp_path_factory.mktemp("bad"), tiny.read_bytes()
    contents = {
        "junk": b"not a model",
        "cut": data[: len(data) // 2],
        "headless": data[:100],
        "foreign": data.replace(b"llama", b"marti", 0),
    }
    files = {name: folder / f"{name}.gguf" for name in contents}
    for name, content in contents.items():
        files[name].write_bytes(content)
    write_random(files["foreign"], TINY, architecture="martian")
    (folder / "schema.json").write_text('{"type":')
    return {
        **files,
        "tiny": tiny,
        "mute": write_mute(folder / "mute.gguf"),
        "folder": folder,
        "schema": folder / "schema.json",
    }


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("run",), "There is no prompt"),
        (("run", "x", "--max-k", "0"), "--max-k"),
        (("run", "x", "--nonsense"), "--nonsense"),
        (("run", "x", "--draft", "off", "--drafters", "model"), "needs a draft model"),
        (("run", "x", "--draft", "none", "--drafters", "model"), "needs a draft model"),
        (("run", "x", "--lark", "/no/such/grammar"), "cannot be read"),
    ],
)
def test_wrong_usage_exits_with_two(args: tuple[str, ...], words: str) -> None:
    assert words in failing(*args, code=2).replace("│ ", "")


@pytest.mark.parametrize("option", ["-m", "--draft"])
@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_what_is_no_file_is_no_model(tmp_path: Path, kind: str, option: str) -> None:
    path = Path("/dev/zero") if kind == "device" else tmp_path / "x.gguf"
    with no_file(path, kind):
        assert f"{path} cannot be read (it is not a file" in failing("run", "x", option, str(path))


@pytest.mark.parametrize("name", ["models.toml", "settings.toml"])
@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "folder"])
def test_what_is_no_file_holds_no_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "slipstream" / name
    path.parent.mkdir()
    with no_file(path, kind):
        assert f"{path} cannot be read (it is " in failing("run", "x")


@contextmanager
def no_file(path: Path, kind: str) -> Iterator[None]:
    """Something else of that name."""
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "socket":
            listener.bind(str(path))
        elif kind == "folder":
            path.mkdir()
        elif not path.exists():
            path.symlink_to("/dev/zero")
        yield


@pytest.mark.parametrize("n_bytes", [1.75e8, 2.1e8, 2.5e8])
def test_memory_that_runs_out_is_one_sentence(n_bytes: float) -> None:
    done = spawned("run", "x", "--max-tokens", "2", preexec_fn=lambda: limit(int(n_bytes)))
    assert done.returncode in (0, 1)  # what is enough differs from machine to machine
    assert "Traceback" not in done.stderr
    assert done.returncode == 0 or done.stderr


def limit(n_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (n_bytes, n_bytes))
