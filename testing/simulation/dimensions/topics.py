"""A user who creates and deletes topics all the time."""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

from ottla.broker.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.broker.wire.messages.delete_topics_response import DeleteTopicsResponse
from ottla.quorum.metadata.image import MetadataImage
from ottla.runtime.errors import ErrorCode
from ottla.testing.simulation.client import Client, Unreachable
from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.workload import RETRY_S, BrokenPromise, create_topic

PAUSE_S = 0.4
NAMES = 3
DELETE_VERSION = 6
DELETED = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Topics(Dimension):
    name = "topics"
    one_in = 2
    _user: "TopicUser"

    async def prepare(self) -> None:
        self._user = TopicUser(self.run.client())

    def users(self) -> Iterable[Coroutine[Any, Any, None]]:
        return [self._user.run()]

    def progress(self) -> Mapping[str, int]:
        return {"topics created and deleted": self._user.rounds}

    async def check(self) -> None:
        self._user.check(self.run.invariants.metadata)


DIMENSION = Topics


class TopicUser:
    """Topics ``scratch-0`` to ``scratch-2``, again and again: each is created, and deleted once the next one was created."""

    def __init__(self, client: Client) -> None:
        self.rounds = 0
        self._client = client
        self._there: dict[str, None] = {}
        self._gone: dict[str, None] = {}

    async def run(self) -> None:
        """Until cancelled."""
        before, once = "", True
        while True:
            name = f"scratch-{self.rounds % NAMES}"
            self._gone.pop(name, None)
            tries = await create_topic(self._client, name, 2, 3)
            self._there[name] = None
            if self.rounds:
                await self._delete(before)
                if once:
                    self._gone[before] = None
            before, once = name, tries == 1
            self.rounds += 1
            await asyncio.sleep(PAUSE_S)

    async def _delete(self, name: str) -> None:
        del self._there[name]  # from the first try on nobody knows
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000)
        while True:
            try:
                answer = await self._client.ask_any(request, DeleteTopicsResponse, DELETE_VERSION)
                if answer.responses[0].error_code in DELETED:
                    return
            except Unreachable:
                pass
            await asyncio.sleep(RETRY_S)

    def check(self, image: MetadataImage) -> None:
        """Raises BrokenPromise: what was confirmed as created is there, what was confirmed as deleted is not.

        Unless its creation was tried twice: the other try may have waited in a paused node until after the deletion.
        """
        for name in self._there:
            if name not in image.topics_by_name:
                raise BrokenPromise(f"topic {name} was created and is not there")
        for name in self._gone:
            if name in image.topics_by_name:
                raise BrokenPromise(f"topic {name} was deleted and is there")
