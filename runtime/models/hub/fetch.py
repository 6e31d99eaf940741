"""Model files from the hub, in the cache folder that all tools of Hugging Face share.

A file is fetched into a partial one, goes on where it was cut off, is compared with the hub's checksum, and only then
put in its place. HF_ENDPOINT, HF_HUB_OFFLINE, HF_HOME and the stored token are the client's own and take effect. Knows
files; opens no model.
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
)
from pydantic import TypeAdapter

from runtime.models.hub.errors import explained
from runtime.models.hub.names import HubError, is_safe, pick, split_name
from runtime.models.hub.patience import DownloadPace, opened, within
from runtime.models.hub.private_hub import WeakFileLock, build_hf_headers, http_stream_backoff
from runtime.models.shards import shard_names

SPARE = 2**26  # bytes that stay free on the disk
ATTEMPTS = 6  # in a row that bring nothing, after which a pull ends
PAUSE = 1.0  # seconds after the first of them, twice as many after the second, and so on
CHECKSUM = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")  # git's of a small file, or SHA-256 of a large one
CUT = (httpx2.TimeoutException, httpx2.NetworkError, httpx2.RemoteProtocolError)  # what another attempt may mend
SIZES, FOUND = TypeAdapter(dict[str, int]), TypeAdapter(list[tuple[str, int, bool]])
OnBytes = Callable[[str, int], object]  # (file, bytes of it that are stored, or that were checked)

logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)  # what it would log is one sentence of ours
constants.HF_HUB_DISABLE_TELEMETRY = True  # or the hub is told, and asked for, what a pull does not need


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file to fetch."""

    name: str
    size: int
    checksum: str
    url: str
    blob: Path  # where its content belongs

    @property
    def partial(self) -> Path:
        """What was fetched of it so far."""
        return self.blob.with_name(f"{self.blob.name}.slipstream.incomplete")

    @property
    def n_here(self) -> int:
        """Bytes that need not be fetched."""
        place = self.blob if self.blob.exists() else self.partial
        return min(self.size, place.stat().st_size) if place.exists() else 0


class Hub:
    """The hub as the environment says, or another one with another cache (for tests)."""

    def __init__(self, endpoint: str | None = None, cache: Path | None = None, token: str | None = None) -> None:
        self.endpoint, self.token = endpoint or constants.ENDPOINT, token
        self.cache = cache or Path(constants.HF_HUB_CACHE)

    def names(self, repo: str) -> dict[str, int]:
        """The repository's GGUF files and their bytes; names that could lead elsewhere are left out."""
        with explained(repo):
            info = within(repo, lambda: HfApi(self.endpoint, self.token).model_info(repo, files_metadata=True))
            found = {file.rfilename: file.size or 0 for file in info.siblings or ()}
            files = SIZES.validate_python(found, strict=True)
        return {name: size for name, size in files.items() if name.lower().endswith(".gguf") and is_safe(name)}

    def search(self, words: str, limit: int = 20) -> list[tuple[str, int, bool]]:
        """Repositories with GGUF files: name, downloads, and whether access must be asked for; most fetched first."""

        def ask() -> list[ModelInfo]:
            api = HfApi(self.endpoint, self.token)
            return list(api.list_models(search=words, filter="gguf", sort="downloads", limit=limit, full=True))

        with explained("the search"):
            found = [(model.id, model.downloads or 0, bool(model.gated)) for model in within("the search", ask)]
            return FOUND.validate_python(found, strict=True)

    def plan(self, name: str) -> list[RemoteFile]:
        """All files of the model that `name` means. Raises HubError."""
        repo, wanted = split_name(name)
        names = self.names(repo)
        files = shard_names(pick(repo, list(names), wanted))
        if missing := next((file for file in files if file not in names), None):
            raise HubError(
                f"{repo} lacks {missing}, a part of the model. Choose another file of it, or another repository."
            )
        return [self._remote(repo, file) for file in files]

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
        storage = self.cache / f"models--{repo.replace('/', '--')}"  # as the client lays its cache out
        return RemoteFile(file, found.size, found.etag, url, storage / "blobs" / found.etag)

    def check_space(self, files: list[RemoteFile]) -> None:
        """Raises HubError when what is missing does not fit the disk."""
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
        """Fetches what is missing, checks it, and returns the path to open.

        What an interrupt leaves behind is used the next time.

        Raises HubError.
        """
        repo = split_name(name)[0]
        self.check_space(files)
        for file in files:
            self._fetch(repo, file, on_bytes, on_check)
        with explained(name):  # every content is in place by now: this only links names to them
            place = {"cache_dir": self.cache, "endpoint": self.endpoint, "token": self.token}
            paths = [within(name, partial(hf_hub_download, repo, file.name, **place)) for file in files]
        return Path(paths[0])

    def _fetch(self, repo: str, file: RemoteFile, on_bytes: OnBytes, on_check: OnBytes) -> None:
        """One file's content, unless it is stored already; a second process waits for the first."""
        locks = self.cache / ".locks" / file.blob.parents[1].name  # those of the hub's own tools
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
        """Fetches the rest of the partial file; a connection that is cut is taken up where it ended."""
        # Not by hf_hub_download: it removes its temporary file at every interrupt and begins anew, writes all that the
        # hub sends, and puts content in place without comparing its checksum
        n_vain = 0  # attempts in a row that brought nothing
        with explained(what), file.partial.open("ab") as partial:
            if partial.tell() > file.size:
                partial.truncate(partial.seek(0))
            while (start := partial.tell()) < file.size:
                if n_vain == ATTEMPTS:
                    raise HubError(
                        f"The connection ended before all of {what} was there. Pull it again: it goes on where it "
                        "stopped."
                    )
                with suppress(*CUT):
                    self._receive(file, partial, on_bytes)
                n_vain = 0 if partial.tell() > start else n_vain + 1
                time.sleep(PAUSE * n_vain)

    def _receive(self, file: RemoteFile, partial: BinaryIO, on_bytes: OnBytes) -> None:
        """Appends what one request brings. Raises what the client raises, and HubError."""
        headers = build_hf_headers(token=self.token) | {"Accept-Encoding": "identity"}
        if start := partial.tell():
            headers["Range"] = f"bytes={start}-"
        timeout, pace = constants.HF_HUB_DOWNLOAD_TIMEOUT, DownloadPace(file.name)
        stream = http_stream_backoff("GET", file.url, headers=headers, timeout=timeout, retry_on_exceptions=())
        with opened(file.name, stream) as response:
            hf_raise_for_status(response)
            if response.status_code != 206:  # the whole file comes, although a part was asked for
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
        """Removes a partial file that is not what the hub promised. Raises HubError."""
        if checksum(file, on_check) != file.checksum:
            file.partial.unlink()
            raise HubError(
                f"{file.name} was fetched, but its bytes are not those that the hub promised. Fetch it again; nothing "
                "was kept."
            )


def checksum(file: RemoteFile, on_check: OnBytes) -> str:
    """The checksum of what was fetched, of the kind that the hub names for it."""
    is_git = len(file.checksum) == 40
    sums = hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False) if is_git else hashlib.sha256()
    with file.partial.open("rb") as content:
        while block := content.read(2**22):
            sums.update(block)
            on_check(file.name, content.tell())
    return sums.hexdigest()
