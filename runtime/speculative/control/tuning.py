"""All constants of the controller, with units. docs/controller.md measures the value of each heuristic."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    """Constants of the controller, the same on all machines."""

    # Cost of passes (costs.py)
    context_bucket: int = 256  # tokens of context length per table row; passes within a bucket cost the same
    time_weight: float = 0.1  # weight of a new time in a running average
    shared_drift: float = 0.3  # fraction of a change in one width's time applied to all widths, as the machine's
    shared_drift_together: float = 0.8  # the same for shared passes, most of which have one width
    kept_times: int = 4  # measurements that a time restored from an earlier start counts as
    most_learned_change: float = 1.5  # largest factor between a restored time and the measurement at load
    default_slope: float = 0.5  # of T(1) per further row, until a second width was measured
    least_plain_interval: int = 24  # minimum steps between two runs of plain passes, which keep T(1) current
    most_plain_interval: int = 256  # maximum steps between two such runs
    first_plain_run: int = 16  # steps until the first run, because the measurement at load may be far off
    plain_run: int = 4  # passes in such a run
    plain_share: float = 0.002  # fraction of decode time that these runs may cost
    steady_passes: int = 2  # consecutive plain passes until one takes the time of plain decode, because of CPU caches
    leaving: float = 0.5  # initial fraction of steps with a draft that a plain step follows

    # Calibration of confidence (acceptance.py)
    prior_tokens: float = 6.0  # tokens that the prior acceptance probability counts as
    prior_acceptance: float = 0.8  # prior acceptance probability over all confidences
    first_token_weight: float = 0.25  # tokens that the prior of a first token's confidence counts as
    most_tokens: float = 200.0  # tokens per confidence bin, after which earlier ones count half
    remembered_tokens: float = 50.0  # maximum number of them that counts at the next start
    recent_decay: float = 0.97  # decay of recent counts, per step
    offset_step: float = 0.12  # logits by which one token moves the offset of all confidences
    offset_decay: float = 0.98  # decay of that offset per observed draft; lasting changes are learned by the counts
    most_offset: float = 3.0  # largest restored offset, in logits

    # Draft length (policy.py)
    policy_depth: int = 15  # draft tokens that a policy looks ahead: with the token before them, a tile of CPU kernels
    rate_step: float = 0.02  # relative step of the rate for the numerical derivative of a drafter's value
    held_up: float = 4.0  # times the expected time of a draft, after which its tokens so far are verified
    pooled_tokens: float = 1.0  # tokens that the pooled confidences count as for a step's first token
    pooled_half: float = 4.0  # number of seen tokens at which the pooled confidences have half of that weight

    # One drafter (drafter_state.py)
    first_probe: int = 8  # steps until a parked drafter is probed; each interval is twice as long
    last_probe: int = 64  # longest such interval, in steps
    unexplained_weight: float = 0.3  # weight of the new time of a step with a draft that its parts do not explain
    spike: float = 2.0  # times the estimate of a time; a time beyond counts only if two in a row agree
    news: float = 0.03  # change of the mean acceptance probability after which a drafter is valued again
    few_tokens: int = 20  # tokens to judge a drafter by; it is valued again after these and twice those seen before
    cost_news: float = 0.1  # relative change of the costs of passes after which all drafters are valued again
    price_change: float = 1.5  # change of the seconds of a first token, as a factor, after which it is valued again
    misses: int = 4  # unused proposals of a lookup in a row, after which it runs less often
    lookup_share: float = 0.003  # fraction of decode time that such a lookup may cost
    prefill_weight: float = 0.5  # weight of a new prefill time, which is rare and long
    prefill_share: float = 0.25  # fraction of a draft token's seconds assumed for a prompt token, before measurement
    rounds: int = 3  # rounds of valuing drafters and updating the best rate, usually enough to converge
    settled: float = 0.03  # relative change of the rate at which the rounds end

    # Probes of drafters that do not pay (exploration.py)
    probe_share: float = 0.006  # fraction of decode time that probes may cost
    first_probes: float = 1.0  # plain passes that probes may cost at the first start
    least_k: int = 2  # tokens that are verified in a probe that cannot be scored otherwise
    sure_probes: int = 2  # right probes in a row, after which more and more tokens are verified
    most_credit: float = 1.0  # largest credit for probes that is kept for the next start, in seconds

    # The step (controller.py)
    valuation_interval: int = 8  # passes between two valuations of the drafters whose estimates changed
    idle_seconds: float = 0.1  # maximum seconds of consecutive steps that skip all drafters
    inexact_gain: float = 1.05  # required speedup of inexact passes where exact ones are preferred
    unusual_pass: float = 2.0  # times a plain pass, from which drafters run again

    # Shared passes (joint_passes.py)
    most_stall: float = 3.0  # maximum time of a pass that also reads prompts, relative to the pass without them
    least_read: int = 3  # prompt tokens that such a pass reads at least
    read_weight: float = 0.3  # weight of a new time per prompt token
    most_read_change: float = 2.0  # largest factor to the estimate that one such time counts as
    blurred_passes: int = 16  # passes that both read and decode, after which the two are timed separately again
    drafting_weight: float = 0.1  # weight of a new number of sequences with drafts

    # Threads (threads.py)
    settling_passes: int = 3  # passes with a new number of threads until their median time is used
    stalled_pass: float = 5.0  # ratio to the estimate above which a pass counts as stalled
    lacked_cores: float = 0.5  # cores that the threads of a stalled pass lacked, if other processes are the cause
    watch_seconds: float = 0.25  # seconds between two measurements of other processes
    calm_looks: int = 2  # measurements that must find a core free before it is used again, at first
    most_calm_looks: int = 32  # maximum of that number
    soon_looks: int = 2  # times that number of measurements, within which another stall counts as soon


TUNING = Tuning()
