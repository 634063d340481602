"""The signals that ask a process to stop in order."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopAsked(BaseException):
    """A signal of these came within `heard_at_once`. No error of what was at work there: nothing is to catch it on the way."""


def stop_signals() -> tuple[signal.Signals, ...]:
    """Of them SIGHUP (the terminal was closed) as for a JVM: not for a process that was started with nohup."""
    asked = (signal.SIGTERM, signal.SIGINT)
    return asked if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*asked, signal.SIGHUP)


@contextmanager
def heard_at_once() -> Iterator[None]:
    """For work that keeps the loop, and so the loop's handlers, waiting for minutes: a signal raises StopAsked where that stands.
    The loop hears it all the same. For the main thread."""
    before = {number: signal.signal(number, _raise) for number in stop_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise(number: int, _frame: FrameType | None) -> None:
    raise StopAsked(signal.Signals(number).name)
