"""What the event loop's thread does while it is late: another thread looks at its stack, so that the loop itself has no part in it."""

import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Protocol

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
    """What a local variable named ``request`` may be able to do: say whose request it is."""

    def told(self) -> str: ...


class StackWatch:
    """Wakes for 0.1 ms on a busy machine, and looks at the thread that called `start` if that is busy for `LATE_S`.

    It sleeps until that may be so of what it knows: a turn that begins meanwhile has begun less than `LATE_S` before it
    wakes, or is looked at then. So a loop that is idle is looked at ten to twenty times a second, a late one twenty-five.
    """

    def __init__(self, clock: Callable[[], float], busy_since_s: Callable[[], float]) -> None:
        self._clock = clock
        self._busy_since_s = busy_since_s
        self._looks: deque[tuple[float, str]] = deque(maxlen=_LOOKS_MAX)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._stopped.clear()
        watched = threading.get_ident()
        self._thread = threading.Thread(target=self._run, args=(watched,), name="stack watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
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
        wait_s = LOOK_S
        while not self._stopped.wait(wait_s):
            now_s, busy_since_s = self._clock(), self._busy_since_s()
            wait_s = min(max(busy_since_s + LATE_S - now_s, MOMENT_S), 2 * LATE_S)
            if now_s - busy_since_s > LATE_S:
                wait_s = LOOK_S
                frame = sys._current_frames().get(watched)
                if frame is not None:
                    self._looks.append((now_s, place(frame)))


def place(frame: FrameType) -> str:
    """The innermost line and our own lines that led to it, the innermost first; and whose request it is about, if it is about one."""
    if frame.f_code.co_filename.endswith(_LOOPS):
        return NOTHING
    lines: list[str] = []
    about = ""
    for each in _outwards(frame):
        name = each.f_code.co_filename
        if not about:
            about = _about(each)
        if (not lines or "/ottla/" in name) and len(lines) < _FRAMES_MAX:
            lines.append(f"{_short(name)}:{each.f_lineno} {each.f_code.co_name}")
    return " < ".join(lines) + about


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _about(frame: FrameType) -> str:
    request = frame.f_locals.get("request")
    told = getattr(type(request), "told", None)
    return "" if told is None else f", for {told(request)}"


def _short(file_name: str) -> str:
    _, ours, rest = file_name.rpartition("/ottla/")
    return rest if ours else file_name.rpartition("/")[2]
