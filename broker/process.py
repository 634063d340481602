"""One node as a process: identity files, signals, and the end with a line that says why."""

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import lmdb

from ottla.broker.server import Server
from ottla.quorum.election_store import QuorumStateError
from ottla.quorum.initial_voters import InitialVotersError
from ottla.quorum.listener import QuorumFailure
from ottla.quorum.log_start import LogStartError
from ottla.quorum.metadata.store import StoreFormatError
from ottla.quorum.rpc.grpc_transport import GrpcTransport
from ottla.runtime.garbage import Garbage
from ottla.runtime.host import Host
from ottla.runtime.launch import run
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.stop_signals import StopAsked, heard_at_once, stop_signals

logger = logging.getLogger(__name__)

FAILURES = (QuorumFailure, QuorumStateError, InitialVotersError, LogStartError, StoreFormatError, lmdb.Error)
"""What ends a node besides the errors that any command may meet: its message says why."""


def run_node(config: ServerConfig) -> None:
    """Runs a node until SIGTERM, SIGINT or SIGHUP, then stops it gracefully. Raises what kept it from starting."""
    garbage = Garbage()
    run(lambda: _serve(config, garbage), garbage)


async def _serve(config: ServerConfig, garbage: Garbage) -> None:
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    for number in stop_signals():
        loop.add_signal_handler(number, _end, ended, number.name)
    pid_file, ready_file = (config.string(name) for name in ("ottla.pid.file", "ottla.ready.file"))
    host = Host.real()
    mine: list[str] = []

    def take_over() -> None:
        """Only now are these files sure to be of no other process that runs on the same directories."""
        mine.extend((pid_file, ready_file))
        _remove(ready_file)  # one that was killed left it, and this one takes no requests yet
        _write(pid_file, f"{os.getpid()}\n")

    transport = GrpcTransport(detours=config.detours)
    server = Server(
        config,
        host,
        transport,
        lambda error: _fail(ended, error),
        on_locked=take_over,
        recovering=lambda: _unless_ended(ended),
    )
    host.loop_watch.at_page_turns.append(garbage.look)
    host.loop_watch.is_quiet = True
    host.loop_watch.start()
    try:
        await server.start()
        await asyncio.wait([ended, asyncio.ensure_future(server.ready.wait())], return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            host.loop_watch.is_quiet = False
            _write(ready_file, "ready\n")
        reason = await ended
        logger.info("node %d stops: %s", config.node_id, reason)
    except StopAsked as asked:
        logger.info("node %d stops before it is up: %s; its next start recovers its logs", config.node_id, asked)
    finally:
        try:
            with suppress(OSError):  # tried again below
                _remove(ready_file if mine else "")  # the end of a stop may take minutes, and nobody is served in them
            await server.stop()
        finally:
            host.loop_watch.stop()
            for path in mine:
                _remove(path)


@contextmanager
def _unless_ended(ended: "asyncio.Future[str]") -> Iterator[None]:
    """Recovery, which a stop ends where it is. What was not closed has no mark of a clean stop, and is recovered again."""
    if ended.done():
        raise StopAsked(ended.result())
    with heard_at_once():
        yield


def _end(ended: "asyncio.Future[str]", reason: str) -> None:
    if not ended.done():
        ended.set_result(reason)


def _fail(ended: "asyncio.Future[str]", error: Exception) -> None:
    if not ended.done():
        ended.set_exception(error)


def _write(path: str, text: str) -> None:
    if path:
        temporary = Path(path + ".tmp")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)


def _remove(path: str) -> None:
    if path:
        Path(path).unlink(missing_ok=True)
