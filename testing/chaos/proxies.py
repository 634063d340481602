"""The Toxiproxy server, driven through toxiproxy-python; the thin wrap is for what that package leaves out.

- An answer of 500 (a port that is taken) passes for a good one, and shows as a KeyError later: what is to be there is read back.
- Its calls have no timeout: whether the server answers is asked before them, with one.
- Where the server is belongs to a class of it, not to an object: one server a process, which `ProxyServer` holds to.
- It looks a proxy up by asking for all of them, and makes a connection for each question: what was made is remembered here, and what
  is told to many links at once is read back with one question. A fault of twenty links comes in a fraction of a second, not in half a minute.
- It waits for the server nowhere, and can end none.
"""

import contextlib
import socket
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from toxiproxy import Proxy, Toxiproxy
from toxiproxy.api import APIConsumer
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

from ottla.testing.ports import free_port_block
from ottla.testing.processes import wait_for

HOST = "127.0.0.1"
UP, DOWN = "upstream", "downstream"
"""From who connected to where it connected to, and back."""

ANSWER_S = 20.0
"""A machine where others measure may give it no time for as long."""

_CALLS_AT_ONCE = 16

Attributes = Mapping[str, int]


class ProxyError(Exception):
    """The server refused, or did something else than it was asked."""


class ProxyServer:
    """``with ProxyServer(binary) as server``: one a process."""

    _running: ClassVar["ProxyServer | None"] = None

    def __init__(self, binary: Path, seed: int = 0) -> None:
        """``seed`` of its toxics' random numbers."""
        if not binary.exists():
            raise ProxyError(f"{binary} is missing: `make test-tools` builds it")
        self._command = [str(binary), "-host", HOST, "-seed", str(seed or 1), "-port"]
        self._process: subprocess.Popen[bytes] | None = None
        self._api = Toxiproxy()
        self._port = 0
        self._proxies: dict[str, Proxy] = {}

    def __enter__(self) -> Self:
        if ProxyServer._running is not None:
            raise ProxyError("toxiproxy-python knows one server a process, and one runs")
        ProxyServer._running = self
        self._port = free_port_block(1)
        self._process = subprocess.Popen(
            [*self._command, str(self._port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._api.update_api_consumer(HOST, self._port)
        wait_for(self.answers, "Toxiproxy to answer")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ProxyServer._running = None
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)

    def answers(self) -> bool:
        """Whether it does, and in time."""
        with contextlib.suppress(OSError), socket.create_connection((HOST, self._port), ANSWER_S) as connection:
            connection.settimeout(ANSWER_S)
            connection.sendall(b"GET /version HTTP/1.0\r\n\r\n")
            return connection.recv(12).endswith(b"200")
        return False

    def proxy(self, name: str, listen: int, upstream: int) -> None:
        """From a port of this machine to another."""
        with self._asking(name):
            wanted = f"{HOST}:{listen}"
            made = self._api.create(upstream=f"{HOST}:{upstream}", name=name, listen=wanted, enabled=True)
            if made.listen != wanted or not made.enabled:
                raise ProxyError(f"proxy {name} listens on {made.listen}, not on {wanted}")
            self._proxies[name] = made

    def remove(self, name: str) -> None:
        with self._asking(name):
            self._proxies.pop(name).destroy()

    def cut(self, names: Collection[str]) -> None:
        """Their connections end, and new ones are refused."""
        self._enable(names, False)

    def heal(self, names: Collection[str]) -> None:
        """Lets connections pass again, without any toxics."""
        with self._asking("some"):
            given = [(name, each["name"]) for name, state in self._states(names).items() for each in state["toxics"]]
            _at_once([partial(self._proxies[name].destroy_toxic, toxic) for name, toxic in given])
        self._enable(names, True)

    def heal_all(self) -> None:
        """Every proxy, with one request."""
        with self._asking("all"):
            self._api.reset()
            if not all(state["enabled"] for state in self._states(self._proxies).values()):
                raise ProxyError("a proxy is cut though all were to be healed")

    def give(self, names: Collection[str], toxic: str, kind: str, stream: str, attributes: Attributes) -> None:
        """A toxic, in one direction; on the connections that are there, and on new ones."""
        with self._asking(toxic):
            told_to: dict[str, Any] = {"name": toxic, "type": kind, "stream": stream, "attributes": dict(attributes)}
            _at_once([partial(self._proxies[name].add_toxic, **told_to) for name in names])
            told = self._states(names)
            if without := [name for name in names if all(each["name"] != toxic for each in told[name]["toxics"])]:
                raise ProxyError(f"{', '.join(without)} has no {kind} though it was given one")

    def take(self, names: Collection[str], toxic: str) -> None:
        with self._asking(toxic):
            _at_once([partial(self._proxies[name].destroy_toxic, toxic) for name in names])

    def _enable(self, names: Collection[str], enabled: bool) -> None:
        with self._asking("some"):
            proxies = [self._proxies[name] for name in names]
            _at_once([each.enable if enabled else each.disable for each in proxies])
            if others := [name for name, state in self._states(names).items() if state["enabled"] != enabled]:
                raise ProxyError(f"{', '.join(others)} is {'cut' if enabled else 'open'} though it was told otherwise")

    def _states(self, names: Iterable[str]) -> dict[str, Any]:
        """As the server tells them, with their toxics, which the package's own objects leave out."""
        known = APIConsumer.get("/proxies").json()
        return {name: known[name] for name in names}

    @contextlib.contextmanager
    def _asking(self, name: str) -> Iterator[None]:
        if not self.answers():
            raise ProxyError("Toxiproxy does not answer")
        try:
            yield
        except (InvalidToxic, NotFound, ProxyExists, KeyError) as error:
            raise ProxyError(f"{name}: {error}") from error


def _at_once(calls: Sequence[Callable[[], object]]) -> None:
    """Many links change within one moment, also where each call waits its turn on a busy machine. Raises what one of them raised."""
    with ThreadPoolExecutor(_CALLS_AT_ONCE) as pool:
        for each in [pool.submit(call) for call in calls]:
            each.result()
