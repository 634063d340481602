"""Whether anybody is at a broker's door: a new controller has no connections of its own whose end would tell."""

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from ottla.runtime.settings.endpoints import Endpoint, reached_by

ANSWER_TIMEOUT_S = 2.0


class Knock(Protocol):
    def __call__(self, host: str, port: int, on_refused: Callable[[], None]) -> None:
        """Tries to connect; calls back only if that is refused. Silence, or an unknown name, says nothing of the broker."""
        ...


class Knocker:
    """`Knock` by opening a connection on the running loop and dropping it."""

    def __init__(self, detours: Mapping[Endpoint, Endpoint] = MappingProxyType({})) -> None:
        self._detours = detours
        self._running: dict[asyncio.Task[None], None] = {}

    def __call__(self, host: str, port: int, on_refused: Callable[[], None]) -> None:
        task = asyncio.get_running_loop().create_task(self._knock(host, port, on_refused))
        self._running[task] = None
        task.add_done_callback(lambda done: self._running.pop(done))

    async def _knock(self, host: str, port: int, on_refused: Callable[[], None]) -> None:
        host, port = reached_by(self._detours, host, port)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, host, port)
        except ConnectionRefusedError:
            on_refused()
        except (OSError, TimeoutError):
            return
        else:
            transport.abort()

    async def wait(self) -> None:
        """Waits until every door was answered at, or too long not."""
        if self._running:
            await asyncio.wait(list(self._running))

    async def close(self) -> None:
        for task in self._running:
            task.cancel()
        await self.wait()
