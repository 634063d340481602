"""Timers by the ten thousand: a hierarchical timing wheel, and one loop timer that drives it.

A parked request adds a timer and nearly always cancels it. In the wheel both cost one dictionary operation and leave
nothing behind, whereas the loop's heap would keep every cancelled timer until its time comes.
Source of the idea: Varghese and Lauck, "Hashed and hierarchical timing wheels" (1987).
"""

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable, Iterator
from math import ceil, inf

from ottla.runtime.clock_loop import loop_ms
from ottla.runtime.loop_watch import LoopWatch

_SLOT_BITS = 6
_SLOTS = 1 << _SLOT_BITS
_LEVELS = 8  # slots of 1 ms, 64 ms, 4 s, 4.4 min, 4.7 h, 12 days, 2.2 years, 139 years
_END_OF_TIME_MS = (1 << (_SLOT_BITS * _LEVELS)) - 1  # 8,900 years: "never" for deadlines such as 2^63

LOOKED_AT_MAX = 64
"""Of the timers that come next, to know exactly when: in a crowd somebody is due soon anyway."""

CALLBACKS_PER_TURN = 64
"""Of a crowd that is due together (fetches that wait half a second each), so that it holds the loop for a few milliseconds at a time."""

SHARED_BEAT_MS = 1_000
"""Beats of this period, and of those that divide it, are the same for all processes of a machine: they share its monotonic clock."""

Callback = Callable[[], None]


class Timer:
    """A callback that waits for its deadline (milliseconds of the wheel's clock)."""

    __slots__ = ("_slot", "callback", "deadline_ms")

    def __init__(self, deadline_ms: int, callback: Callback) -> None:
        self.deadline_ms = deadline_ms
        self.callback = callback
        self._slot: _Slot | None = None

    @property
    def active(self) -> bool:
        """Neither fired nor cancelled."""
        return self._slot is not None

    def cancel(self) -> None:
        """Forgets the callback. Nothing happens when it has fired or was cancelled before."""
        slot = self._slot
        if slot is not None:
            self._slot = None
            slot.remove(self)


class _Slot:
    """The timers of one slot, in the order they came. A dict, so that any of them leaves in one step."""

    __slots__ = ("bit", "level", "timers")

    def __init__(self, level: "_Level", index: int) -> None:
        self.level = level
        self.bit = 1 << index
        self.timers: dict[Timer, None] = {}

    def add(self, timer: Timer) -> None:
        timer._slot = self
        self.timers[timer] = None
        self.level.occupied |= self.bit

    def remove(self, timer: Timer) -> None:
        self.timers.pop(timer, None)  # it is not there any more while its slot is being emptied
        if not self.timers:
            self.level.occupied &= ~self.bit

    def take(self) -> list[Timer]:
        timers = list(self.timers)
        self.timers.clear()
        self.level.occupied &= ~self.bit
        return timers


class _Level(dict[int, _Slot]):
    """64 slots, each made when it is first used; bit i of ``occupied`` says that slot i holds a timer."""

    __slots__ = ("occupied", "shift")

    def __init__(self, level: int) -> None:
        super().__init__()
        self.shift = level * _SLOT_BITS
        self.occupied = 0

    def __missing__(self, index: int) -> _Slot:
        slot = self[index] = _Slot(self, index)
        return slot


class TimingWheel:
    """Timers in eight levels of 64 slots. Pure: time is what `advance` is told. Adding and cancelling cost O(1).

    A timer stands at the level of the highest base-64 digit in which its deadline differs from the present. Hence every
    occupied slot lies ahead in the present turn of its level, and the lowest occupied level holds what comes first.
    """

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._levels = [_Level(level) for level in range(_LEVELS)]

    def add(self, deadline_ms: int, callback: Callback) -> Timer:
        """``callback`` runs in the first `advance` to ``deadline_ms`` or later; if that is past, in the next millisecond."""
        timer = Timer(deadline_ms, callback)
        self._place(timer)
        return timer

    def _place(self, timer: Timer) -> None:
        now_ms = self._now_ms
        deadline_ms = min(max(timer.deadline_ms, now_ms + 1), _END_OF_TIME_MS)
        level = self._levels[((deadline_ms ^ now_ms).bit_length() - 1) // _SLOT_BITS]
        level[(deadline_ms >> level.shift) & (_SLOTS - 1)].add(timer)

    def next_deadline_ms(self) -> int | None:
        """No timer fires before this moment; None when there is no timer. Exact, but for a crowd of timers far away."""
        first = self._first_slot()
        if first is None:
            return None
        starts_ms, slot = first
        if len(slot.timers) > LOOKED_AT_MAX:
            return starts_ms
        return max(starts_ms, min(timer.deadline_ms for timer in slot.timers))

    def _first_slot(self) -> "tuple[int, _Slot] | None":
        for level in self._levels:
            if level.occupied:
                index = (level.occupied & -level.occupied).bit_length() - 1
                turn = self._now_ms >> (level.shift + _SLOT_BITS) << _SLOT_BITS
                return (turn | index) << level.shift, level[index]
        return None

    def advance(self, now_ms: int) -> None:
        """Runs what is due at ``now_ms``, ordered by deadline and then by arrival. Callbacks may add and cancel timers."""
        for timer in self.expire(now_ms):
            timer.callback()

    def expire(self, now_ms: int) -> Iterator[Timer]:
        """What `advance` runs, one by one, for a caller that runs the callbacks itself. To be read to its end."""
        while (first := self._first_slot()) and first[0] <= now_ms:
            self._now_ms, slot = first
            for timer in slot.take():
                if timer._slot is None:  # cancelled by a callback of this very slot
                    continue
                if timer.deadline_ms <= self._now_ms:
                    timer._slot = None
                    yield timer
                else:
                    self._place(timer)
        self._now_ms = max(self._now_ms, now_ms)


class LoopTimers:
    """A timing wheel on an event loop, with at most one `call_at` pending for all timers."""

    def __init__(self, loop: AbstractEventLoop, watch: LoopWatch | None = None) -> None:
        self.watch = watch or LoopWatch()
        self._loop = loop
        now_ms = loop_ms(loop)
        self._born_ms = now_ms - now_ms % SHARED_BEAT_MS
        self._wheel = TimingWheel(now_ms)
        self._wake_ms: float = inf
        self._handle: TimerHandle | None = None

    def now_ms(self) -> int:
        """The loop's time in milliseconds: the clock of the timers' deadlines."""
        return loop_ms(self._loop)

    def call_later_ms(self, delay_ms: int, callback: Callback) -> Timer:
        """Runs ``callback`` on the loop, not before ``delay_ms`` have passed. Its exceptions go to the loop's handler."""
        return self._add(ceil(self._loop.time() * 1000) + delay_ms, callback)

    def call_at_beat(self, period_ms: int, callback: Callback) -> Timer:
        """The same, when the next whole number of periods has passed since the second in which these timers began: ``period_ms`` from now
        at the latest.

        What has the same period, or one that divides it, shares a wake-up then, and a wake-up is what an idle node pays for. Nodes of one
        machine keep time together as well, with `SHARED_BEAT_MS`, and what they ask each other at a beat is answered at one.
        """
        now_ms = ceil(self._loop.time() * 1000)
        return self._add(now_ms + period_ms - (now_ms - self._born_ms) % period_ms, callback)

    def _add(self, deadline_ms: int, callback: Callback) -> Timer:
        timer = self._wheel.add(deadline_ms, callback)
        if timer.deadline_ms < self._wake_ms:
            self._wake_at(timer.deadline_ms)
        return timer

    def _wake_at(self, deadline_ms: int) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._wake_ms = deadline_ms
        self._handle = self._loop.call_at(deadline_ms / 1000, self._run_due)

    def _run_due(self) -> None:
        self._handle = None
        self._wake_ms = -inf  # timers added before all of these ran need no wake-up of their own
        self._run_some(self._wheel.expire(loop_ms(self._loop)))

    def _run_some(self, due: Iterator[Timer]) -> None:
        if not self.watch.is_open:
            self.watch.begin()
        left = CALLBACKS_PER_TURN
        for timer in due:
            try:
                timer.callback()
            except Exception as error:  # noqa: BLE001 - one broken timer must not silence the others
                context = {"message": "a timer's callback failed", "exception": error}
                self._loop.call_exception_handler(context)
            left -= 1
            if not left:
                self._loop.call_soon(self._run_some, due)
                return
        self._wake_ms = inf
        next_ms = self._wheel.next_deadline_ms()
        if next_ms is not None:
            self._wake_at(next_ms)


class Repeated:
    """Work done again and again at the beats of a loop's timers, until `cancel`."""

    def __init__(self, timers: LoopTimers) -> None:
        self._timers = timers
        self._next: list[Timer] = []

    def every(self, interval_ms: int, work: Callable[[], object]) -> None:
        """Runs ``work`` first after one interval at most. What it raises goes to the loop's handler, and it runs again."""
        place, interval_ms = len(self._next), max(1, interval_ms)

        def tick() -> None:
            self._next[place] = self._timers.call_at_beat(interval_ms, tick)
            work()

        self._next.append(self._timers.call_at_beat(interval_ms, tick))

    def cancel(self) -> None:
        for timer in self._next:
            timer.cancel()
