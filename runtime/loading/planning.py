"""Plans which parts of a pair to load into the free memory, from headers and before anything is allocated.

To GPUs and workers goes everything if possible, else as many layers as fit. This follows llama.cpp's `n_gpu_layers`:
the output and the last layers go to the devices, the input table stays with the processor. Its estimates are based on
buffers measured on processors: nothing here was run on a GPU. Knows headers, readings and options; opens no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from runtime.backends import library
from runtime.core.errors import NoMemoryError
from runtime.core.pressure import MIB, Level, MemoryPool, Reading, Thresholds, is_sane
from runtime.drafters.head import MtpDrafter
from runtime.drafters.model import ModelDrafter
from runtime.drafters.registry import Needs, known_names, needing
from runtime.loading.fit import (
    DEFAULT_CONTEXT,
    FLOOR,
    Headroom,
    LoadPlan,
    PairSpec,
    fit,
    headroom_of,
    longest,
    plan,
    spec_of,
)
from runtime.loading.footprint import ALL_LAYERS, ContextSpec, compute_bytes
from runtime.loading.options import Options
from runtime.models.adapters import n_bytes
from runtime.models.cache_layout import HALVES, cache_bytes
from runtime.models.facts import ModelFacts
from runtime.models.heads import begins_for, drafter_of
from runtime.models.mtp import has_mtp
from runtime.models.own_heads import UNKNOWN
from runtime.models.registry import Pair

MODEL, MTP = ModelDrafter.name, MtpDrafter.name  # drafters with weights, besides those of heads
HEADS = frozenset(needing(known_names(), Needs.HEAD)) | {UNKNOWN}
MAX_CONTEXT = 2**31 - 1  # most tokens of a context
TARGET_BATCH = 512  # rows of the target's prefill
# Draft tokens of a recurrent target on a processor. Each snapshot that can be restored slows every pass down (3% for
# these, 11% for twelve), and wider passes cost nearly in proportion
SNAPSHOTS = 4


def pair_spec(pair: Pair, options: Options, with_draft: bool) -> PairSpec | None:
    """Return the requested sizes of a pair; None if its headers cannot be read.

    A context that was requested is not shortened. If neither a user nor a registry requested one, it is as long as the
    model was trained for.
    """
    context = ContextSpec(
        options.n_ctx or pair.context or MAX_CONTEXT,
        n_rows=options.max_k + 1,
        n_batch=TARGET_BATCH,
        repacks=not options.exact,
        n_snapshots=n_snapshots(options) if options.drafters != () else 0,
        n_seats=options.slots,
    )
    draft, floor = pair.draft if with_draft else None, options.n_ctx or FLOOR
    spec = spec_of(pair.target, draft, context, floor, options.draft_window, library.has_gpu())
    if spec and with_draft and draft is None and has_mtp(spec.target):
        spec = replace(spec, draft=spec.target)
    if spec and pair.lora:
        spec = replace(spec, n_adapted=n_bytes(pair.lora))
    if spec is None or options.n_ctx or pair.context:
        return spec
    n_ctx = spec.context.n_ctx if spec.target.n_context else DEFAULT_CONTEXT
    return replace(spec, context=replace(spec.context, n_ctx=n_ctx), is_open=True)


def drafts_by(pair: Pair, spec: PairSpec | None) -> str:
    """Return the name of the draft's drafter: of a model, a head, or layers of the target's own file."""
    if spec is None:  # a header cannot be read: loading reports why
        return (pair.draft and begins_for(pair.draft)) or MODEL
    return MTP if spec.draft is spec.target else drafter_of(spec.draft) or MODEL


def n_snapshots(options: Options) -> int:
    """Return the number of draft tokens that a recurrent target must be able to undo."""
    return min(options.max_model_k, options.fixed_k or (options.max_model_k if library.has_gpu() else SNAPSHOTS))


def plan_with_halves(spec: PairSpec | None, reading: Reading, options: Options) -> tuple[PairSpec, LoadPlan] | None:
    """Return the spec and the plan with keys and values in F16 on the processor; None where the target alone would then
    get less than with the usual types, or where layers are elsewhere. What drafts does not matter, or the text of a
    seed would depend on it.
    """
    if spec is None or library.has_gpu() or options.rpc or options.exact:
        return None
    found = replace(spec, context=replace(spec.context, cache=HALVES))
    try:
        usual, halves = (plan_of(replace(each, draft=None), reading, options, "") for each in (spec, found))
    except NoMemoryError:
        return None
    if usual is None or halves is None or halves.is_less or halves.n_ctx < usual.n_ctx:
        return None
    plan = plan_of(found, reading, options, "")
    return (found, plan) if plan else None


def plan_within(spec: PairSpec | None, reading: Reading, options: Options, name: str) -> LoadPlan | None:
    """Return the plan for the memory that other models leave free; None if that is unknown.

    Raises NoMemoryError if the target does not fit, or a part would be left out that the options demand.
    """
    plan = plan_of(spec, reading.without(options.reserved), options, name)
    if plan and plan.is_less and options.is_whole:
        raise NoMemoryError(f"{name}: {plan.text}.")
    return plan


def plan_of(spec: PairSpec | None, reading: Reading, options: Options, name: str) -> LoadPlan | None:
    """Return the plan for the free memory; None if that is unknown. Raises ModelError if the target does not fit."""
    host, devices = headroom_of(reading, options.memory), [pool for pool in reading.pools if pool.is_device]
    if spec and spec.is_open:
        free = min([pool.free for pool in devices if is_sane(pool)], default=host.free - host.for_draft if host else 0)
        spec = spec.roomy(free)
    if spec and devices:  # with a device of unknown memory, the library decides
        place = fit_workers if all(pool.is_far for pool in devices) else fit_devices
        return place(spec, devices, host, options.memory, name) if all(map(is_sane, devices)) else None
    return fit(spec, host, name) if spec and host else None


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
