"""HTTP responses byte by byte, right or wrong."""

from __future__ import annotations


def http(body: bytes, *headers: bytes, status: bytes = b"200 OK", length: bytes | None = None) -> bytes:
    """Return a response with that body; `length` is the declared length, the true one by default."""
    n = str(len(body)).encode() if length is None else length
    return b"\r\n".join([b"HTTP/1.1 " + status, b"Connection: close", b"Content-Length: " + n, *headers, b"", body])
