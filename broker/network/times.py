"""How long requests take, and where: the phases of Kafka's RequestMetrics, in one process and on one loop.

=============== ==================================================================================================
queue           since the turn of the loop in which its last bytes were read: others' requests come first
local           in its handler, until that returned
remote          parked (other replicas, the controller, a thread, a fetch's wait), until its answer was there
response queue  behind the answers to earlier requests, and until the writes of its turn of the loop
send            until the socket took it, or the buffer of a client that takes its answers slowly had room for it
total           all of it
=============== ==================================================================================================

Some 250 requests a second are timed of each API version: all of those that are rarer, of others one in up to 32, drawn at random,
which counts for those before it that were not. A timed request costs some 5 us, another one 0.1 us
(`tests/benchmarks/bench_request_times.py`).
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from ottla.runtime.metrics import Spread
from ottla.runtime.recent import RecentDurations

QUANTILES = {"0.50": 0.5, "0.75": 0.75, "0.95": 0.95, "0.98": 0.98, "0.99": 0.99, "0.999": 0.999}
"""Kafka's, as the JMX exporter writes them."""
RARE_S = 0.004
"""Requests that are as far from each other are all timed, and of others one in so long."""
STEP_MAX = 63
"""From one that is timed to the next: half of that on the average."""
FETCH, CONSUMER, FOLLOWER = "Fetch", "FetchConsumer", "FetchFollower"
BOTH = (CONSUMER, FOLLOWER)


class Phases(NamedTuple):
    """The durations of one name's requests."""

    queue: RecentDurations
    local: RecentDurations
    remote: RecentDurations
    response_queue: RecentDurations
    send: RecentDurations
    total: RecentDurations

    @classmethod
    def empty(cls) -> "Phases":
        return cls(*(RecentDurations() for _ in cls._fields))


class Timed:
    """One request that is timed: moments on the loop watch's clock."""

    __slots__ = ("answered_s", "began_s", "left_s", "phases", "received_s", "weight", "written_s")

    def __init__(self, phases: Phases, weight: int, received_s: float, began_s: float) -> None:
        self.phases = phases
        self.weight = weight
        self.received_s = received_s
        self.began_s = began_s
        self.left_s = inf  # until its handler returned
        self.answered_s = self.written_s = 0.0

    def sent(self, now_s: float) -> None:
        """It is out: some 2 us."""
        weight, phases, answered_s = self.weight, self.phases, self.answered_s
        left_s = min(self.left_s, answered_s)
        written_s = self.written_s or now_s
        phases.queue.record(self.began_s - self.received_s, weight)
        phases.local.record(left_s - self.began_s, weight)
        phases.remote.record(answered_s - left_s, weight)
        phases.response_queue.record(written_s - answered_s, weight)
        phases.send.record(now_s - written_s, weight)
        phases.total.record(now_s - self.received_s, weight)


class AnswerTimes:
    """Of one connection's requests those that are timed. Who handles the others looks at ``waiting`` and ``leaving``: both are empty."""

    __slots__ = ("_clock", "leaving", "waiting")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # None rather than empty: a thousand connections' empty ones would push each other out of the processor's cache.
        self.waiting: dict[object, Timed] | None = None
        """For their answer, or behind an earlier one's."""
        self.leaving: list[Timed] | None = None
        """Their answers are about to be written, or not taken."""

    def begin(self, request: object, timed: Timed) -> None:
        """``request`` is one of those that are timed."""
        if self.waiting is None:
            self.waiting = {}
        self.waiting[request] = timed

    def of(self, request: object) -> Timed | None:
        return self.waiting.get(request) if self.waiting else None

    def answered(self, request: object) -> None:
        timed = self.of(request)
        if timed is not None:
            timed.answered_s = self._clock()

    def leaves(self, request: object, response: Sequence[object]) -> None:
        timed = self.waiting.pop(request, None) if self.waiting else None
        if timed is None:
            return
        self.waiting = self.waiting or None
        if response:
            if self.leaving is None:
                self.leaving = []
            self.leaving.append(timed)
        else:  # Produce with acks=0
            timed.sent(timed.answered_s)

    def writes(self) -> None:
        now_s = self._clock()
        for timed in self.leaving or ():
            timed.written_s = timed.written_s or now_s

    def sent(self) -> None:
        now_s = self._clock()
        leaving, self.leaving = self.leaving, None
        for timed in leaving or ():
            timed.sent(now_s)

    def drop(self) -> None:
        self.waiting = None


class Sampling:
    """Which of an API version's requests are timed. Who counts them compares the count with ``at``."""

    __slots__ = ("_last_s", "_seed", "_step", "at", "phases")

    def __init__(self, phases: Phases, count: int, seed: int) -> None:
        self.phases = phases
        self.at = count + 1
        self._step = 1
        self._last_s = -inf
        self._seed = seed

    def take(self, received_s: float, now_s: float) -> Timed:
        """Times this request, and chooses the next one."""
        weight, past_s = self._step, now_s - self._last_s
        if past_s < weight * RARE_S:
            # At random, for clients send in rhythms; its own small generator, for the program's is not to be drawn from for this.
            self._seed = seed = (self._seed * 1_103_515_245 + 12_345) & 0x7FFF_FFFF
            step_max = min(STEP_MAX, int(2 * weight * RARE_S / max(past_s, 1e-9)))  # twice what would be one in RARE_S
            self._step = 1 + (seed >> 16) % step_max
        else:
            self._step = 1
        self._last_s = now_s
        self.at += self._step
        return Timed(self.phases, weight, received_s, now_s)


class RequestTimes:
    """Of all listeners of a node, by request name."""

    def __init__(self) -> None:
        self.phases: dict[str, Phases] = {}
        self.follower_fetches = 0

    def of_follower(self, timed: Timed | None) -> None:
        """A fetch turned out to be a follower's: Kafka tells the two apart."""
        self.follower_fetches += 1
        if timed is not None:
            timed.phases = self.named(FOLLOWER)

    def named(self, name: str) -> Phases:
        if name not in self.phases:
            self.phases[name] = Phases.empty()
        return self.phases[name]

    def turn_page(self) -> None:
        for phases in self.phases.values():
            for durations in phases:
                durations.turn_page()

    def spread(self, name: str, phase: str, number: float) -> Spread:
        """What one phase of a name's requests took; ``number``: how many there were since the process began."""
        ours, *others = (getattr(self.named(each), phase) for each in (BOTH if name == FETCH else (name,)))
        told = ours.percentiles(tuple(QUANTILES.values()), others) or ()
        return Spread(number, {label: 1000 * seconds for label, seconds in zip(QUANTILES, told, strict=False)})
