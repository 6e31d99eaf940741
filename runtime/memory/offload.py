"""What of a pair goes to GPUs, given what is free there: everything if that is possible, else as many layers as fit.

Follows llama.cpp's `n_gpu_layers`: the output and the last layers go to the devices, the input table stays with the
processor. Its estimates rest on buffers measured on processors: nothing here was run on a GPU. Knows headers and
arithmetic; loads no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from runtime.core.errors import NoMemoryError
from runtime.memory.fit import Headroom, LoadPlan, PairSpec, fit, longest, plan
from runtime.memory.footprint import ContextSpec, compute_bytes
from runtime.memory.pressure import MIB, Level, MemoryPool, Thresholds
from runtime.models.cache_layout import cache_bytes
from runtime.models.facts import ModelFacts


def fit_devices(
    spec: PairSpec, devices: Sequence[MemoryPool], host: Headroom | None, thresholds: Thresholds, name: str
) -> LoadPlan:
    """Gives up the draft model first, then context down to the floor, and only then leaves layers to the processor.

    `devices` are one or more; `host` is the machine's own memory, if known. Raises NoMemoryError when what is left
    for it does not fit there.
    """
    headroom = headroom_on(devices, thresholds)
    draft_fits = bool(spec.draft) and spec.needs(spec.context.n_ctx, True) <= headroom.free - headroom.for_draft
    if draft_fits or longest(spec, headroom.free - headroom.for_context):
        return fit(spec, headroom, name)
    return with_layers(spec, devices, headroom, host, name)


def headroom_on(devices: Sequence[MemoryPool], thresholds: Thresholds) -> Headroom:
    """The headroom of all devices together: llama.cpp splits layers by what is free on each."""
    keep = (sum(thresholds.wanted(pool, level) for pool in devices) for level in (Level.TIGHT, Level.CRITICAL))
    return Headroom(sum(pool.free for pool in devices), *(int(thresholds.recovery * n) for n in keep))


def with_layers(
    spec: PairSpec, devices: Sequence[MemoryPool], headroom: Headroom, host: Headroom | None, name: str
) -> LoadPlan:
    """The shortest context, no draft model, and the last layers on the devices."""
    context = replace(spec.context, n_ctx=min(spec.floor, spec.context.n_ctx))
    parts, overhead = layer_bytes(spec.target, context), compute_bytes(spec.target, context, context.n_ctx)
    budget = headroom.free - headroom.for_context - len(devices) * overhead
    # A layer that would lie across two devices moves as a whole
    n_layers = n_fitting(parts, budget - max(parts) * (len(devices) - 1))
    if host is not None and (rest := sum(parts[n_layers:]) + overhead) > host.free:
        raise NoMemoryError(
            f"{name} needs {rest // MIB:,} MiB beside the {n_layers} layers that fit on the GPU, but "
            f"{host.free // MIB:,} MiB are free. Close other programs, or choose a smaller model or quantization."
        )
    least = plan(spec, context.n_ctx, False, headroom)
    text = f"{n_layers} of {len(parts)} layers are on the GPU; {least.text}"
    return replace(least, n_gpu_layers=n_layers, is_less=True, text=text)


def n_fitting(parts: Sequence[int], budget: int) -> int:
    """How many of the parts fit, taken in order."""
    taken = 0
    for n, part in enumerate(parts):
        taken += part
        if taken > budget:
            return n
    return len(parts)


def layer_bytes(facts: ModelFacts, context: ContextSpec) -> list[int]:
    """Weights and cache of what can go to a device [n_layers + 1], in the order in which it goes: the output, then the
    layers from the last.
    """
    n = facts.n_layers
    sizes, cache = [0] * (n + 1), cache_bytes(facts, context.cache_spec()) // max(1, n)
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
