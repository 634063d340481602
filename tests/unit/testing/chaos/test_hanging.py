"""A client that hangs by its own fault is left behind; any other thread that does not end is told."""

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.testing.chaos.site import Site
from ottla.testing.chaos.workloads import workload
from ottla.testing.chaos.workloads.clients import Counted
from ottla.testing.chaos.workloads.transactions import Copier, Transactions
from ottla.testing.checker import Kind, Produce, Read, Recorder, check
from ottla.testing.checker.history import read
from ottla.testing.checker.operations import Outcome


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


def test_what_a_copier_wrote_that_is_left_behind_is_in_the_history(tmp_path: Path) -> None:
    copies, path = Transactions(), tmp_path / "history"
    copies.site = Site("", (1,), 1, tmp_path, False, {})
    copies.topics, copies.groups = ["source", "target"], ["group"]
    message = SimpleNamespace(topic=lambda: "source", partition=lambda: 0, offset=lambda: 5)
    with Recorder(path) as recorder:
        copies.history = Counted(recorder)
        copier = Copier(copies, "c0")
        copier._producer = SimpleNamespace(produce=lambda *_, **__: None)  # type: ignore[assignment]  # nobody calls back
        copier._send("c0.0.1", 0, message)  # type: ignore[arg-type]
    [written] = [line.operation for line in read(path)]
    assert isinstance(written, Produce)
    assert written.outcome is Outcome.UNKNOWN
    there = Read("target", 0, [(0, written.value)], 0, 1, final=True, begin=2**62, end=2**62, outcome=Outcome.OK)
    assert Kind.PHANTOM not in {each.kind for each in check([written, there]).anomalies}
