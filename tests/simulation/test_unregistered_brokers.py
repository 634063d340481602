"""A broker that is unregistered while it lives registers again, with another epoch, and has its place again."""

import asyncio

from ottla.broker.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from ottla.broker.wire.messages.unregister_broker_response import UnregisterBrokerResponse
from tests.simulation.conftest import Rig, play


def test_a_broker_that_registers_anew_comes_back_into_the_isr_of_idle_partitions() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic("idle", 4, 3)
        await rig.goes_on(*[rig.produce("idle", index) for index in range(4)])
        for user in rig.users:
            user.cancel()
        await asyncio.sleep(2)
        answer = await rig.client().ask_any(UnregisterBrokerRequest(broker_id=2), UnregisterBrokerResponse)
        assert answer.error_code == 0
        await rig.until(lambda: all(2 not in rig.view("idle", index).isr for index in range(4)))
        await rig.until(lambda: all(len(rig.view("idle", index).isr) == 3 for index in range(4)))

    play(scenario)
