"""The files by which others know a node's process: whose number it has, and whether it takes requests."""

import asyncio
import errno
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.broker import process, server
from ottla.cli.formatting import format_directories, new_cluster_id
from ottla.cli.local_node import LocalNode
from ottla.log.directories import roots
from ottla.log.directories.checkpoints import CleanShutdown
from ottla.log.directories.roots import LogDirectoryError
from ottla.runtime.garbage import Garbage
from ottla.runtime.real_disk import RealDisk
from ottla.runtime.settings.server import ServerConfig


class Enough(Exception):
    """The start went as far as the test looks."""


@pytest.fixture
def node(tmp_path: Path) -> LocalNode:
    """Was killed while it took requests."""
    found = LocalNode(tmp_path, 1, 19092)
    texts = found.texts({"controller.quorum.voters": "1@localhost:20092"}, 1)
    found.write_properties({name: text for name, text in texts.items() if name != "ottla.metrics.listener"})
    format_directories(found.properties, new_cluster_id(), ignore_formatted=False)
    found.ready_file.write_text("ready\n")
    found.pid_file.write_text("1\n")
    return found


def serve(node: LocalNode) -> None:
    asyncio.run(process._serve(ServerConfig.load(node.properties, {}), Garbage()))


def test_a_node_is_not_ready_while_it_starts_though_the_process_before_was_killed(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bool, str]] = []

    def look(*_: object) -> None:
        seen.append((node.ready_file.exists(), node.pid_file.read_text()))
        raise Enough

    monkeypatch.setattr(server, "open_metadata_log", look)  # it is about to read its logs, which may take minutes
    with pytest.raises(Enough):
        serve(node)
    assert seen == [(False, f"{os.getpid()}\n")]
    assert not node.pid_file.exists()


def test_a_second_process_leaves_the_first_ones_files_alone(node: LocalNode) -> None:
    directory = node.home / "data" / "__cluster_metadata-0"
    directory.mkdir(exist_ok=True)
    lock = RealDisk().lock(str(directory / ".lock"))
    with pytest.raises(LogDirectoryError, match="in use by another process"):
        serve(node)
    lock.release()
    assert node.ready_file.exists()
    assert node.pid_file.read_text() == "1\n"


def test_a_stop_is_heard_while_logs_are_recovered(node: LocalNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """That keeps the loop for minutes. What was begun is not taken for cleanly closed by the next start."""
    data = str(node.home / "data")
    CleanShutdown.write(RealDisk(), data, 7)
    before = signal.getsignal(signal.SIGTERM)

    def recover(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the recovery went on")

    monkeypatch.setattr(roots, "find", recover)
    serve(node)
    assert not CleanShutdown.is_marked(RealDisk(), data)
    assert not node.pid_file.exists()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_stop_that_fails_leaves_no_file_that_says_the_node_is_ready(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        """Takes requests, is stopped, and then its disk has no room for what it would write last."""

        def __init__(self, *_: object, on_locked: Callable[[], None], **__: object) -> None:
            self.ready = asyncio.Event()
            self.ready.set()
            self._on_locked = on_locked

        async def start(self) -> None:
            self._on_locked()
            asyncio.get_running_loop().call_later(0, self._end)

        def _end(self) -> None:
            if node.ready_file.exists():
                os.kill(os.getpid(), signal.SIGTERM)
            else:
                asyncio.get_running_loop().call_soon(self._end)

        async def stop(self) -> None:
            raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(process, "Server", Full)
    with pytest.raises(OSError, match="no room"):
        serve(node)
    assert not node.ready_file.exists()
    assert not node.pid_file.exists()


def test_a_node_that_stops_is_not_ready_any_more(node: LocalNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has to be written down may take minutes, in which nobody is served."""
    seen: list[tuple[bool, bool]] = []

    class Slow:
        def __init__(self, *_: object, on_locked: Callable[[], None], **__: object) -> None:
            self.ready = asyncio.Event()
            self.ready.set()
            self._on_locked = on_locked

        async def start(self) -> None:
            self._on_locked()
            node.ready_file.write_text("ready\n")
            os.kill(os.getpid(), signal.SIGTERM)

        async def stop(self) -> None:
            seen.append((node.ready_file.exists(), node.pid_file.exists()))

    monkeypatch.setattr(process, "Server", Slow)
    serve(node)
    assert seen == [(False, True)]


class Hangup:
    """A server whose terminal is closed while it starts; later somebody stops it."""

    def __init__(self, *_: object, **__: object) -> None:
        self.ready = asyncio.Event()

    async def start(self) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)

    async def stop(self) -> None: ...


@pytest.fixture
def hangups() -> Iterator[list[int]]:
    """Those that no node took: their default would end the tests."""
    seen: list[int] = []
    before = signal.signal(signal.SIGHUP, lambda number, _: seen.append(number))
    yield seen
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(("nohup", "reason"), [(False, "SIGHUP"), (True, "SIGTERM")])
def test_a_node_whose_terminal_is_closed_stops_in_order_unless_it_was_started_with_nohup(
    node: LocalNode,
    hangups: list[int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    nohup: bool,
    reason: str,
) -> None:
    if nohup:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    monkeypatch.setattr(process, "Server", Hangup)
    with caplog.at_level("INFO"):
        serve(node)
    assert [record.message for record in caplog.records] == [f"node 1 stops: {reason}"]
    assert hangups == []
