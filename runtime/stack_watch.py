"""What the event loop's thread does while it is late: another thread looks at its stack, so that the loop itself has no part in it.

The same thread finds work that nobody announced, so that an idle loop need not wake to see whether it was late.
"""

import gc
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from math import inf
from types import FrameType
from typing import Protocol

INTERVAL_S = 0.1
"""An idle loop is looked at at the whole multiples of this: each look costs a wake-up, 0.1 ms, and a turn that gets a line in the log has one in
time all the same. All nodes of a machine look at once, when the timers of a beat are due as well."""
LOOK_S = 0.04
MOMENT_S = 0.002
LATE_S = 0.05
"""From then on the stack is looked at: at least once in a turn that is worth a line in the log."""
_LOOKS_MAX = 400
_FRAMES_MAX = 8
_LOOPS = ("/asyncio/runners.py", "/asyncio/base_events.py", "/selectors.py")


NOTHING = "no code of ours: the machine did not run this process, or not for long"
"""The thread was where it waits for the next turn."""


class Told(Protocol):
    """What the loop is busy with, if that can say whose request it is."""

    def told(self) -> str: ...


class StackWatch:
    """Looks at the thread that called `start`: for 0.1 ms on a busy machine, every `INTERVAL_S` while that waits, and every `LOOK_S` once it was
    busy for `LATE_S`.

    It may find the thread at work that nobody announced, or itself not woken in time (a call that lets no other thread run, a process that was
    stopped): then it asks the loop to say when it comes round.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        busy_since_s: Callable[[], float],
        ask: Callable[[float], None],
        subject: Callable[[], Told | None] = lambda: None,
    ) -> None:
        """``busy_since_s``: since when the loop has not come round, as far as is known; infinity if nothing is. ``ask`` is told when the loop was
        found busy, ``subject`` tells what it is busy with; all are called on the other thread."""
        self._clock = clock
        self._busy_since_s = busy_since_s
        self._ask = ask
        self._subject = subject
        self._looks: deque[tuple[float, str]] = deque(maxlen=_LOOKS_MAX)
        self._running = threading.Lock()  # an Event's wait would cost several us more each time
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._running.acquire()
        watched = threading.get_ident()
        self._thread = threading.Thread(target=self._run, args=(watched,), name="stack watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._thread is not None:
            self._running.release()
            self._thread.join()
            self._thread = None

    def seen(self, since_s: float) -> str | None:
        """Where the thread was found most of the times since then; None when it was not looked at. For the watched thread."""
        # Copied at once: the other thread may look meanwhile.
        looks = [place for when_s, place in tuple(self._looks) if when_s >= since_s]
        if not looks:
            return None
        place, times = Counter(looks).most_common(1)[0]
        return place if times == len(looks) else f"{place} ({times} of {len(looks)} looks)"

    def _run(self, watched: int) -> None:
        wait_s = INTERVAL_S
        due_s = self._clock() + wait_s
        while not self._running.acquire(timeout=wait_s):
            wait_s = self._look_uncollected(watched, due_s)
            due_s = self._clock() + wait_s
        self._running.release()

    def _look_uncollected(self, watched: int, due_s: float) -> float:
        """To ask a frame for its caller makes an object, which may set the collector off, and what that calls back lets the other thread go on:
        the caller may be gone before its object is made (CPython 3.11; 3.12 stops the collector in ``_current_frames`` itself)."""
        was_on = gc.isenabled()
        gc.disable()
        try:
            return self._look(sys._current_frames().get(watched), due_s)
        finally:
            if was_on:
                gc.enable()

    def _look(self, frame: FrameType | None, due_s: float) -> float:
        """Looks at the thread's innermost ``frame`` at a time that should have been ``due_s``; returns after how long to look again."""
        now_s, busy_since_s = self._clock(), self._busy_since_s()
        if busy_since_s == inf:
            was_kept = now_s - due_s > INTERVAL_S
            if was_kept or not _waits(frame):
                self._ask(due_s if was_kept else now_s)
            return INTERVAL_S - now_s % INTERVAL_S
        if now_s - busy_since_s <= LATE_S:
            return max(busy_since_s + LATE_S - now_s, MOMENT_S)
        if frame is not None:
            self._looks.append((now_s, place(frame) + _about(self._subject())))
        return LOOK_S


def _waits(frame: FrameType | None) -> bool:
    return frame is None or frame.f_code.co_filename.endswith(_LOOPS)


def place(frame: FrameType) -> str:
    """The innermost line and our own lines that led to it, the innermost first.

    Nothing but code, line and caller is asked of a frame: it runs in another thread. ``f_locals`` of one is built inside the frame, and a
    collection meanwhile lets that thread go on and leave it: CPython 3.11 then writes where the frame was. A node died of that (SIGSEGV).
    """
    if _waits(frame):
        return NOTHING
    lines: list[str] = []
    for each in _outwards(frame):
        name = each.f_code.co_filename
        if not lines or "/ottla/" in name:
            lines.append(f"{_short(name)}:{each.f_lineno} {each.f_code.co_name}")
        if len(lines) == _FRAMES_MAX:
            break
    return " < ".join(lines)


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _about(subject: Told | None) -> str:
    return "" if subject is None else f", for {subject.told()}"


def _short(file_name: str) -> str:
    _, ours, rest = file_name.rpartition("/ottla/")
    return rest if ours else file_name.rpartition("/")[2]
