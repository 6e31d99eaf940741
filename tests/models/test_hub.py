"""Fetching with the hub's real client from a local hub that cuts, lies, refuses and drips."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from typer.testing import CliRunner

from app.models import hub as commands
from app.models.cli import app as models
from bench.instruments.fuzz import sample
from runtime.core.errors import ModelError, SlipstreamError
from runtime.models.hub import fetch
from runtime.models.hub.cache import cached, cached_path, remove
from runtime.models.hub.fetch import Hub
from runtime.models.hub.names import HubError, UnreachableError, is_safe, pick, split_name
from runtime.models.model_files import hub_name
from runtime.models.registry import find_pair, load_registry
from runtime.models.shards import is_first_shard
from tests.support.hub_server import Behaviour, serving

CONTENT = sample() + bytes(range(256)) * 1024
NAME, FILE = "owner/small", "small-Q4_K_M.gguf"
FILES = {
    f"{NAME}/{FILE}": CONTENT,
    f"{NAME}/small-Q8_0.gguf": CONTENT[::-1],
    f"{NAME}/README.md": b"words",
    "owner/split/big-00001-of-00002.gguf": CONTENT[:5000],
    "owner/split/big-00002-of-00002.gguf": CONTENT[:3000],
    "owner/bad/../../evil.gguf": b"x",
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pull waits a while after an attempt that brought nothing."""
    monkeypatch.setattr(fetch, "PAUSE", 0.0)


@pytest.fixture
def how() -> Behaviour:
    return Behaviour(dict(FILES))


@pytest.fixture
def hub(how: Behaviour, tmp_path: Path) -> Iterator[Hub]:
    with serving(how) as endpoint:
        yield Hub(endpoint, tmp_path / "cache", "secret")


def pull(hub: Hub, name: str = f"{NAME}:{FILE}") -> Path:
    return hub.pull(name, hub.plan(name), lambda file, n: None)


def stored(hub: Hub) -> list[str]:
    """Files with content in the cache."""
    return sorted(
        path.name for path in hub.cache.rglob("*") if path.is_file() and path.parent.name in ("blobs", "snapshots")
    )


def test_a_pulled_file_is_whole_and_found_by_name(hub: Hub) -> None:
    path = pull(hub)
    assert path.read_bytes() == CONTENT
    assert (
        cached_path(f"hf:{NAME}:{FILE}", hub.cache)
        == cached_path(f"hf:{NAME}", hub.cache)
        == cached_path(f"hf:{NAME}:q4_k_m", hub.cache)
        == path
    )
    assert [(file.repo, file.name, file.size) for file in cached(hub.cache)] == [(NAME, FILE, len(CONTENT))]


def test_progress_reaches_the_end_and_a_second_pull_fetches_nothing(hub: Hub, how: Behaviour) -> None:
    how.drip = 0.001
    seen: list[int] = []
    plan = hub.plan(f"{NAME}:{FILE}")
    hub.pull(NAME, plan, lambda file, n: seen.append(n))
    assert seen == sorted(seen)
    assert (seen[-1], len(seen) > 2) == (len(CONTENT), True)  # on a busy machine many pieces come at once
    before = how.asked["GET"]
    hub.pull(NAME, hub.plan(f"{NAME}:{FILE}"), lambda file, n: None)
    assert how.asked["GET"] == before + 1  # the list of files


def test_the_check_of_a_large_file_shows_how_far_it_is(hub: Hub) -> None:
    seen: list[int] = []
    hub.pull(NAME, hub.plan(f"{NAME}:{FILE}"), lambda file, n: None, lambda file, n: seen.append(n))
    assert seen == [len(CONTENT)]
    (file,) = hub.plan(f"{NAME}:{FILE}")
    file.partial.write_bytes(bytes(2**23))
    fetch.checksum(file, lambda name, n: seen.append(n))
    assert seen[1:] == [2**22, 2**23]


def test_a_cut_connection_is_taken_up_where_it_ended(hub: Hub, how: Behaviour) -> None:
    how.cuts, how.cut_after = 3, 40_960
    assert pull(hub).read_bytes() == CONTENT
    assert how.ranges == ["bytes=40960-", "bytes=81920-", "bytes=122880-"]


def test_a_hub_that_knows_no_ranges_sends_the_whole_file_again(hub: Hub, how: Behaviour) -> None:
    how.cuts, how.cut_after, how.has_ranges = 2, 40_960, False
    assert pull(hub).read_bytes() == CONTENT


def test_a_connection_that_brings_nothing_more_is_given_up_and_what_came_stays(hub: Hub, how: Behaviour) -> None:
    how.lie = 1000  # announced, and never sent
    (file,) = hub.plan(f"{NAME}:{FILE}")
    with pytest.raises(HubError, match="it resumes where it stopped"):
        hub.pull(NAME, [file], lambda file, n: None)
    assert file.n_here == len(CONTENT)
    assert len(how.ranges) == fetch.ATTEMPTS


def test_an_interrupted_pull_goes_on_the_next_time(hub: Hub, how: Behaviour) -> None:
    def stop(file: str, n_bytes: int) -> None:
        if n_bytes > 100_000:
            raise KeyboardInterrupt

    plan = hub.plan(f"{NAME}:{FILE}")
    with pytest.raises(KeyboardInterrupt):
        hub.pull(NAME, plan, stop)
    assert not cached(hub.cache)
    with pytest.raises(HubError, match="not on this machine"):
        cached_path(f"hf:{NAME}:{FILE}", hub.cache)
    assert plan[0].n_here > 100_000
    assert pull(hub).read_bytes() == CONTENT
    assert len(how.ranges) == 1


def test_wrong_bytes_are_never_put_in_place(hub: Hub, how: Behaviour) -> None:
    how.spoil = True
    with pytest.raises(HubError, match="do not have the hub's checksum"):
        pull(hub)
    assert stored(hub) == []
    how.spoil = False
    assert pull(hub).read_bytes() == CONTENT


def test_a_spoilt_beginning_is_found_by_the_checksum_of_the_whole(hub: Hub) -> None:
    (file,) = hub.plan(f"{NAME}:{FILE}")
    file.partial.parent.mkdir(parents=True)
    file.partial.write_bytes(b"?" * 1000)
    with pytest.raises(HubError, match="do not have the hub's checksum"):
        pull(hub)
    assert pull(hub).read_bytes() == CONTENT


@pytest.mark.parametrize("lie", [-1000, 1000])
def test_a_hub_that_lies_about_the_size_gets_nothing_stored(hub: Hub, how: Behaviour, lie: int) -> None:
    how.lie = lie
    with pytest.raises(HubError):
        pull(hub)
    assert not cached(hub.cache)


@pytest.mark.parametrize("times", [1, 2])
def test_a_whole_partial_file_is_checked_and_a_longer_one_starts_over(hub: Hub, how: Behaviour, times: int) -> None:
    (file,) = hub.plan(f"{NAME}:{FILE}")
    file.partial.parent.mkdir(parents=True)
    file.partial.write_bytes(CONTENT * times)
    how.spoil = times == 1  # what the hub would send now
    assert pull(hub).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("status", "headers", "what"),
    [
        (401, {}, "refuses the token"),
        (403, {}, "forbids"),
        (404, {"X-Error-Code": "RepoNotFound"}, "not on the hub, or is private"),
        (429, {"Retry-After": "77"}, "Try again in 77 seconds"),
        (418, {}, "answers 418"),
    ],
)
def test_a_refusal_is_one_sentence_with_the_remedy(
    hub: Hub, how: Behaviour, status: int, headers: dict[str, str], what: str
) -> None:
    how.status, how.headers = status, headers
    with pytest.raises(HubError, match=what) as refused:
        pull(hub)
    assert "\n" not in str(refused.value)


def test_a_gated_model_needs_the_token(hub: Hub, how: Behaviour) -> None:
    how.token = "other"
    with pytest.raises(HubError, match=r"is gated: accept its terms .* HF_TOKEN"):
        pull(hub)
    how.token = "secret"
    assert pull(hub).read_bytes() == CONTENT


def test_nobody_listening_is_said(tmp_path: Path) -> None:
    with pytest.raises(HubError, match="could not be reached"):
        pull(Hub("http://127.0.0.1:9", tmp_path))


def test_a_slow_drip_arrives(hub: Hub, how: Behaviour) -> None:
    how.drip = 0.005
    assert pull(hub).read_bytes() == CONTENT


def test_two_pulls_at_once_fetch_one_copy(hub: Hub, how: Behaviour) -> None:
    how.drip = 0.005
    plan, found = hub.plan(f"{NAME}:{FILE}"), list[Path]()
    threads = [
        threading.Thread(target=lambda: found.append(hub.pull(NAME, plan, lambda file, n: None))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.read_bytes() == CONTENT for path in found] == [True, True]
    assert how.asked["GET"] == 2  # the list of files, and one content


def test_all_shards_of_a_split_model_are_fetched(hub: Hub, how: Behaviour) -> None:
    path = pull(hub, "owner/split")
    assert path.name == "big-00001-of-00002.gguf"
    assert path.with_name("big-00002-of-00002.gguf").stat().st_size == 3000
    del how.files["owner/split/big-00002-of-00002.gguf"]
    with pytest.raises(HubError, match=r"lacks big-00002-of-00002\.gguf"):
        hub.plan("owner/split")


def test_a_model_with_a_shard_missing_is_not_here(hub: Hub) -> None:
    hub.pull("owner/split", hub.plan("owner/split")[:1], lambda file, n: None)
    with pytest.raises(HubError, match="models pull owner/split"):
        cached_path("hf:owner/split:big-00001-of-00002.gguf", hub.cache)


def test_a_full_disk_is_said_before_it_is_filled(hub: Hub, how: Behaviour, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 1000))  # type: ignore[attr-defined]
    with pytest.raises(HubError, match=r"Make room, or set HF_HOME"):
        pull(hub)
    assert how.asked["GET"] == 1
    assert stored(hub) == []


def test_a_disk_that_fills_in_the_middle_leaves_nothing(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.FileIO):
        def write(self, data: bytes) -> int:  # type: ignore[override]
            if self.tell() > 50_000:
                raise OSError(28, "No space left on device")
            return super().write(data)

    monkeypatch.setattr(Path, "open", lambda path, mode="r": Full(path, mode))
    with pytest.raises(HubError, match="No space left on device"):
        pull(hub)
    assert stored(hub) == []


def test_an_interrupted_rename_leaves_nothing_in_place(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Path, target: Path) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", fail)
        with pytest.raises(HubError, match="Input/output error"):
            pull(hub)
    assert not cached(hub.cache)
    assert pull(hub).read_bytes() == CONTENT


@pytest.mark.parametrize("name", [
    "../x", "owner", "a/b/c", "owner/..", "own er/x", "/etc/passwd", "owner/x--y", "owner/", "owner/x:../y.gguf",
    "owner/x:/y.gguf", "owner/x:a\\b.gguf", "owner/x:a//b.gguf", "owner/x:a/./b.gguf", "owner/x:\x00.gguf",
])  # fmt: skip
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(HubError):
        split_name(name)


def test_names_of_the_hub_that_lead_elsewhere_are_left_out(hub: Hub) -> None:
    assert not is_safe("../../evil.gguf")
    assert hub.names("owner/bad") == {}


def test_a_file_is_chosen_by_its_quantization_or_asked_for() -> None:
    names = ["m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "mmproj-m-f16.gguf"]
    assert pick("o/m", names, "q4_k_m") == "m-Q4_K_M.gguf"
    with pytest.raises(HubError, match=r"2 models: m-Q4_K_M.gguf, m-Q4_K_S.gguf. Name one"):
        pick("o/m", names, "")
    with pytest.raises(HubError, match="No file fits 'Q8_0'"):
        pick("o/m", names, "Q8_0")
    with pytest.raises(HubError, match="has no GGUF file"):
        pick("o/m", ["model.safetensors"], "")


def test_search_names_what_the_hub_has(hub: Hub) -> None:
    assert hub.search("small") == [(NAME, 3, False)]


def test_removing_frees_the_content_and_nothing_else(hub: Hub) -> None:
    pull(hub)
    kept = pull(hub, f"{NAME}:Q8_0")
    assert remove(f"{NAME}:{FILE}", hub.cache) == len(CONTENT)
    assert [file.name for file in cached(hub.cache)] == [kept.name]
    assert kept.read_bytes() == CONTENT[::-1]
    with pytest.raises(HubError, match="Nothing of owner/other"):
        remove("owner/other", hub.cache)


def test_offline_nothing_is_asked_for(hub: Hub, how: Behaviour, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for ask in (lambda: hub.names(NAME), lambda: hub.search("small"), lambda: hub._remote(NAME, FILE)):
        with pytest.raises(HubError, match="HF_HUB_OFFLINE is set"):
            ask()
    assert not how.asked


def slipstream(endpoint: str, home: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    place = {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), **env}
    return subprocess.run(
        [sys.executable, "-m", "app.cli", "models", *args],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **place},
    )


def test_the_environment_says_where_the_hub_and_the_cache_are(how: Behaviour, tmp_path: Path) -> None:
    with serving(how) as endpoint:
        done = slipstream(endpoint, tmp_path, "pull", f"{NAME}:Q4_K_M")
        assert done.returncode == 0, done.stderr
        assert f"-m hf:{NAME}:{FILE}" in done.stdout
    listed = slipstream(endpoint, tmp_path, "list", HF_HUB_OFFLINE="1")
    assert f"hf:{NAME}:{FILE}" in listed.stdout


def test_a_pair_of_the_hub_that_is_not_here_names_the_command(tmp_path: Path) -> None:
    registry = tmp_path / "models.toml"
    registry.write_text("[pairs.x]\ntarget = 'hf:owner/nowhere:a.gguf'")
    with pytest.raises(
        SlipstreamError, match=r"pair 'x' is not on this machine. Fetch it with `slipstream models pull x`"
    ):
        find_pair("x", load_registry(registry))


def test_every_public_pair_names_files_that_the_hub_could_have() -> None:
    public = [name for pair in load_registry().values() for path in pair.files if (name := hub_name(path))]
    assert len(load_registry()) > 20
    for name in public:
        _, file = split_name(name)
        assert is_first_shard(file), name


@pytest.fixture
def registry(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the commands take for models.toml, and `hub` for the hub."""
    path = tmp_path / "models.toml"
    path.touch()
    monkeypatch.setattr(commands, "Hub", lambda: hub)
    monkeypatch.setattr(commands, "load_registry", lambda: load_registry(path))
    return path


def test_check_says_which_files_are_there(registry: Path, capsys: pytest.CaptureFixture[str]) -> None:
    registry.write_text(
        f"[pairs.x]\ntarget = 'hf:{NAME}:{FILE}'\ndraft = 'hf:{NAME}:gone.gguf'\n[pairs.y]\ntarget = 'none.gguf'\n"
    )
    assert commands.check_all() == 1
    lines = capsys.readouterr().out.splitlines()
    assert f"on the hub, {len(CONTENT):,} bytes" in lines[0]
    assert "WRONG: No file fits 'gone.gguf'" in lines[1]
    assert "WRONG:" in lines[2]
    assert "does not exist" in lines[2]


def test_check_compares_the_size_that_the_registry_says(registry: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"[pairs.x]\ntarget = 'hf:{NAME}:{FILE}'\nsize = %d\n"
    registry.write_text(text % len(CONTENT))
    assert commands.check_all() == 0
    registry.write_text(text % 7)
    assert commands.check_all() == 1
    assert f"WRONG: its files have {len(CONTENT):,} bytes, and the registry says 7." in capsys.readouterr().out


def test_a_pair_is_pulled_by_its_name(registry: Path, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    registry.write_text(f"[pairs.x]\ntarget = 'hf:{NAME}:{FILE}'\ndraft = 'small.gguf'\n")
    commands.pull_all("x")
    printed = capsys.readouterr().out
    assert "small.gguf is a file of this machine already" in printed
    assert "(llama), 0.0 million parameters at 14.4 bits" in printed
    assert printed.endswith('slipstream run "Hello" -m x\n')
    assert [file.name for file in cached(hub.cache)] == [FILE]


def test_a_check_without_a_network_says_so_once(monkeypatch: pytest.MonkeyPatch, registry: Path) -> None:
    registry.write_text(f"[pairs.x]\ntarget = 'hf:{NAME}:{FILE}'\n")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UnreachableError, match="HF_HUB_OFFLINE is set"):
        commands.check_all()


def test_a_file_that_is_no_model_is_said_after_the_pull(registry: Path, how: Behaviour) -> None:
    how.files[f"{NAME}/{FILE}"] = b"not a model" * 100
    with pytest.raises(ModelError, match="is not a GGUF file"):
        commands.pull_all(f"{NAME}:{FILE}")


def test_nothing_is_removed_without_a_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[str] = []
    monkeypatch.setattr(commands, "remove_cached", lambda name: removed.append(name) or 5_000_000)
    with pytest.raises(HubError, match="is on this machine"):
        commands.remove(NAME, yes=False)  # before any question
    monkeypatch.setattr(commands, "cached_shards", lambda name: (name, set()))
    assert CliRunner().invoke(models, ["rm", NAME], input="n\n").exit_code == 1
    assert removed == []
    assert "5.0 MB are free again" in CliRunner().invoke(models, ["rm", NAME, "--yes"]).output
    assert removed == [NAME]
