"""`slipstream doctor`: reports this machine, llama.cpp's backends and devices, the cost of passes, and fixes.

Prints; doctor_advice.py interprets the findings.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import psutil

from app.cli.doctor_advice import (
    PYTHON,
    SIGNS,
    lengths_in_words,
    models_that_fit,
    pairs_that_fit,
    problems,
    with_mtmd,
    with_rpc,
)
from app.settings import read_settings
from app.terminal import print_json, print_text
from runtime.core.cores import n_cores
from runtime.core.errors import SlipstreamError
from runtime.core.memory import HOSTS
from runtime.core.recompiling import RPC, reinstall
from runtime.engine import machine, stored_states
from runtime.loading.worker import look_at
from runtime.models.registry import load_registry, local_pair

BAR = 24  # characters of the longest bar


class LibraryError(SlipstreamError):
    """llama.cpp cannot be loaded."""


def run(name: str, as_json: bool, rpc: tuple[str, ...] | None = None) -> None:
    """Examine the machine and print the result. `rpc`: workers in place of those of the pair or the settings."""
    found = examine(name, rpc)
    if as_json:
        print_json(found)
    else:
        print_text("\n".join(report(found)))


def examine(name: str, rpc: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Return all findings as plain data, with the problems. Raises LibraryError."""
    pair = local_pair(name, load_registry())
    workers = look_at((pair.rpc or read_settings().rpc) if rpc is None else rpc)
    memory, load = psutil.virtual_memory(), psutil.getloadavg()[0]
    found: dict[str, Any] = {
        "processor": machine.processor(),
        "processor_flags": sorted(machine.processor_flags()),
        "cores": n_cores(),
        "busy_processes": load,
        "memory_bytes": memory.total,
        "memory_free_bytes": memory.available,
        "memory_bytes_per_second": round(machine.memory_bandwidth()),
        "gpu_hardware": machine.gpu_hardware(),
        "cuda_version": machine.cuda_version(),
        "versions": machine.versions(),
        "prompt_cache": {
            "folder": str(stored_states.folder()),
            "bytes": stored_states.stored_bytes(),
            "most_bytes": read_settings().prompt_cache_bytes,
        },
    }
    try:
        found |= {"devices": [asdict(device) for device in machine.devices()], "backends": machine.backends()}
        found |= {"cpu_features": machine.cpu_features(), "encodes_images": machine.encodes_images()}
        found["workers"] = [asdict(each) for each in workers]
        there = tuple(each.address for each in workers if not each.problem) if RPC in found["backends"] else ()
        found |= machine.diagnose(pair, there)
    except (ImportError, OSError, RuntimeError) as error:
        version = found["versions"].get("llama-cpp-python", "")
        raise LibraryError(
            f"llama-cpp-python cannot be loaded ({error}). Reinstall it: {reinstall(version, python=PYTHON)}"
        ) from error
    fits = {
        "fits": models_that_fit(memory.available),
        "pairs_that_fit": pairs_that_fit(memory.available, load_registry().values()),
    }
    return found | fits | {"problems": problems(found)}


def report(found: dict[str, Any]) -> list[str]:
    """Return the lines to print."""
    devices = [
        f"{device['backend']}: {device['name']}, {device['free_bytes'] / 1e9:.1f} GB free"
        for device in found["devices"]
    ]
    fits = ", ".join(f"{billions:.0f} billion in {kind}" for kind, billions in found["fits"].items())
    rows = [
        ("processor", f"{found['processor']}, {found['cores']} core{'s' * (found['cores'] != 1)}"),
        ("memory", f"{found['memory_bytes'] / 1e9:.1f} GB, {found['memory_free_bytes'] / 1e9:.1f} GB free"),
        ("bandwidth", f"{found['memory_bytes_per_second'] / 1e9:.1f} GB/s, read with all cores"),
        ("CPU features", ", ".join(found["cpu_features"])),
        *(("device" if i == 0 else "", text) for i, text in enumerate(devices)),
        ("GPU", gpus(found)),
        *(("workers" if i == 0 else "", in_words(worker)) for i, worker in enumerate(found["workers"])),
        ("RPC", rpc_in_words(found)),
        ("images", images_in_words(found)),
        ("versions", ", ".join(f"{name} {version}" for name, version in found["versions"].items())),
        ("models that fit", f"about {fits}"),
        ("", "of `slipstream models list`: " + (", ".join(found["pairs_that_fit"][:8]) or "none")),
        ("prompt cache", kept_prompts(found["prompt_cache"])),
        ("exactness", f"{found['exactness']} (pair {found['pair']})"),
    ]
    return [f"{label:>16}  {text}" for label, text in rows] + chart(found) + mend(found["problems"])


def kept_prompts(cache: dict[str, Any]) -> str:
    """Return the size and the place of the prompt cache on disk."""
    if not cache["most_bytes"]:
        return f"off by prompt_cache_bytes in the settings; {cache['bytes'] / 1e6:.1f} MB in {cache['folder']}"
    most = f"of at most {cache['most_bytes'] / 1e9:.1f} GB and a tenth of the free disk"
    return f"{cache['bytes'] / 1e6:.1f} MB {most} in {cache['folder']}; `slipstream forget` removes it"


def gpus(found: dict[str, Any]) -> str:
    """Return the drivers found, and llama.cpp's backends besides the CPU."""
    is_used = any(device["backend"] not in (*HOSTS, RPC) for device in found["devices"])
    drivers = " and ".join(SIGNS[name] for name in found["gpu_hardware"])
    drivers = drivers or ("a device that llama.cpp finds" if is_used else "no driver found")
    compiled = ", ".join(name for name in found["backends"] if name not in ("CPU", RPC))
    return f"{drivers}; llama.cpp is compiled for {compiled or 'the CPU only'}"


def in_words(worker: dict[str, Any]) -> str:
    """Return a worker's findings as a line."""
    if worker["problem"]:
        return str(worker["problem"])
    kind = "its processor" if worker["is_processor"] else f"{worker['n_devices']} device(s)"
    memory = f"{worker['free_bytes'] / 1e9:.1f} of {worker['total_bytes'] / 1e9:.1f} GB free, as it reports"
    rate = worker["bytes_per_second"]
    speed = f", {rate / 1e6:.0f} MB/s to it" if rate else ""
    return f"{worker['address']}: {kind}, {memory}, {1e3 * worker['round_trip_seconds']:.2f} ms round trip{speed}"


def rpc_in_words(found: dict[str, Any]) -> str:
    """Return whether this build can use workers and be one."""
    if RPC in found["backends"]:
        return "llama.cpp is compiled with it: workers can take layers (--rpc), and this machine can be one"
    return f"llama.cpp is compiled without it; for workers on other machines: {with_rpc(found)}"


def images_in_words(found: dict[str, Any]) -> str:
    """Return whether this build can encode images."""
    if found["encodes_images"]:
        return "llama.cpp is compiled with mtmd: models with an mmproj file see them (--image)"
    return f"llama.cpp is compiled without mtmd; for questions about images: {with_mtmd(found)}"


def chart(found: dict[str, Any]) -> list[str]:
    """Return a pass's time by width as bars, and what that means for drafts."""
    seconds = {int(width): value for width, value in found["pass_seconds"].items()}
    longest, draft = max(seconds.values()), found["draft_seconds"]
    lines = [f"\n{'rows in a pass':>16}  time of a pass, and relative to one row"]
    for width, value in seconds.items():
        lines.append(
            f"{width:>16}  {'█' * round(BAR * value / longest):<{BAR}} {1e3 * value:.2f} ms  {value / seconds[1]:.2f}"
        )
    guesses = f"with its draft model ({1e3 * draft:.2f} ms a token)" if draft else "with drafts that cost nothing"
    return [
        *lines,
        f"\nFor the pair {found['pair']}, {guesses}:",
        *(f"  {line}" for line in lengths_in_words(seconds, draft)),
    ]


def mend(problems: list[dict[str, str]]) -> list[str]:
    """Return the lines with the remedies."""
    if not problems:
        return ["\nNo problems found."]
    return ["\nTo fix:", *(f"  {entry['problem']}\n    {entry['remedy']}" for entry in problems)]
