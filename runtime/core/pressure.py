"""The level of memory shortage: OK, TIGHT or CRITICAL, with hysteresis.

Judges the readings of a source; what to free is decided elsewhere. A source that fails or reports impossible values is
ignored, and without any reading the level is OK. Knows no model and no operating system.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import IntEnum

from runtime.core.errors import SettingsError

MIB = 2**20
COST_SHARE = 0.001  # share of the time that readings may take
LAST_LOOK = 5.0  # longest interval between two readings in seconds, even if they are slow
MOST_CALM = 600.0  # longest required calm in seconds, after any number of relapses


class Level(IntEnum):
    """The level of memory shortage."""

    OK = 0
    TIGHT = 1
    CRITICAL = 2


@dataclass(frozen=True, slots=True)
class MemoryPool:
    """A pool of memory that can run out: the machine's, a cgroup's, a GPU's."""

    name: str  # as the subject of a sentence
    free: int  # bytes
    total: int
    is_device: bool = False  # a GPU's, which is allocated once and does not grow unnoticed
    is_far: bool = False  # a worker's


@dataclass(frozen=True, slots=True)
class Reading:
    """The machine's memory at one moment."""

    pools: tuple[MemoryPool, ...] = ()
    stalled_some: float = 0.0  # share of the last ten seconds in which some process waited for memory
    stalled_full: float = 0.0  # in which all of them did
    os_level: Level = Level.OK  # as the operating system reports it

    def without(self, n_bytes: int) -> Reading:
        """Return the reading with `n_bytes` less of the machine's own memory free."""
        pools = (pool if pool.is_device else replace(pool, free=max(0, pool.free - n_bytes)) for pool in self.pools)
        return replace(self, pools=tuple(pools))


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The limits of memory shortage. That share of a pool must stay free, but at most that many bytes."""

    tight_share: float = 0.08
    tight_bytes: int = 1536 * MIB
    critical_share: float = 0.03
    critical_bytes: int = 512 * MIB
    tight_device_bytes: int = 256 * MIB
    critical_device_bytes: int = 96 * MIB
    tight_waited: float = 0.10  # share of time in which some process waits for memory
    critical_stood: float = 0.25  # in which all do
    recovery: float = 1.25  # times as much must be free before the level falls
    calm_seconds: float = 20.0  # for which that must hold
    interval: float = 0.25  # seconds between two readings

    def __post_init__(self) -> None:
        """Check the values. Raises SettingsError naming an invalid one."""
        for field in fields(self):
            value = getattr(self, field.name)
            if not math.isfinite(value) or value < 0:
                raise SettingsError(f"{field.name} is {value}: it must be a number that is not negative.")
        for name in ("tight_share", "critical_share", "tight_waited", "critical_stood"):
            if getattr(self, name) > 1:
                raise SettingsError(f"{name} is {getattr(self, name)}: it is a share, from 0 to 1.")
        for name in ("share", "bytes", "device_bytes"):
            tight, critical = getattr(self, f"tight_{name}"), getattr(self, f"critical_{name}")
            if critical > tight:
                raise SettingsError(
                    f"critical_{name} is {critical}, more than tight_{name} with {tight}. Memory is tight before it is "
                    "critical."
                )
        if self.recovery < 1:
            raise SettingsError(f"recovery is {self.recovery}: it must be at least 1, or the level would flap.")

    def wanted(self, pool: MemoryPool, level: Level) -> int:
        """Return the bytes of a pool that must be free for the level not to be reached."""
        tight = level == Level.TIGHT
        if pool.is_device:
            return self.tight_device_bytes if tight else self.critical_device_bytes
        share, most = (self.tight_share, self.tight_bytes) if tight else (self.critical_share, self.critical_bytes)
        return min(int(share * pool.total), most)


USUAL = Thresholds()


@dataclass(frozen=True, slots=True)
class Assessment:
    """A level, and its cause as the end of a sentence that gives a reason."""

    level: Level
    text: str = ""


def judge(reading: Reading, thresholds: Thresholds, recovery: float = 1.0, reserve: int = 0) -> Assessment:
    """Return the worst level by any pool and the system.

    The factor `recovery` and `reserve` bytes require more free memory than the thresholds.
    """
    all_found = [assess_pool(pool, thresholds, recovery, reserve) for pool in reading.pools if is_sane(pool)]
    all_found += [
        assess_stalls(reading, thresholds, recovery),
        Assessment(reading.os_level, "the operating system reported memory pressure"),
    ]
    return max(all_found, key=lambda found: found.level)


def is_sane(pool: MemoryPool) -> bool:
    """Return whether a pool's values are possible. A device that does not know its memory reports 0 of 0."""
    return pool.total > 0 and 0 <= pool.free <= pool.total


def assess_pool(pool: MemoryPool, thresholds: Thresholds, recovery: float, reserve: int) -> Assessment:
    """Return the level by the free memory of a pool."""
    for level in (Level.CRITICAL, Level.TIGHT):
        wanted = thresholds.wanted(pool, level)
        if pool.free < recovery * wanted + reserve:
            return Assessment(
                level,
                f"{pool.name} had {pool.free // MIB:,} MiB of memory left, where {wanted // MIB:,} MiB should stay "
                "free",
            )
    return Assessment(Level.OK)


def assess_stalls(reading: Reading, thresholds: Thresholds, recovery: float) -> Assessment:
    """Return the level by the time that processes waited for memory; a share outside 0 to 1 is ignored."""
    some, full = (share if 0 <= share <= 1 else 0.0 for share in (reading.stalled_some, reading.stalled_full))
    if full * recovery > thresholds.critical_stood:
        return Assessment(Level.CRITICAL, f"all processes stalled for memory in {full:.0%} of the last ten seconds")
    if some * recovery > thresholds.tight_waited:
        return Assessment(Level.TIGHT, f"processes waited for memory in {some:.0%} of the last ten seconds")
    return Assessment(Level.OK)


def room_for_states(reader: Callable[[], Reading], thresholds: Thresholds, share: float = 0.25) -> int:
    """Return the bytes for saved conversations: that share of the memory that is free and need not stay free."""
    left = [pool.free - thresholds.wanted(pool, Level.TIGHT) for pool in reader().pools if not pool.is_device]
    return max(0, int(share * min(left, default=0)))


class PressureMonitor:
    """The level over time: it rises immediately, and falls when more than enough was free for a while."""

    def __init__(
        self,
        source: Callable[[], Reading],
        thresholds: Thresholds = USUAL,
        clock: Callable[[], float] = time.monotonic,
        reserve: int = 0,
    ) -> None:
        self.source, self.thresholds, self.clock = source, thresholds, clock
        self.reserve = reserve  # bytes that are allocated again when the level falls
        self.found = Assessment(Level.OK)
        self.has_room = True  # whether the last reading had room for the reserve, with more than must stay free
        self.problem = ""  # why the last reading failed
        self.next_look = -math.inf
        self._costs: deque[float] = deque([math.inf], maxlen=4)  # seconds of the last readings
        self._calm = self.thresholds.calm_seconds  # that are required now
        self._calmer = math.inf, Level.OK  # since when readings are calmer than the level, and their highest level
        self._fell = -math.inf

    @property
    def level(self) -> Level:
        """Level at the last reading."""
        return self.found.level

    def update(self) -> Level:
        """Return the level now; take a reading only as often as that costs almost nothing."""
        now = self.clock()
        if now < self.next_look:
            return self.level
        try:
            self._take(self.source(), now)
            self.problem = ""
        except Exception as error:  # no failure of a reader may end a reply; the level stays
            self.problem = f"memory could not be read ({type(error).__name__}: {error})"
        self._costs.append(self.clock() - now)  # the minimum is used: one may have waited for the processor
        self.next_look = now + max(self.thresholds.interval, min(min(self._costs) / COST_SHARE, LAST_LOOK))
        return self.level

    def _take(self, reading: Reading, now: float) -> None:
        """Raise, keep or lower the level by one reading."""
        found = judge(reading, self.thresholds)
        calm = judge(reading, self.thresholds, self.thresholds.recovery, self.reserve).level
        self.has_room = calm == Level.OK
        if found.level >= self.level:
            if found.level > self.level:
                self._wait_longer(now)
            self.found, self._calmer = found, (math.inf, Level.OK)
            return
        since, highest = self._calmer if calm < self.level else (math.inf, Level.OK)
        if calm < self.level:
            since, highest = min(since, now), max(highest, calm)
        if now - since >= self._calm:
            self.found = Assessment(highest, found.text or self.found.text)
            since, highest, self._fell = math.inf, Level.OK, now
        self._calmer = since, highest

    def _wait_longer(self, now: float) -> None:
        """Require a longer calm the next time if memory runs short again soon after the level fell."""
        soon = now - self._fell < 5 * self._calm
        self._calm = min(2 * self._calm, max(MOST_CALM, self._calm)) if soon else self.thresholds.calm_seconds
