"""Nodes of an older version among newer ones, as in a rolling upgrade or one that is taken back: what a node speaks of what brokers ask each
other is drawn with each start of its program. Clients are as new as ever, and ask for what every node answers.
"""

from collections.abc import Mapping
from random import Random

from ottla.broker import broker
from ottla.broker.context import BrokerContext
from ottla.broker.handlers.routes import client_routes
from ottla.broker.links import broker_link
from ottla.broker.links.versions import Versions, read_versions
from ottla.broker.network.routing import RouteTable, target_key
from ottla.broker.wire.apis import API_VERSIONS, APIS, BY_NAME
from ottla.runtime.simulation.process import Process
from ottla.testing.simulation.dimension import Dimension

OF_BROKERS = {API_VERSIONS: 2, BY_NAME["AddPartitionsToTxn"].key: 4, BY_NAME["WriteTxnMarkers"].key: 1}
"""The greatest version that the oldest node speaks, of what here only brokers ask: it answers no newer one."""
LEAST = {
    **OF_BROKERS,
    BY_NAME["Fetch"].key: 15,  # the first with the broker epoch, as metadata.version asks for it (KIP-903)
    BY_NAME["ListOffsets"].key: 4,
}
"""As that, also of what clients ask in newer ones."""


class Older(Dimension):
    name = "older"
    one_in = 6

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._spoken: dict[Process, Mapping[int, int]] = {}
        self._older = 0
        self.limits = ((broker, "client_routes", self._routes), (broker_link, "read_versions", self._read_versions))

    def _greatest(self) -> Mapping[int, int]:
        """What the program that runs now speaks of each API, at most."""
        process = self.run.loop.current_process
        known = self._spoken.get(process)
        if known is None:
            is_older = self.rng.randrange(2)
            greatest = {key: self.rng.randint(least, APIS[key].max_stable) for key, least in LEAST.items()}
            known = self._spoken[process] = greatest if is_older else {}
            self._older += is_older
        return known

    def _routes(self, context: BrokerContext) -> RouteTable:
        table, greatest = client_routes(context), self._greatest()
        ranges = _within(table.ranges(), greatest)
        table.ranges = lambda: ranges  # type: ignore[method-assign]  # what ApiVersions tells
        for key in OF_BROKERS:
            for version in range(ranges[key][1] + 1, APIS[key].max_stable + 1):
                del table.targets[target_key(key, version)]
        return table

    def _read_versions(self, frame: memoryview, position: int, version: int) -> Versions | int:
        found = read_versions(frame, position, version)
        return found if isinstance(found, int) else _within(found, self._greatest())

    def counts(self) -> Mapping[str, int]:
        return {"starts of older nodes": self._older}


def _within(ranges: Versions, greatest: Mapping[int, int]) -> Versions:
    return {key: (low, min(high, greatest.get(key, high))) for key, (low, high) in ranges.items()}


DIMENSION = Older
