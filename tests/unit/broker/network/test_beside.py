"""Requests that are read on a thread: the order of a connection's requests and answers, and who goes meanwhile."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from ottla.broker.handlers.common import route
from ottla.broker.network.beside import LARGE_BYTES, Beside
from ottla.broker.network.budget import MemoryBudget
from ottla.broker.network.limits import ConnectionLimits
from ottla.broker.network.receive import ReceivePool
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import RouteTable
from ottla.broker.wire.apis import BY_NAME, FETCH
from ottla.broker.wire.codec import encoder
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.messages.delete_topics_request import DeleteTopicsRequest
from ottla.broker.wire.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from ottla.runtime.errors import ErrorCode
from ottla.testing.garbage import left_by
from tests.unit.broker.network.conftest import ANY_SIZE, ECHO, PRODUCE, MakePeer, Peer, Turns, frame, one_warning

LIST = BY_NAME["DeleteTopics"].key
LARGE = DeleteTopicsRequest(topic_names=[f"topic-{number}" for number in range(LARGE_BYTES // 8)])
SMALL = DeleteTopicsRequest(topic_names=["topic"])


def body(message: DeleteTopicsRequest) -> bytes:
    return b"".join(encoder(DeleteTopicsRequest, 3)(message))


def ask(message: DeleteTopicsRequest, correlation_id: int) -> bytes:
    return frame(LIST, body(message), correlation_id=correlation_id, version=3)


class Asked:
    """A peer whose requests are answered by a handler that has the body decoded."""

    def __init__(self, peer: Peer, refuse: Callable[[], DeleteTopicsResponse] | None = None) -> None:
        self.peer = peer
        self.bodies: list[int] = []
        self._refuse = refuse
        table = RouteTable([*peer.routes.routes, route("DeleteTopics", DeleteTopicsRequest, self._answer)])
        peer.routes.targets.update({key: each for key, each in table.targets.items() if key >> 16 == LIST})

    def _answer(self, request: RequestContext, asked: DeleteTopicsRequest) -> None:
        self.bodies.append(len(asked.topic_names))
        if self._refuse is not None:
            request.respond_message(self._refuse())
            return
        request.respond_message(DeleteTopicsResponse(responses=[DeletableTopicResult(name="topic", error_code=3)]))

    @property
    def answered(self) -> list[int]:
        return [correlation_id for correlation_id, _ in self.peer.answers]


@pytest.fixture
def asked(peer: Peer) -> Asked:
    return Asked(peer)


def test_a_small_request_is_read_where_it_comes(asked: Asked) -> None:
    asked.peer.receive(ask(SMALL, 1))
    assert (asked.answered, asked.peer.beside.waiting) == ([1], [])


def test_a_large_one_is_read_and_its_answer_written_beside_the_loop(asked: Asked) -> None:
    asked.peer.receive(ask(LARGE, 1))
    assert (asked.bodies, asked.answered) == ([], [])
    asked.peer.beside.finish_one()
    assert (asked.bodies, asked.answered) == ([len(LARGE.topic_names)], [])
    asked.peer.beside.finish_one()
    assert asked.answered == [1]


def test_the_errors_of_a_large_answer_are_added_up_beside_the_loop(peer: Peer) -> None:
    unknown = DeleteTopicsResponse(responses=[DeletableTopicResult(name="topic", error_code=3)] * 500)
    Asked(peer, lambda: unknown)
    written = 0

    class Counted(dict[tuple[int, int], int]):
        def __setitem__(self, key: tuple[int, int], value: int) -> None:
            nonlocal written
            written += 1
            super().__setitem__(key, value)

    peer.connection.counters.errors = counted = Counted()
    peer.receive(ask(LARGE, 1))
    peer.beside.finish_one()
    peer.beside.finish_one()
    assert (counted, written) == ({(LIST, 3): 500}, 1)


def test_none_behind_a_large_request_is_taken_before_it(asked: Asked) -> None:
    asked.peer.receive(ask(LARGE, 1) + ask(SMALL, 2) + ask(LARGE, 3) + ask(SMALL, 4))
    assert asked.bodies == []
    asked.peer.beside.finish_one()
    asked.peer.turns.end_all()
    assert asked.bodies == [len(LARGE.topic_names), 1]  # while the first one's answer is written, and the third is read
    assert asked.answered == []
    asked.peer.beside.finish_one()
    assert asked.answered == [1, 2]
    asked.peer.beside.finish_one()
    asked.peer.beside.finish_one()
    assert asked.answered == [1, 2, 3, 4]


def test_the_frame_may_be_overwritten_while_it_is_read(asked: Asked) -> None:
    asked.peer.receive(ask(LARGE, 1))
    asked.peer.connection.get_buffer(-1)[:] = bytes(len(asked.peer.connection.get_buffer(-1)))
    asked.peer.beside.finish_one()
    assert asked.bodies == [len(LARGE.topic_names)]


def test_others_are_served_meanwhile(make_peer: MakePeer, asked: Asked) -> None:
    other = make_peer(turns=asked.peer.turns)
    asked.peer.receive(ask(LARGE, 1))
    other.receive(frame(ECHO, b"quick"))
    assert [each for _, each in other.answers] == [b"quick"]


def test_bytes_that_are_no_such_request_end_the_connection(asked: Asked, caplog: pytest.LogCaptureFixture) -> None:
    asked.peer.receive(frame(LIST, b"\x00\xff\xff\xff" + body(LARGE), correlation_id=1, version=3))
    asked.peer.beside.finish_one()
    assert "malformed request" in one_warning(caplog)
    assert asked.peer.transport.closing


def test_an_answer_that_cannot_be_written_ends_the_connection(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    nameless = DeleteTopicsResponse(responses=[DeletableTopicResult(name=None)])  # version 3 has no null
    asked = Asked(peer, lambda: nameless)
    peer.receive(ask(LARGE, 1))
    peer.beside.finish_one()
    peer.beside.finish_one()
    assert "could not be written" in one_warning(caplog)
    assert (asked.answered, peer.transport.closing) == ([], True)


def test_a_handler_that_fails_on_a_large_request_ends_the_connection(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    def mistake() -> DeleteTopicsResponse:
        raise ValueError("a mistake of ours")

    Asked(peer, mistake)
    peer.receive(ask(LARGE, 1))
    peer.beside.finish_one()
    assert peer.transport.closing
    assert "which is our mistake" in caplog.text


@pytest.mark.parametrize("steps", [0, 1])
def test_a_client_that_goes_meanwhile_harms_nobody(asked: Asked, steps: int) -> None:
    asked.peer.receive(ask(LARGE, 1) + ask(SMALL, 2))
    for _ in range(steps):
        asked.peer.beside.finish_one()
    asked.peer.connection.connection_lost(None)
    while asked.peer.beside.waiting:
        asked.peer.beside.finish_one()
    asked.peer.turns.end_all()
    assert asked.bodies == [len(LARGE.topic_names)][:steps]
    assert not asked.peer.transport.written
    assert asked.peer.pool.budget.used == 0


def test_an_answer_to_who_is_gone_is_not_written(peer: Peer) -> None:
    """A node that stops has closed all connections before its threads: none is begun for an answer that comes later."""
    later: list[RequestContext] = []
    peer.routes.targets.update(
        RouteTable([route("DeleteTopics", DeleteTopicsRequest, lambda request, _: later.append(request))]).targets
    )
    peer.receive(ask(LARGE, 1))
    peer.beside.finish_one()
    peer.connection.close()
    later[0].respond_message(DeleteTopicsResponse())
    assert not peer.beside.waiting


def test_a_node_that_stops_while_a_large_request_is_read_takes_it_up_no_more(asked: Asked) -> None:
    asked.peer.receive(ask(LARGE, 1) + ask(SMALL, 2))
    asked.peer.connection.close()
    asked.peer.beside.finish_one()
    asked.peer.turns.end_all()
    asked.peer.connection.connection_lost(None)
    assert asked.bodies == []
    assert not asked.peer.beside.waiting
    assert asked.peer.pool.budget.used == 0


def test_a_thread_that_outlives_its_loop_tells_nobody(caplog: pytest.LogCaptureFixture) -> None:
    over, told = threading.Event(), list[bool]()
    work: list[Callable[[], bool]] = [over.wait]

    async def scenario() -> None:
        beside = Beside()
        beside.run(LIST, work.pop(), lambda result: told.append(result()))
        beside.close()

    asyncio.run(scenario())
    (thread,) = [each for each in threading.enumerate() if each.name.startswith("ottla-request")]
    over.set()
    thread.join()
    assert told == []
    assert not caplog.records


def test_what_is_read_beside_counts_against_the_nodes_memory_from_the_start() -> None:
    """Others wait for room meanwhile, and what comes behind it on its own connection does, too; all of it is handled in the end."""
    turns, pool = Turns(), ReceivePool(MemoryBudget(LARGE_BYTES))
    first, other = (Asked(Peer(ANY_SIZE, pool, turns)) for _ in range(2))
    first.peer.receive(ask(LARGE, 1) + ask(LARGE, 2))
    assert pool.budget.is_full
    other.peer.receive(ask(LARGE, 1), chunk=10_000)
    assert not other.peer.transport.reading
    assert other.bodies == []
    for _ in range(4):
        first.peer.beside.finish_one()
        turns.end_all()
    assert first.answered == [1, 2]
    assert not pool.budget.is_full
    pool.budget.let_in()
    turns.end_all()
    other.peer.receive(other.peer.unread)
    for _ in range(2):
        other.peer.beside.finish_one()
    assert other.answered == [1]
    assert pool.budget.used == 0


def test_a_muted_client_is_not_taken_up_by_the_end_of_a_reading(asked: Asked) -> None:
    async def scenario() -> None:
        asked.peer.receive(ask(LARGE, 1) + ask(SMALL, 2))
        asked.peer.connection.mute(60_000)
        asked.peer.beside.finish_one()
        asked.peer.beside.finish_one()
        assert asked.answered == [1]
        assert asked.bodies == [len(LARGE.topic_names)]
        asked.peer.connection.connection_lost(None)

    asyncio.run(scenario())


def test_a_client_at_a_bound_is_not_taken_up_by_the_end_of_a_reading(make_peer: MakePeer) -> None:
    peer = make_peer(limits=ConnectionLimits(in_flight_max=2))
    asked = Asked(peer)
    peer.receive(frame(PRODUCE) + ask(LARGE, 1) + ask(SMALL, 2))
    peer.beside.finish_one()
    peer.turns.end_all()
    assert asked.bodies == [len(LARGE.topic_names)]
    peer.beside.finish_one()
    peer.parked[0].respond([b""])
    assert asked.answered == [0, 1, 2]


def test_what_a_reading_raises_is_told_on_the_loop() -> None:
    async def scenario() -> None:
        beside, told, threads = Beside(), asyncio.Event(), list[str]()

        def read() -> int:
            threads.append(threading.current_thread().name)
            raise WireError("cut off", ErrorCode.INVALID_REQUEST)

        def then(result: Callable[[], int]) -> None:
            with pytest.raises(WireError):
                result()
            threads.append(threading.current_thread().name)
            told.set()

        beside.run(LIST, read, then)
        await told.wait()
        assert threads[0].startswith("ottla-request")
        assert threads[1] == threading.current_thread().name
        beside.close()

    asyncio.run(scenario())


def test_a_fetch_does_not_wait_for_other_requests() -> None:
    async def scenario() -> None:
        beside, over, told = Beside(), threading.Event(), asyncio.Event()
        beside.run(LIST, over.wait, lambda _: None)
        beside.run(FETCH, lambda: None, lambda _: told.set())
        await told.wait()
        over.set()
        beside.close()

    asyncio.run(scenario())


def test_an_answer_that_is_put_together_beside_the_loop_is_put_together_at_once_for_a_small_request(peer: Peer) -> None:
    made: list[int] = []

    def make() -> DeleteTopicsResponse:
        made.append(len(peer.beside.waiting))
        return DeleteTopicsResponse()

    table = RouteTable([route("DeleteTopics", DeleteTopicsRequest, lambda request, _: request.respond_with(make))])
    peer.routes.targets.update(table.targets)
    peer.receive(ask(SMALL, 1))
    assert made == [0]
    peer.receive(ask(LARGE, 2))
    peer.beside.finish_one()
    assert made == [0]
    peer.beside.finish_one()
    assert made == [0, 0]
    assert [correlation_id for correlation_id, _ in peer.answers] == [1, 2]


def test_a_large_request_that_makes_no_sense_is_not_left_to_the_collector(asked: Asked) -> None:
    """With it would stay all of its bytes."""
    peer = asked.peer
    with ThreadPoolExecutor(1) as pool:

        def fail_once() -> None:
            peer.receive(frame(LIST, b"\x00\xff\xff\xff" + body(LARGE), correlation_id=1, version=3))
            work, then = peer.beside.waiting.pop()
            done = pool.submit(work)
            assert isinstance(done.exception(), WireError)
            then(done.result)
            assert peer.transport.closing

        assert not left_by(fail_once)


def test_who_parked_a_request_that_is_being_answered_does_not_hear_that_its_client_goes(peer: Peer) -> None:
    """It is through with it, and may not know it any more."""
    heard: list[str] = []

    def answer(request: RequestContext, _: DeleteTopicsRequest) -> None:
        request.on_close(lambda: heard.append("gone"))
        request.respond_message(DeleteTopicsResponse())

    peer.routes.targets.update(RouteTable([route("DeleteTopics", DeleteTopicsRequest, answer)]).targets)
    peer.receive(ask(LARGE, 1))
    peer.beside.finish_one()
    peer.connection.connection_lost(None)
    peer.beside.finish_one()
    assert heard == []


def test_an_answer_that_cannot_be_written_is_not_left_to_the_collector(peer: Peer) -> None:
    Asked(peer, lambda: DeleteTopicsResponse(responses=[DeletableTopicResult(name=None)]))
    with ThreadPoolExecutor(1) as pool:

        def fail_once() -> None:
            peer.receive(ask(LARGE, 1))
            peer.beside.finish_one()
            work, then = peer.beside.waiting.pop()
            done = pool.submit(work)
            assert isinstance(done.exception(), WireError)
            then(done.result)
            assert peer.transport.closing

        assert not left_by(fail_once)
