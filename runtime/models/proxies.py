"""HTTP clients that ask the proxy of the environment, but not for this machine: it is meant for the internet.

Knows addresses and the environment; sends nothing.
"""

from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2
from socksio import SOCKSError

from runtime.core.errors import SettingsError

FAULTS = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, SOCKSError)  # of a request; httpx2 misses the last
HERE = ("localhost", "localhost.", "*.localhost", "127.0.0.0/8", "[::1]", "[::ffff:127.0.0.0]/104", "0.0.0.0")
PASSWORD = "the proxy needs a name and a password. Put them into its address: http://name:password@host:port"
REMEDY = "Correct HTTP_PROXY, HTTPS_PROXY or ALL_PROXY, or unset it."


def client(base: str = "", **settings: Any) -> httpx2.Client:
    """Return a client for requests to `base`; for any addresses if that is empty.

    Raises SettingsError where the environment's proxy is needed and cannot be used.
    """
    if is_here(base):  # whatever the environment says of proxies
        return httpx2.Client(transport=httpx2.HTTPTransport(), **settings)
    try:
        return httpx2.Client(mounts={f"all://{host}": None for host in HERE}, **settings)
    except (ValueError, ImportError, httpx2.InvalidURL) as error:
        named = ", ".join(dict.fromkeys(map(shown, proxies().values())))
        raise SettingsError(f"No such proxy can be used: {named} (only http, https and socks5). {REMEDY}") from error


def is_here(url: str) -> bool:
    """Return whether that address is this machine's loopback."""
    with suppress(ValueError):
        host = (urlsplit(url).hostname or "").rstrip(".")
        if host == "localhost" or host.endswith(".localhost"):
            return True
        address = ip_address(host)
        mapped = getattr(address, "ipv4_mapped", None) or address
        return bool(mapped.is_loopback or mapped.is_unspecified)
    return False


def proxies() -> dict[str, str]:
    """Return the addresses of the environment's proxies by the scheme of requests; `all` is for any."""
    return {scheme: address for scheme, address in getproxies().items() if scheme in ("http", "https", "all")}


def proxy_of(url: str) -> str:
    """Return the address of the proxy that is asked for that one, without name and password; "" for none."""
    parts = urlsplit(url)
    if is_here(url) or proxy_bypass(parts.netloc):
        return ""
    return shown(proxies().get(parts.scheme) or proxies().get("all", ""))


def shown(proxy: str) -> str:
    """Return a proxy's address without name and password, and without characters that control a terminal."""
    scheme, _, rest = proxy.rpartition("://")
    place = "".join(filter(str.isprintable, rest.rpartition("@")[2]))
    return f"{scheme or 'http'}://{place}" if place else ""
