"""Every number that the controller rests on, with its unit. What taking one out costs is in docs/controller.md.

Knows nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    """Set once for all machines: nobody has anything to tune."""

    # What passes cost (costs.py)
    context_bucket: int = 256  # tokens of context whose passes are taken to cost the same
    time_weight: float = 0.1  # weight of a new time in an average
    shared_drift: float = 0.3  # of a change in one width's time, what is taken to be the machine's and so all widths'
    shared_drift_together: float = 0.8  # the same where sequences share passes, most of which have one width
    kept_times: int = 4  # times seen that what earlier starts learned counts as
    most_learned_change: float = 1.5  # times what was measured at load, that this may differ by
    default_slope: float = 0.5  # of T(1) per further row, until a second width was measured
    least_plain_interval: int = 24  # steps between two runs of plain passes amid drafts, at least: they keep T(1) known
    most_plain_interval: int = 256  # the same at most
    first_plain_run: int = 16  # steps until the first: what was measured at load may be wrong by much
    plain_run: int = 4  # passes of such a run
    plain_share: float = 0.002  # of decode time that they may cost
    steady_passes: int = 2  # plain passes in a row, of which the last is as in plain decode: caches are as there
    rare_weight: float = 0.25  # weight of a plain pass where there are few
    leaving: float = 0.5  # how often a step with a draft is followed by a plain one, until it is known

    # What a drafter says of itself (acceptance.py)
    prior_tokens: float = 6.0  # tokens that a first guess of a chance of acceptance counts as
    prior_acceptance: float = 0.8  # that chance over all confidences
    first_token_weight: float = 0.25  # tokens that the guess of a first token's confidence counts as
    most_tokens: float = 200.0  # tokens of a confidence, after which earlier ones count half
    remembered_tokens: float = 50.0  # of those, at most, that count at the next start
    recent_decay: float = 0.97  # of recent counts, per step
    offset_step: float = 0.12  # logits that one token moves the chances of all confidences by
    offset_decay: float = 0.98  # of that offset, per step: what lasts is for the counts to learn
    most_offset: float = 3.0  # logits that a start begins with, at most

    # How far to draft (policy.py)
    policy_depth: int = 15  # draft tokens that a policy looks ahead: with the one before them, a tile of CPU kernels
    rate_step: float = 0.02  # relative step of the rate, for the slope of a value
    held_up: float = 4.0  # times what a draft's tokens should take, after which it is verified as it is
    pooled_tokens: float = 1.0  # tokens that all confidences count as for a step's first one
    pooled_half: float = 4.0  # tokens after which they count half of that

    # One drafter (drafter_state.py)
    first_probe: int = 8  # steps until a parked drafter is probed; each pause is twice as long
    last_probe: int = 64  # the longest such pause
    spike: float = 2.0  # times what is believed of a time: beyond, it counts once two in a row agree
    patience: int = 32  # plain passes that steps with a drafter may lose in sum before it is disabled
    patience_used: float = 0.75  # of those, what counts as lost already the next time
    most_cooldown: int = 1024  # steps that a drafter is disabled for at most
    caution: float = 2.0  # power of what a drafter that expects repetition says of itself, which is believed at first
    cheap: float = 0.01  # of a plain pass: a lookup of what is given that takes less is asked in every step
    margin: float = 0.05  # tokens a step that a parked drafter must promise
    news: float = 0.03  # change of the mean chance of acceptance after which a drafter is valued anew
    dearer: float = 1.5  # times the seconds of a first token, after which it is too
    misses: int = 8  # answers of a lookup without use, after which it is asked more seldom
    lookup_share: float = 0.003  # of a plain pass that asking it may cost then
    prefill_weight: float = 0.5  # weight of a new time of reading a prompt, which is rare and long
    prefill_share: float = 0.25  # of a draft token's seconds, for a token of a prompt, before any was measured
    rounds: int = 3  # of valuing drafters and taking the best rate, which usually settle it
    settled: float = 0.03  # relative change of the rate that needs no further round

    # Asking a drafter that does not pay (exploration.py)
    probe_share: float = 0.005  # of decode time that probes may cost
    earned_share: float = 0.05  # of the seconds that drafts have gained, what probes may cost besides
    most_earned: int = 8  # plain passes that this is at most
    first_probes: int = 2  # plain passes that probes of a new drafter may cost besides
    least_k: int = 2  # tokens that are verified where a probe cannot be scored without
    verified_every: int = 4  # probes of which one is verified all the same, if the last was right
    sure_probes: int = 3  # right probes in a row, after which ever more tokens are verified
    most_credit: float = 1.0  # seconds for probes that are kept for the next start, at most

    # The step (controller.py)
    valuation_interval: int = 8  # steps between two valuations of drafters of which there is news
    prudence: float = 1.3  # times the price of a second, for lookups: of many matches, the overrated ones are used
    most_idle: int = 7  # steps in a row that are made without asking anyone
    idle_seconds: float = 0.05  # seconds that such steps may take in all
    company_change: float = 1.5  # times as many sequences in a pass make what is known of drafters old
    inexact_gain: float = (
        1.05  # times as fast, that passes which round otherwise must be where exact ones are preferred
    )
    unusual_pass: float = 2.0  # times a plain pass: after that, drafters are asked again

    # Passes that sequences share (joint_passes.py)
    most_stall: float = 3.0  # times a pass by itself, that one takes at most because prompts are read in it
    least_read: int = 3  # tokens of prompts that it reads all the same
    read_weight: float = 0.3  # weight of a new time of a prompt's token
    most_read_change: float = 2.0  # times what is believed, that one such time counts at most
    blurred_passes: int = 16  # passes that read and decode, after which the two are timed apart again
    drafting_weight: float = 0.1  # weight of a new number of sequences that draft
    apart_passes: int = 32  # passes of one sequence each until one is shared again

    # Threads (threads.py)
    first_trial: int = 16  # passes until another number of threads is tried; each pause is twice as long
    last_trial: int = 1024  # the longest such pause
    trial_passes: int = 3  # passes after which it is known what they take, if nothing holds them up
    better_trial: float = 0.9  # of the present time, below which another number is taken
    trial_block: int = 4  # passes of a trial without a pause
    trial_blocks: int = 3  # such blocks; in between come as many passes with the present number
    hopeless_trial: float = 3.0  # times the present time, above which a trial ends after one pass
    worse_trial: float = 1.25  # times the present time, above which it ends after two
    clear_trial: float = 0.5  # of the present time, below which it ends after a few
    drifted_pass: float = 1.3  # times a pass of the last trial: time for the next
    stalled_pass: float = 5.0  # times what was expected, after which a pass is asked what held it up
    lacked_cores: float = 0.5  # cores that its threads must have lacked to be held up by others
    watch_seconds: float = 0.25  # seconds between two looks at other programs
    calm_looks: int = 2  # looks that must find a core free before it is used again, at first
    most_calm_looks: int = 32  # the same at most
    soon_looks: int = 2  # times as many looks, within which a pass is held up again soon


TUNING = Tuning()
