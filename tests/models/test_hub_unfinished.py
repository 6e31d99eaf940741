"""Downloads that were begun and not completed are known by their model's name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.models.hub.cache import NOTE, Unfinished, unfinished
from runtime.models.hub.fetch import Hub
from tests.support.hub_server import Behaviour, serving

FILES = {f"owner/split/big-0000{n}-of-00002.gguf": bytes([n]) * size for n, size in ((1, 5000), (2, 3000))}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with serving(Behaviour(FILES)) as endpoint:
        yield Hub(endpoint, tmp_path / "cache")


def test_an_interrupted_pull_is_listed_until_it_is_completed(hub: Hub) -> None:
    def stop(file: str, n_bytes: int) -> None:
        if n_bytes == 3000:  # of the second shard
            raise KeyboardInterrupt

    files = hub.plan("owner/split")
    with pytest.raises(KeyboardInterrupt):
        hub.pull("owner/split", files, stop)
    assert unfinished(hub.cache) == [Unfinished("hf:owner/split:big-00001-of-00002.gguf", 8000, 8000)]
    hub.pull("owner/split", files, lambda file, n_bytes: None)
    assert unfinished(hub.cache) == []


@pytest.mark.parametrize(
    "note", ["", "[]", '["owner/a:b.gguf", {"../x": 1}]', '["../a", {"x": 1}]', '["owner/a", {"y": 1}]']
)
def test_a_damaged_note_of_a_download_is_passed_over(tmp_path: Path, note: str) -> None:
    blobs = tmp_path / "models--owner--a" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / "x.slipstream.incomplete").write_bytes(b"1")
    (blobs / f"x{NOTE}").write_text(note)
    assert unfinished(tmp_path) == []
