"""A controller that was cut off says what it knew until it resigns: users must not take that for a promise."""

import asyncio
from random import Random

import msgspec

from ottla.broker.wire.messages.create_topics_request import CreateTopicsRequest
from ottla.broker.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.broker.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.broker.wire.messages.delete_topics_response import DeleteTopicsResponse
from ottla.quorum.metadata.image import MetadataImage
from ottla.runtime.errors import ErrorCode
from ottla.testing.simulation.client import Client, Response
from ottla.testing.simulation.dimensions.topics import TopicUser
from ottla.testing.simulation.incarnations import IncarnationUser
from tests.simulation.conftest import Rig, play

GO_ON_S = 5.0


class Split:
    """The controller is cut off from the others, which have elected another; clients reach both."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.old = active(rig)[0]
        self.new = self.old

    async def begin(self) -> None:
        nodes = self._rig.cluster.nodes
        others = [node for number, node in nodes.items() if number != self.old]
        self._rig.loop.network.cut_between([nodes[self.old]], others)
        await self._rig.until(lambda: active(self._rig) not in ([], [self.old]))
        assert self.old in active(self._rig), "it knows already"
        self.new = next(number for number in active(self._rig) if number != self.old)

    def metadata(self) -> MetadataImage:
        return self._rig.image(self.new)


class Divided(Client):
    """Asks the new controller's node, and ``asks_old`` the old one's, until the test does not want that any more."""

    def __init__(self, rig: Rig, split: Split, asks_old: type[msgspec.Struct]) -> None:
        super().__init__(rig.cluster.brokers)
        rig.clients.append(self)
        self._split, self._brokers = split, rig.cluster.brokers
        self.asks_old: type[msgspec.Struct] | None = asks_old
        self.codes: list[int] = []
        """What the old one answered."""

    async def ask_any(self, request: msgspec.Struct, response: type[Response], version: int | None = None) -> Response:
        if type(request) is not self.asks_old:
            return await self.call(self._brokers[self._split.new - 1], request, response, version)
        answer = await self.call(self._brokers[self._split.old - 1], request, response, version)
        if isinstance(answer, CreateTopicsResponse):
            self.codes.append(answer.topics[0].error_code)
        elif isinstance(answer, DeleteTopicsResponse):
            self.codes.append(answer.responses[0].error_code)
        return answer


def active(rig: Rig) -> list[int]:
    controllers = {number: rig.server(number).controller for number in rig.cluster.nodes}
    return [number for number, controller in controllers.items() if controller is not None and controller.is_active]


async def delete(client: Client, name: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1_000)
    answer = await client.ask_any(request, DeleteTopicsResponse, 6)
    assert answer.responses[0].error_code == ErrorCode.NONE


def test_a_user_makes_a_topic_anew_though_an_old_controller_says_that_it_exists() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic("again-0", 1, 3)
        split = Split(rig)
        await split.begin()
        client = Divided(rig, split, CreateTopicsRequest)
        await delete(client, "again-0")
        user = IncarnationUser(client, split.metadata, Random(1), rig.cluster.brokers, "again")
        rig.users.append(asyncio.ensure_future(user.run()))
        await rig.until(lambda: ErrorCode.TOPIC_ALREADY_EXISTS in client.codes)
        client.asks_old = None
        rig.loop.network.mend_all()
        await rig.until(lambda: user.rounds > 0, GO_ON_S)

    play(scenario)


def test_what_an_old_controller_says_to_exist_was_not_promised() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic("scratch-0", 1, 3)
        split = Split(rig)
        await split.begin()
        client = Divided(rig, split, CreateTopicsRequest)
        await delete(client, "scratch-0")
        user = TopicUser(client)
        rig.users.append(asyncio.ensure_future(user.run()))
        await rig.until(lambda: user.rounds > 0)
        assert client.codes == [ErrorCode.TOPIC_ALREADY_EXISTS]
        user.check(split.metadata())

    play(scenario)


def test_what_an_old_controller_does_not_know_was_not_deleted() -> None:
    async def scenario(rig: Rig) -> None:
        split = Split(rig)
        await split.begin()
        client = Divided(rig, split, DeleteTopicsRequest)
        user = TopicUser(client)
        rig.users.append(asyncio.ensure_future(user.run()))
        await rig.until(lambda: user.rounds > 1)
        assert client.codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert "scratch-0" in split.metadata().topics_by_name
        user.check(split.metadata())

    play(scenario)
