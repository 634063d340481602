"""`ottla up`: the part that needs no processes."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ottla.cli import up
from ottla.cli.local_cluster import LocalCluster


class Imagined(LocalCluster):
    """No nodes; remembers that it was stopped."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, [], "cluster")
        self.stopped = False

    def stop(self, timeout_s: float) -> list[object]:  # type: ignore[override]  # there are none
        self.stopped = True
        return []


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_that_comes_while_a_line_is_printed_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def echo(_line: str) -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except Exception:  # noqa: BLE001 - as click does where it asks a stream whether it is a terminal
            return

    def watch(_cluster: LocalCluster) -> None:
        pytest.fail("the signal was lost")

    monkeypatch.setattr(click, "echo", echo)
    monkeypatch.setattr(up, "_watch", watch)
    cluster = Imagined(tmp_path)

    up._run(cluster, None)

    assert cluster.stopped
