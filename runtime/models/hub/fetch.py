"""Fetches model files from the hub into the cache folder that all tools of Hugging Face share.

A file is fetched into a partial one, resumed after an interruption, compared with the hub's checksum, and only then
moved to its place. HF_ENDPOINT, HF_HUB_OFFLINE, HF_HOME and the stored token are read by the hub's client. Knows files;
opens no model.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import httpx2
from huggingface_hub import (
    HfApi,
    ModelInfo,
    constants,
    get_hf_file_metadata,
    hf_hub_download,
    hf_hub_url,
    hf_raise_for_status,
    set_client_factory,
)
from pydantic import TypeAdapter

from runtime.models.hub.asking import DownloadPace, explained, opened, within
from runtime.models.hub.cache import n_stored, noted, partial_of
from runtime.models.hub.names import HubError, encoder_for, is_safe, pick, split_name
from runtime.models.hub.private_hub import WeakFileLock, build_hf_headers, hf_request_event_hook, http_stream_backoff
from runtime.models.proxies import client
from runtime.models.shards import is_encoder, shard_names

SPARE = 2**26  # bytes to leave free on the disk
ATTEMPTS = 6  # consecutive attempts without new bytes, after which a pull ends
PAUSE = 1.0  # seconds after the first of them, multiplied by the number of consecutive ones
CHECKSUM = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")  # git's for a small file, SHA-256 for a large one
# errors that a further attempt may resolve
CUT = (httpx2.TimeoutException, httpx2.NetworkError, httpx2.RemoteProtocolError)
SIZES, FOUND = TypeAdapter(dict[str, int]), TypeAdapter(list[tuple[str, int, bool]])
OnBytes = Callable[[str, int], object]  # (file, bytes of it stored or checked)

logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)  # our own sentence replaces its log messages
constants.HF_HUB_DISABLE_TELEMETRY = True  # otherwise the client sends and requests data that a pull does not need
set_client_factory(
    lambda: client(event_hooks={"request": [hf_request_event_hook]}, follow_redirects=True, timeout=None)
)


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file to fetch."""

    name: str
    size: int
    checksum: str
    url: str
    blob: Path  # the path of its content in the cache

    @property
    def partial(self) -> Path:
        """The path of the partial file."""
        return partial_of(self.blob)

    @property
    def n_here(self) -> int:
        """Bytes that are already on this machine."""
        return n_stored(self.blob, self.size)


class Hub:
    """The hub that the environment names, or another one with another cache (for tests)."""

    def __init__(self, endpoint: str | None = None, cache: Path | None = None, token: str | None = None) -> None:
        self.endpoint, self.token = endpoint or constants.ENDPOINT, token
        self.cache = cache or Path(constants.HF_HUB_CACHE)

    def names(self, repo: str) -> dict[str, int]:
        """Return the repository's GGUF files and their bytes, without names that could lead outside its folder."""
        with explained(repo):
            info = within(repo, lambda: HfApi(self.endpoint, self.token).model_info(repo, files_metadata=True))
            found = {file.rfilename: file.size or 0 for file in info.siblings or ()}
            files = SIZES.validate_python(found, strict=True)
        return {name: size for name, size in files.items() if name.lower().endswith(".gguf") and is_safe(name)}

    def search(self, words: str, limit: int = 20) -> list[tuple[str, int, bool]]:
        """Return repositories with GGUF files: name, downloads, and whether access is gated; most downloaded first."""

        def ask() -> list[ModelInfo]:
            api = HfApi(self.endpoint, self.token)
            return list(api.list_models(search=words, filter="gguf", sort="downloads", limit=limit, full=True))

        with explained("the search"):
            found = [(model.id, model.downloads or 0, bool(model.gated)) for model in within("the search", ask)]
            return FOUND.validate_python(found, strict=True)

    def plan(self, name: str, with_encoder: bool = False) -> list[RemoteFile]:
        """Return all files of the model `name`, its vision encoder last if that is asked for and there is one. Raises
        HubError.
        """
        repo, wanted = split_name(name)
        names = self.names(repo)
        files = shard_names(pick(repo, list(names), wanted))
        if missing := next((file for file in files if file not in names), None):
            raise HubError(
                f"{repo} lacks {missing}, a part of the model. Choose another file of it, or another repository."
            )
        encoder = encoder_for(names, files[0]) if with_encoder and not is_encoder(files[0]) else None
        return [self._remote(repo, file) for file in [*files, *([encoder] if encoder else [])]]

    def _remote(self, repo: str, file: str) -> RemoteFile:
        url = hf_hub_url(repo, file, endpoint=self.endpoint)
        with explained(f"{repo}:{file}"):
            found = within(file, lambda: get_hf_file_metadata(url, token=self.token, endpoint=self.endpoint))
        if not (found.etag and CHECKSUM.fullmatch(found.etag) and found.size and found.size > 0):
            raise HubError(
                f"The hub at {self.endpoint} gives no checksum or size for {file}. Check HF_ENDPOINT, or choose "
                "another file."
            )
        if found.size > constants.MAX_HTTP_DOWNLOAD_SIZE:
            raise HubError(
                f"{file} has {found.size / 1e9:.0f} GB, more than the hub hands out as one file. Choose a smaller or a "
                "split one."
            )
        storage = self.cache / f"models--{repo.replace('/', '--')}"  # the client's cache layout
        return RemoteFile(file, found.size, found.etag, url, storage / "blobs" / found.etag)

    def check_space(self, files: list[RemoteFile]) -> None:
        """Raise HubError if the missing bytes do not fit on the disk."""
        need = sum(file.size - file.n_here for file in files)
        place = next(folder for folder in (self.cache, *self.cache.absolute().parents) if folder.exists())
        free = shutil.disk_usage(place).free
        if need and need + SPARE > free:
            raise HubError(
                f"{need / 1e9:.1f} GB are to be fetched, but {self.cache} has {free / 1e9:.1f} GB left. Make room, or "
                "set HF_HOME to another disk."
            )

    def pull(
        self, name: str, files: list[RemoteFile], on_bytes: OnBytes, on_check: OnBytes = lambda file, n: None
    ) -> Path:
        """Fetch the missing files, check them, and return the path to open.

        A partial file that an interrupt leaves is resumed the next time. Raises HubError.
        """
        repo = split_name(name)[0]
        self.check_space(files)
        with noted(f"hf:{repo}:{files[0].name}", {file.blob: file.size for file in files}):
            for file in files:
                self._fetch(repo, file, on_bytes, on_check)
        with explained(name):  # every content is in place by now: this only links names to them
            place = {"cache_dir": self.cache, "endpoint": self.endpoint, "token": self.token}
            paths = [within(name, partial(hf_hub_download, repo, file.name, **place)) for file in files]
        return Path(paths[0])

    def _fetch(self, repo: str, file: RemoteFile, on_bytes: OnBytes, on_check: OnBytes) -> None:
        """Fetch one file's content, unless it is stored already; a second process waits for the first."""
        locks = self.cache / ".locks" / file.blob.parents[1].name  # the locks that the hub's own tools use
        try:
            for folder in (locks, file.blob.parent):
                folder.mkdir(parents=True, exist_ok=True)
            with WeakFileLock(locks / f"{file.checksum}.lock"):
                if not file.blob.exists():
                    self._complete(f"{repo}:{file.name}", file, on_bytes)
                    self._check(file, on_check)
                    file.partial.replace(file.blob)
        except OSError as error:
            with suppress(OSError):
                file.partial.unlink()
            reason = error.strerror or str(error)
            raise HubError(
                f"{file.name} could not be stored under {self.cache} ({reason}). Make room or set HF_HOME, and try "
                "again."
            ) from error
        on_bytes(file.name, file.size)

    def _complete(self, what: str, file: RemoteFile, on_bytes: OnBytes) -> None:
        """Fetch the rest of the partial file; a broken connection is resumed where it ended."""
        # Not by hf_hub_download: it removes its temporary file at every interrupt and starts again, writes all bytes
        # that the hub sends, and moves content to its place without comparing its checksum
        n_vain = 0  # consecutive attempts without new bytes
        with explained(what), file.partial.open("ab") as partial:
            if partial.tell() > file.size:
                partial.truncate(partial.seek(0))
            while (start := partial.tell()) < file.size:
                if n_vain == ATTEMPTS:
                    raise HubError(
                        f"The connection ended before all of {what} was there. Pull it again: it resumes where it "
                        "stopped."
                    )
                with suppress(*CUT):
                    self._receive(file, partial, on_bytes)
                n_vain = 0 if partial.tell() > start else n_vain + 1
                time.sleep(PAUSE * n_vain)

    def _receive(self, file: RemoteFile, partial: BinaryIO, on_bytes: OnBytes) -> None:
        """Append the bytes of one request. Raises the client's errors, and HubError."""
        headers = build_hf_headers(token=self.token) | {"Accept-Encoding": "identity"}
        if start := partial.tell():
            headers["Range"] = f"bytes={start}-"
        timeout, pace = constants.HF_HUB_DOWNLOAD_TIMEOUT, DownloadPace(file.name)
        stream = http_stream_backoff("GET", file.url, headers=headers, timeout=timeout, retry_on_exceptions=())
        with opened(file.name, stream) as response:
            hf_raise_for_status(response)
            if response.status_code != 206:  # the whole file is sent, although a part was requested
                partial.truncate(partial.seek(0))
            for piece in response.iter_bytes():
                if partial.tell() + len(piece) > file.size:
                    raise HubError(
                        f"The hub sends more of {file.name} than it announced. Try again later, or choose another file."
                    )
                partial.write(piece)
                pace.add(len(piece))
                on_bytes(file.name, partial.tell())

    def _check(self, file: RemoteFile, on_check: OnBytes) -> None:
        """Remove a partial file whose checksum is wrong. Raises HubError."""
        if checksum(file, on_check) != file.checksum:
            file.partial.unlink()
            raise HubError(
                f"{file.name} was fetched, but its bytes do not have the hub's checksum. Fetch it again; nothing was "
                "kept."
            )


def checksum(file: RemoteFile, on_check: OnBytes) -> str:
    """Return the checksum of the fetched bytes, by the hub's algorithm for this file."""
    is_git = len(file.checksum) == 40
    sums = hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False) if is_git else hashlib.sha256()
    with file.partial.open("rb") as content:
        while block := content.read(2**22):
            sums.update(block)
            on_check(file.name, content.tell())
    return sums.hexdigest()
