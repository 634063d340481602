"""Which handler answers which API and version."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.network.times import CONSUMER, FETCH, Phases, RequestTimes, Sampling, Timed
from ottla.broker.wire.apis import APIS, request_header_is_flexible, response_header_is_flexible

if TYPE_CHECKING:
    from ottla.broker.network.request import RequestContext

Handler = Callable[["RequestContext", memoryview, int], None]
"""Called with the request, its frame and the position of the body in it.

Runs inside the read callback and must not block. The frame is gone when the handler returns: copy what is kept.
"""


class Route(NamedTuple):
    """Versions ``min_version``..``max_version`` of an API, both included, and who answers them."""

    api_key: int
    min_version: int
    max_version: int
    handler: Handler


class Tally:
    """How often a target was asked for, and which request of it is timed: an addition and a comparison a request, some 50 ns."""

    __slots__ = ("_sampling", "count", "timed_at")

    def __init__(self) -> None:
        self.count = 0
        self.timed_at = 0
        """The next that is timed, if ever."""
        self._sampling: Sampling | None = None

    def sample(self, phases: Phases, seed: int) -> None:
        """From now on some are timed."""
        self._sampling = Sampling(phases, self.count, seed)
        self.timed_at = self._sampling.at

    def time(self, received_s: float, now_s: float) -> Timed:
        """Begins to time the request that it was the turn of."""
        assert self._sampling is not None
        timed = self._sampling.take(received_s, now_s)
        self.timed_at = self._sampling.at
        return timed


class Target(NamedTuple):
    """What the connection needs to know to hand over one request."""

    handler: Handler
    tagged_request: bool
    tagged_response: bool
    tally: Tally


class DuplicateRouteError(ValueError):
    """Two handlers claim the same API and version: a mistake of ours."""


def target_key(api_key: int, version: int) -> int:
    """One number for both, so that finding a handler is one look-up."""
    return api_key << 16 | version & 0xFFFF


class RouteTable:
    """All routes of a listener.

    ``unsupported(api_key)`` is the handler for versions nobody claimed of an API that must be answered all the same
    (ApiVersions); None means that the connection is closed.
    """

    def __init__(self, routes: Iterable[Route], fallbacks: dict[int, Handler] | None = None) -> None:
        """Raises DuplicateRouteError, and ValueError for versions that are not in the schema."""
        self.routes = sorted(routes, key=lambda route: route[:3])
        self.targets: dict[int, Target] = {}
        self._fallbacks = fallbacks or {}
        for route in self.routes:
            self._add(route)

    def unsupported(self, api_key: int) -> Handler | None:
        return self._fallbacks.get(api_key)

    def ranges(self) -> dict[int, tuple[int, int]]:
        """First and last version of each API that has a handler."""
        found: dict[int, tuple[int, int]] = {}
        for key, low, high, _ in self.routes:
            known = found.get(key, (low, high))
            found[key] = (min(low, known[0]), max(high, known[1]))
        return found

    def time(self, times: RequestTimes) -> None:
        """From now on requests are timed."""
        for key, target in self.targets.items():
            name = APIS[key >> 16].name
            target.tally.sample(times.named(CONSUMER if name == FETCH else name), key)

    def requests(self) -> dict[tuple[int, int], int]:
        """How many there were of each API key and version, of which there were any."""
        tallies = ((key, target.tally.count) for key, target in self.targets.items())
        return {(key >> 16, key & 0xFFFF): count for key, count in tallies if count}

    def _add(self, route: Route) -> None:
        for key, tagged_request, tagged_response in _headers(*route[:3]):
            if key in self.targets:
                raise DuplicateRouteError(f"{APIS[key >> 16].name} version {key & 0xFFFF} has two handlers")
            self.targets[key] = Target(route.handler, tagged_request, tagged_response, Tally())


@cache  # every listener of every start asks for all
def _headers(api_key: int, min_version: int, max_version: int) -> tuple[tuple[int, bool, bool], ...]:
    """The key of each version, and whether the headers of its request and its response end in tagged fields."""
    api = APIS.get(api_key)
    if api is None or not api.min <= min_version <= max_version <= api.max:
        raise ValueError(f"route {(api_key, min_version, max_version)} is not in the schema: {api}")
    return tuple(
        (
            target_key(api_key, version),
            request_header_is_flexible(api_key, version),
            response_header_is_flexible(api_key, version),
        )
        for version in range(min_version, max_version + 1)
    )
