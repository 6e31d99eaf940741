"""Plans which parts of a pair go to GPUs, given their free memory: everything if possible, else as many layers as fit.

Follows llama.cpp's `n_gpu_layers`: the output and the last layers go to the devices, the input table stays with the
processor. Its estimates are based on buffers measured on processors: nothing here was run on a GPU. Knows headers and
arithmetic; loads no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from runtime.core.errors import NoMemoryError
from runtime.memory.fit import Headroom, LoadPlan, PairSpec, fit, longest, plan
from runtime.memory.footprint import ALL_LAYERS, ContextSpec, compute_bytes
from runtime.memory.pressure import MIB, Level, MemoryPool, Thresholds
from runtime.models.cache_layout import cache_bytes
from runtime.models.facts import ModelFacts


def fit_devices(
    spec: PairSpec, devices: Sequence[MemoryPool], host: Headroom | None, thresholds: Thresholds, name: str
) -> LoadPlan:
    """Return a plan that gives up the draft model first, then context down to the floor, and only then layers.

    Those layers stay with the processor. `devices` are one or more; `host` is the machine's own memory, if known.
    Raises NoMemoryError when the rest does not fit there.
    """
    headroom = headroom_on(devices, thresholds)
    draft_fits = spec.draft is not None and spec.needs(spec.context.n_ctx, True) <= headroom.free - headroom.for_draft
    if draft_fits or longest(spec, headroom.free - headroom.for_context):
        return fit(spec, headroom, name)
    return with_layers(spec, devices, headroom, host, name)


def fit_workers(
    spec: PairSpec, workers: Sequence[MemoryPool], host: Headroom | None, thresholds: Thresholds, name: str
) -> LoadPlan:
    """Return a plan with the target on workers, and its draft model here if it fits. Raises NoMemoryError."""
    target = fit_devices(replace(spec, draft=None), workers, host, thresholds, name)
    if spec.draft is None:
        return target
    has_room = host is None or spec.draft_needs(target.n_ctx) <= host.free - host.for_draft
    if has_room and target.n_gpu_layers == ALL_LAYERS:
        return replace(target, with_draft=True)
    return replace(target, is_less=True, text=f"the draft model is left out for lack of memory here; {target.text}")


def headroom_on(devices: Sequence[MemoryPool], thresholds: Thresholds) -> Headroom:
    """Return the headroom of all devices together: llama.cpp splits layers by the free memory of each."""
    keep = (sum(thresholds.wanted(pool, level) for pool in devices) for level in (Level.TIGHT, Level.CRITICAL))
    return Headroom(sum(pool.free for pool in devices), *(int(thresholds.recovery * n) for n in keep))


def with_layers(
    spec: PairSpec, devices: Sequence[MemoryPool], headroom: Headroom, host: Headroom | None, name: str
) -> LoadPlan:
    """Return a plan with the shortest context, no draft model, and the last layers on the devices."""
    context = replace(spec.context, n_ctx=min(spec.floor, spec.context.n_ctx))
    place = "the workers" if all(pool.is_far for pool in devices) else "the GPU"
    parts, overhead = layer_bytes(spec.target, context), compute_bytes(spec.target, context, context.n_ctx)
    budget = headroom.free - headroom.for_context - len(devices) * overhead
    # A layer cannot be split across two devices
    n_layers = n_fitting(parts, budget - max(parts) * (len(devices) - 1))
    if host is not None and (rest := sum(parts[n_layers:]) + overhead) > host.free:
        raise NoMemoryError(
            f"{name} needs {rest // MIB:,} MiB besides the {n_layers} layers that fit on {place}, but "
            f"{host.free // MIB:,} MiB are free. Close other programs, or choose a smaller model or quantization."
        )
    least = plan(spec, context.n_ctx, False, headroom)
    text = f"{n_layers} of {len(parts)} layers are on {place}; {least.text}"
    return replace(least, n_gpu_layers=n_layers, is_less=True, text=text)


def n_fitting(parts: Sequence[int], budget: int) -> int:
    """Return the number of parts that fit, taken in order."""
    taken = 0
    for n, part in enumerate(parts):
        taken += part
        if taken > budget:
            return n
    return len(parts)


def layer_bytes(facts: ModelFacts, context: ContextSpec) -> list[int]:
    """Return the bytes of weights and cache of each part that can go to a device [n_layers + 1], in that order.

    The output goes first, then the layers from the last one on.
    """
    n = facts.n_layers
    sizes, cache = [0] * (n + 1), cache_bytes(facts, context.cache_spec()) // max(1, n)
    # Then the input table is loaded a second time, as the output
    is_tied = all(tensor.name != "output.weight" for tensor in facts.header.tensors)
    for tensor in facts.header.tensors:
        kind, _, rest = tensor.name.partition(".")
        number = rest.split(".")[0]
        if kind == "blk" and number.isdigit() and int(number) < n:
            sizes[n - int(number)] += tensor.n_bytes
        elif kind.startswith("output") or (kind == "token_embd" and is_tied):
            sizes[0] += tensor.n_bytes
    return [sizes[0], *(size + cache for size in sizes[1:])]
