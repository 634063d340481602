"""A producer to a partition that may lose what was acknowledged: it begins anew where its sequences are gone with the records.

As clients do (KIP-360), with another producer id here: the batch that it could not get through may then stand twice.
"""

from ottla.runtime.errors import ErrorCode
from ottla.testing.simulation.workload import SimulatedProducer

PATIENCE = 12
"""Refusals: a leader that is fenced and does not know says the same, until its clients hear of another."""


class WageringProducer(SimulatedProducer):
    """``begun``: how often it took another id."""

    begun = _refusals = 0

    async def _recover(self, number: int) -> None:
        self._refusals = self._refusals + 1 if self._told == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER else 0
        if self._refusals >= PATIENCE:
            self.history.given_up += range(number, self.history.sent)
            self._refusals, self._producer_id = 0, -1
            await self._take_producer_id()
            self._first = number
            self.begun += 1
