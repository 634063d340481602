"""Signals ask a job to end; it ends by itself."""

import signal

import pytest

from ottla.pipeline.jobs.stopping import Stopping


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_the_second_is_urgent_and_the_third_interrupts(which: signal.Signals) -> None:
    with Stopping() as stopping:
        signal.raise_signal(which)
        assert (stopping.is_asked, stopping.is_urgent) == (True, False)
        signal.raise_signal(which)
        assert stopping.is_urgent
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(which)


def test_afterwards_signals_do_what_they_did_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Stopping():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
