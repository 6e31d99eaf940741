"""Plans which parts of a pair to load into the free memory, from headers and before anything is allocated.

Knows headers, readings and options; opens no model.
"""

from __future__ import annotations

from dataclasses import replace

from runtime.backends import library
from runtime.core.errors import NoMemoryError
from runtime.drafters.head import MtpDrafter
from runtime.drafters.model import ModelDrafter
from runtime.drafters.registry import Needs, known_names, needing
from runtime.loading.options import Options
from runtime.memory.fit import DEFAULT_CONTEXT, FLOOR, LoadPlan, PairSpec, fit, headroom_of, spec_of
from runtime.memory.footprint import ContextSpec
from runtime.memory.offload import fit_devices, fit_workers
from runtime.memory.pressure import Reading, is_sane
from runtime.models.cache_layout import HALVES
from runtime.models.heads import ASSISTANT, DRAFTERS, begins_for, drafter_of
from runtime.models.mtp import has_mtp
from runtime.models.own_heads import UNKNOWN
from runtime.models.registry import Pair

MODEL, MTP = ModelDrafter.name, MtpDrafter.name  # drafters with weights, besides those of heads
HEADS = frozenset(needing(known_names(), Needs.HEAD)) | {DRAFTERS[ASSISTANT], UNKNOWN}
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
