"""Requests that cost a server much, each a few bytes or many: what one client may send while others are answered.

Usage: `python -m bench.instruments.costly URL NAME` sends one of them, and prints its seconds and its outcome.
"""

from __future__ import annotations

import json
import random
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx2

Send = Callable[[str], str]  # sends it to a server's address; returns the outcome
CHAT, COMPLETION = "/v1/chat/completions", "/completion"
QUESTION = [{"role": "user", "content": "What is a list?"}]
TOO_LONG = 60.0  # seconds of an answer


def posted(path: str, body: dict[str, Any] | bytes) -> Send:
    """Return a function that sends a body and returns the status, and the sentence of an error."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    def send(url: str) -> str:
        try:
            reply = httpx2.post(url + path, content=content, timeout=TOO_LONG, trust_env=False)
        except httpx2.TimeoutException:
            return "no answer"
        error = reply.json().get("error") or ""
        return f"{reply.status_code} {error['message'] if isinstance(error, dict) else error}".strip()[:90]

    return send


def with_schema(value: Any) -> dict[str, Any]:
    """Return the body of a request whose answer follows a schema."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}
    return {"messages": QUESTION, "response_format": form, "max_tokens": 40}


def schema(value: Any) -> Send:
    """Return a request whose answer follows a schema."""
    return posted(CHAT, with_schema(value))


def tool(value: Any) -> Send:
    """Return a request that must call a function with an argument that follows a schema."""
    parameters = {"type": "object", "properties": {"a": value}, "required": ["a"]}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    return posted(CHAT, {"messages": QUESTION, "tools": tools, "tool_choice": "required", "max_tokens": 40})


def gbnf(text: str) -> Send:
    """Return a request with a grammar in GBNF."""
    return posted(COMPLETION, {"prompt": "x", "grammar": text, "n_predict": 40})


def left(path: str, body: dict[str, Any], seconds: float = 0.3) -> Send:
    """Return a request whose sender leaves after some seconds."""

    def send(url: str) -> str:
        try:
            httpx2.post(url + path, json=body, timeout=seconds, trust_env=False)
        except httpx2.TimeoutException:
            return "left"
        return "answered first"

    return send


def dripping(n: int, n_bytes: int, seconds: float = 5.0) -> Send:
    """Return `n` bodies of which all but the last bytes are sent, and then a byte each second."""

    def send(url: str) -> str:
        place = urlsplit(url)
        sockets = [socket.create_connection((place.hostname or "", place.port or 80)) for _ in range(n)]
        head = f"POST {CHAT} HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Length: {n_bytes}\r\n\r\n".encode()
        try:
            for each in sockets:
                each.settimeout(TOO_LONG)
                each.sendall(head + b" " * (n_bytes - 100))
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                time.sleep(1)
                for each in sockets:
                    each.send(b" ")
        except OSError:
            return "the server closed a connection"
        finally:
            for each in sockets:
                each.close()
        return "held"

    return send


def together(n: int, send: Send) -> Send:
    """Return a request that is sent `n` times at once."""

    def all_of_them(url: str) -> str:
        found = list[str]()
        threads = [threading.Thread(target=lambda: found.append(send(url))) for _ in range(n)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return "; ".join(f"{found.count(each)} times {each}" for each in dict.fromkeys(found))

    return all_of_them


def doubled(n: int, last: str = '"x"') -> str:
    """Return rules of which each refers to the next one twice."""
    return "root ::= a0\n" + "".join(f"a{i} ::= a{i + 1} a{i + 1}\n" for i in range(n)) + f"a{n} ::= {last}\n"


def nested(n_options: int, depth: int) -> dict[str, Any]:
    """Return a schema of options within options."""
    found: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        options = [{"type": "object", "properties": {f"p{i}": found}, "required": [f"p{i}"]} for i in range(n_options)]
        found = {"anyOf": options}
    return found


def texts(n: int, length: int) -> list[str]:
    """Return random texts of that many letters."""
    rng = random.Random(1)
    return ["".join(rng.choices("abcdefghij klmnop", k=length)) for _ in range(n)]


def chain(n: int) -> str:
    """Return rules of which each refers to the next one."""
    return "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1}\n" for i in range(n)) + f'r{n} ::= "x"\n'


MULTIPLES = {"allOf": [{"type": "integer", "multipleOf": n} for n in (7, 11, 13, 17, 19, 23, 29)]}
SOME_MULTIPLES = {"allOf": [{"type": "integer", "multipleOf": n} for n in (7, 11, 13, 17)]}
PATTERNS = {"allOf": [{"type": "string", "pattern": f".*a.{{{40 + i}}}"} for i in range(20)]}
KEYS = {"type": "object", "properties": {f"k{i}": {"type": "integer"} for i in range(2000)}}
REQUESTS: dict[str, Send] = {
    "nothing": lambda url: "nothing was sent",
    "multiples of seven numbers": schema(MULTIPLES),
    "multiples of four numbers": schema(SOME_MULTIPLES),
    "enum of 60,000 values": schema({"enum": [f"value {i * 7919 % 1000003}" for i in range(60_000)]}),
    "2,000 optional keys": schema(KEYS),
    "500 optional keys": schema({"type": "object", "properties": dict([*KEYS["properties"].items()][:500])}),  # type: ignore[attr-defined]
    "5^6 options": schema(nested(5, 6)),
    "20 texts of 100 kB": schema({"enum": texts(20, 100_000)}),
    "20 texts of 10 kB": schema({"enum": texts(20, 9_990)}),
    "repeated pattern": schema({"type": "string", "pattern": "^(((((a{10}){10}){10}){10}){10}){10}$"}),
    "20 patterns for one text": schema(PATTERNS),
    "20 patterns, from twelve whose senders leave": together(12, left(CHAT, with_schema(PATTERNS), 1.0)),
    "20 patterns for an argument of a tool": tool(PATTERNS),
    "rules doubled 20 times": gbnf(doubled(20)),
    "rules doubled 20 times, after a choice": gbnf(doubled(20).replace("root ::= a0", 'root ::= "a" a0 | "b"')),
    "5,000 rules in each other": gbnf(chain(5000)),
    "a grammar whose sender leaves": left(COMPLETION, {"prompt": "x", "grammar": doubled(20), "n_predict": 40}),
    "logit_bias: a key of 20 MB": posted(CHAT, {"messages": QUESTION, "logit_bias": {"x" * 20_000_000: 1}}),
    "logit_bias: 2 million pairs": posted(
        COMPLETION, {"prompt": "x", "logit_bias": [[i % 500, 1.0] for i in range(2_000_000)]}
    ),
    "50 prompts of 900 kB": together(50, posted(COMPLETION, {"prompt": "word " * 180_000, "n_predict": 1})),
    "300 messages of 100 kB": posted(CHAT, {"messages": [{"role": "user", "content": "word " * 20_000}] * 300}),
    "five dripping bodies of 31 MB": dripping(5, 31 * 2**20),
    "300 held bodies of 0.9 MB": dripping(300, 900_000),
    "/tokenize of 31 MB": posted("/tokenize", {"content": "word " * 6_200_000}),
    "/tokenize of 2 MB": posted("/tokenize", {"content": "word " * 400_000}),
    "a chat of 20,000 messages": posted(CHAT, {"messages": QUESTION * 20_000}),
    "JSON nested 100,000 deep": posted(CHAT, b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
}


def main() -> None:
    """Send a request, and print how long it took and its outcome."""
    url, name = sys.argv[1:]
    began = time.perf_counter()
    outcome = REQUESTS[name](url)
    print(f"{time.perf_counter() - began:.2f} {outcome}")


if __name__ == "__main__":
    main()
