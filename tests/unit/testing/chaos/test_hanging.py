"""A client that hangs by its own fault is left behind; any other thread that does not end is told."""

import threading

import pytest

from ottla.testing.chaos.workloads import workload
from ottla.testing.chaos.workloads.transactions import Transactions


@pytest.mark.parametrize("is_known", [True, False])
def test_only_who_sends_offsets_may_be_left_behind(is_known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "STOP_S", 0)
    copies, begun, ends = Transactions(), threading.Event(), threading.Event()

    def hang() -> None:
        if is_known:
            with copies.noted_as_sending():
                begun.set()
                ends.wait()
        begun.set()
        ends.wait()

    thread = threading.Thread(target=hang, name="copier")
    copies._threads.append(thread)
    thread.start()
    begun.wait()
    try:
        if is_known:
            copies.stop()
        else:
            with pytest.raises(TimeoutError, match="copier did not end"):
                copies.stop()
    finally:
        ends.set()
        thread.join()
    assert copies.sending_offsets == set()
