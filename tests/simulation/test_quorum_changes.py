"""Voters come and go in the simulated cluster, under a producer and power cuts."""

import asyncio

import msgspec
import pytest

from ottla.broker.wire.messages.add_raft_voter_request import AddRaftVoterRequest, Listener
from ottla.broker.wire.messages.add_raft_voter_response import AddRaftVoterResponse
from ottla.broker.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from ottla.broker.wire.messages.remove_raft_voter_response import RemoveRaftVoterResponse
from ottla.broker.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.broker.wire.messages.update_features_response import UpdateFeaturesResponse
from ottla.quorum.listener import ReplicaDescription
from ottla.quorum.node import QuorumNode
from ottla.runtime.errors import ErrorCode
from ottla.testing.simulation.client import Unreachable
from ottla.testing.simulation.cluster import CONTROLLER_PORT
from tests.simulation.conftest import Rig, play


class Administrator:
    """Asks any broker, again until it is done."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._client = rig.client()

    def leader(self) -> int | None:
        found = [number for number in self._rig.cluster.nodes if self._runs(number) and self._node(number).is_leader]
        return max(found, key=lambda number: self._node(number).leader.epoch, default=None)

    def voters(self) -> list[int]:
        """As the leader has them."""
        leader = self.leader()
        return [] if leader is None else [each.id for each in self._node(leader).describe().voters]

    async def add(self, number: int) -> None:
        listener = Listener("CONTROLLER", self._rig.cluster.nodes[number].name, CONTROLLER_PORT)
        request = AddRaftVoterRequest(None, 1500, number, self._directory_id(number), [listener])
        await self._until(request, AddRaftVoterResponse, ErrorCode.DUPLICATE_VOTER)

    async def remove(self, number: int) -> None:
        request = RemoveRaftVoterRequest(None, number, self._directory_id(number))
        await self._until(request, RemoveRaftVoterResponse, ErrorCode.VOTER_NOT_FOUND)

    async def raise_kraft_version(self) -> None:
        update = FeatureUpdateKey("kraft.version", 1, upgrade_type=1)
        await self._until(UpdateFeaturesRequest(1500, [update]), UpdateFeaturesResponse, ErrorCode.NONE)

    def kraft_versions(self) -> set[int]:
        """As all nodes have it that run."""
        return {self._node(number).kraft_version for number in self._rig.cluster.nodes if self._runs(number)}

    def described(self) -> list[ReplicaDescription]:
        leader = self.leader()
        return [] if leader is None else self._node(leader).describe().voters

    async def _until(
        self,
        request: msgspec.Struct,
        response: type[AddRaftVoterResponse] | type[RemoveRaftVoterResponse] | type[UpdateFeaturesResponse],
        done: ErrorCode,
    ) -> None:
        """An answer may be lost, and then ``done`` says that it was done."""
        for _ in range(100):
            try:
                answer = await self._client.ask_any(request, response)
            except Unreachable:
                continue
            if answer.error_code in (ErrorCode.NONE, done):
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"never done: {request}")

    def _directory_id(self, number: int) -> bytes:
        found = self._node(number).settings.directory_id
        assert found is not None
        return found

    def _runs(self, number: int) -> bool:
        server = self._rig.cluster.running(number)
        return server is not None and server.quorum is not None

    def _node(self, number: int) -> QuorumNode:
        found = self._rig.server(number).quorum
        assert found is not None
        return found


@pytest.mark.parametrize("seed", range(12))
def test_voters_change_and_the_power_goes(seed: int) -> None:
    async def scenario(rig: Rig) -> None:
        administrator = Administrator(rig)
        await rig.topic("t", 1, 3)
        producer = rig.produce("t", 0)
        await administrator.add(4)
        await rig.until(lambda: administrator.voters() == [1, 2, 3, 4])
        removed = administrator.leader()
        assert removed is not None
        await administrator.remove(removed)
        left = [number for number in (1, 2, 3, 4) if number != removed]
        await rig.until(lambda: administrator.leader() in left)
        assert administrator.voters() == left

        lost = administrator.leader()
        assert lost is not None
        rig.cluster.nodes[lost].crash()
        await rig.until(lambda: administrator.leader() in left and administrator.leader() != lost)
        await rig.restart(lost)
        await rig.goes_on(producer)
        for (
            node
        ) in rig.cluster.nodes.values():  # killed; of all machines at once, power cuts lose what was acknowledged
            node.restart()
        await rig.until(lambda: all(rig.cluster.lives[number] > 1 for number in rig.cluster.nodes) and rig.ready())
        await rig.until(lambda: administrator.voters() == left)  # of the log, not of the settings
        await rig.goes_on(producer)

    play(scenario, seed, nodes=4, joining=1)


@pytest.mark.parametrize("seed", range(8))
def test_kraft_version_is_raised_while_the_power_goes(seed: int) -> None:
    """All of it or nothing, whoever leads in the end; and asked for again, it is done."""

    async def scenario(rig: Rig) -> None:
        administrator = Administrator(rig)
        await rig.topic("t", 1, 3)
        producer = rig.produce("t", 0)
        await rig.until(lambda: len(rig.image().controllers) == 3)
        assert {each.directory_id for each in administrator.described()} != {None}, "the fetches told them"
        raising = asyncio.ensure_future(administrator.raise_kraft_version())
        await asyncio.sleep(0.002 * seed)
        lost = administrator.leader()
        if lost is not None:
            rig.cluster.nodes[lost].crash()
            await rig.until(lambda: administrator.leader() not in (lost, None))
            await rig.restart(lost)
        await raising
        await rig.until(lambda: administrator.kraft_versions() == {1})
        assert administrator.voters() == [1, 2, 3]
        assert None not in {each.directory_id for each in administrator.described()}
        await rig.goes_on(producer)

    play(scenario, seed, nodes=3)
