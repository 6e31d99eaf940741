"""Undocumented functions of the hub's client that are used here.

Written for WRITTEN_FOR; tests/repository/test_private_interfaces.py reports changes. Without `WeakFileLock`, two
processes would fetch the same file simultaneously where a file system has no locks. Without `build_hf_headers` and
`http_stream_backoff`, a pull would send no token, and not wait when the hub asks for it. Without
`hf_request_event_hook`, a client of our own would use the network although HF_HUB_OFFLINE is set.
"""

from __future__ import annotations

from huggingface_hub.utils import WeakFileLock, build_hf_headers, http_stream_backoff  # type: ignore[attr-defined]  # lazy
from huggingface_hub.utils._http import hf_request_event_hook

__all__ = ["WRITTEN_FOR", "WeakFileLock", "build_hf_headers", "hf_request_event_hook", "http_stream_backoff"]

WRITTEN_FOR = "huggingface_hub 2.4.0"
