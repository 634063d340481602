"""A broker that cannot come up ends its node: half up, it would be registered and serve nobody, and no line would say why."""

import pytest

from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.run import simulate
from tests.simulation.conftest import Rig


def test_a_mistake_of_ours_while_a_broker_comes_up_ends_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: ReplicaManager) -> None:
        raise AttributeError("a mistake of ours")

    monkeypatch.setattr(ReplicaManager, "start", start)

    async def program(loop: SimulationLoop) -> None:
        rig = Rig(loop, nodes=1)
        rig.cluster.start()
        await rig.until(lambda: loop.unhandled != [])
        assert "a mistake of ours" in str(loop.unhandled[0]["exception"])

    simulate(program, 1)
