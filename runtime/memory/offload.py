"""What of a pair goes to GPUs, given what is free there: everything if that is possible, else as many layers as fit.

Follows llama.cpp's `n_gpu_layers`: the output and the last layers go to the devices, the input table stays with the
processor. Its estimates rest on buffers measured on processors: nothing here was run on a GPU. Knows headers and
arithmetic; loads no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from runtime.core.errors import ModelError
from runtime.memory.footprint import Plan, Room, Way, Wish, compute_bytes, fit, longest, plan
from runtime.memory.pressure import MIB, Level, Place, Thresholds
from runtime.models.facts import ModelFacts


def fit_devices(wish: Wish, devices: Sequence[Place], host: Room | None, thresholds: Thresholds, name: str) -> Plan:
    """Gives up the draft model first, then context down to the floor, then the cache's precision, and only then leaves
    layers to the processor.

    `devices` are one or more; `host` is the machine's own memory, if known. Raises ModelError when what is left for it
    does not fit there.
    """
    room = room_on(devices, thresholds)
    draft_fits = wish.draft is None or wish.needs(wish.way.n_ctx, wish.caches[0], True) <= room.free - room.for_draft
    if draft_fits or any(longest(wish, cache, room.free - room.for_context) for cache in wish.caches):
        return fit(wish, room, name)
    return with_layers(wish, devices, room, host, name)


def room_on(devices: Sequence[Place], thresholds: Thresholds) -> Room:
    """Of all devices together: llama.cpp splits layers by what is free on each."""
    keep = (sum(thresholds.wanted(place, level) for place in devices) for level in (Level.TIGHT, Level.CRITICAL))
    return Room(sum(place.free for place in devices), *(int(thresholds.recovery * n) for n in keep))


def with_layers(wish: Wish, devices: Sequence[Place], room: Room, host: Room | None, name: str) -> Plan:
    """The shortest context, the smallest cache, no draft model, and the last layers on the devices."""
    way = replace(wish.way, n_ctx=min(wish.floor, wish.way.n_ctx), cache=wish.caches[-1])
    parts, overhead = layer_bytes(wish.target, way), compute_bytes(wish.target, way, way.n_ctx)
    budget = room.free - room.for_context - len(devices) * overhead
    # A layer that would lie across two devices moves as a whole
    n_layers = n_fitting(parts, budget - max(parts) * (len(devices) - 1))
    if host is not None and (rest := sum(parts[n_layers:]) + overhead) > host.free:
        raise ModelError(
            f"{name} needs {rest // MIB:,} MiB beside the {n_layers} layers that fit on the GPU, but "
            f"{host.free // MIB:,} MiB are free. "
            "Close other programs, or choose a smaller model or quantization."
        )
    least = plan(wish, way.n_ctx, way.cache, False, room)
    return replace(
        least,
        n_gpu_layers=n_layers,
        is_less=True,
        text=f"{n_layers} of {len(parts)} layers are on the GPU; {least.text}",
    )


def n_fitting(parts: Sequence[int], budget: int) -> int:
    """How many of the parts fit, taken in order."""
    taken = 0
    for n, part in enumerate(parts):
        taken += part
        if taken > budget:
            return n
    return len(parts)


def layer_bytes(facts: ModelFacts, way: Way) -> list[int]:
    """Weights and cache of what can go to a device [n_layers + 1], in the order in which it goes: the output, then the
    layers from the last.
    """
    n = facts.n_layers
    sizes, cache = [0] * (n + 1), facts.cache_bytes(way.n_ctx, way.cache) // max(1, n)
    # Then the input table is there a second time
    is_tied = all(tensor.name != "output.weight" for tensor in facts.header.tensors)
    for tensor in facts.header.tensors:
        kind, _, rest = tensor.name.partition(".")
        number = rest.split(".")[0]
        if kind == "blk" and number.isdigit() and int(number) < n:
            sizes[n - int(number)] += tensor.n_bytes
        elif kind.startswith("output") or (kind == "token_embd" and is_tied):
            sizes[0] += tensor.n_bytes
    return [sizes[0], *(size + cache for size in sizes[1:])]
