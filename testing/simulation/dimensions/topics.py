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
    """Topics ``scratch-0`` to ``scratch-2``, again and again: each is created, and deleted once the next one was created.

    That one exists or does not is no promise: a controller that was cut off says so until it resigns, of what is no more or not yet.
    """

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
            created = await create_topic(self._client, name, 2, 3)
            if created.made:
                self._there[name] = None
            if self.rounds and await self._delete(before) and once:
                self._gone[before] = None
            before, once = name, created.tries == 1
            self.rounds += 1
            await asyncio.sleep(PAUSE_S)

    async def _delete(self, name: str) -> bool:
        """Whether an answer said that it is deleted now."""
        self._there.pop(name, None)  # from the first try on nobody knows
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000)
        while True:
            try:
                answer = await self._client.ask_any(request, DeleteTopicsResponse, DELETE_VERSION)
                told = answer.responses[0].error_code
                if told in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    return told == ErrorCode.NONE
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
