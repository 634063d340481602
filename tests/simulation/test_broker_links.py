"""A broker's client of another broker: when it is up, what it may ask, and how it comes back."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from ottla.broker.links.broker_link import BrokerLink, LinkSettings
from ottla.broker.links.versions import common, read_versions
from ottla.broker.wire.apis import API_VERSIONS, FETCH, response_header_is_flexible
from ottla.broker.wire.codec import encoder
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.headers import read_request_header
from ottla.broker.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from ottla.runtime.errors import ErrorCode
from ottla.runtime.settings.endpoints import Endpoint
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.run import simulate
from ottla.runtime.timers import LoopTimers
from tests.simulation.network_ends import serve

HEARTBEAT = 12
SPEAKS = {API_VERSIONS: (0, 4), FETCH: (4, 15), HEARTBEAT: (0, 4)}
OLD = {API_VERSIONS: (0, 2), FETCH: (4, 11)}
SIZE = struct.Struct(">i")


class Peer(asyncio.Protocol):
    """The other broker, of which there is one a connection: says what it speaks, and answers the rest with the request's own bytes."""

    speaks = SPEAKS
    is_silent = False
    lies = False
    asked: list[tuple[int, int]]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        while len(self.data) >= 4 and len(self.data) >= 4 + SIZE.unpack_from(self.data)[0]:
            size = SIZE.unpack_from(self.data)[0]
            frame, self.data = self.data[4 : 4 + size], self.data[4 + size :]
            self.answer(frame)

    def answer(self, frame: bytes) -> None:
        key, version, correlation_id, _, position = read_request_header(memoryview(frame), 0)
        self.asked.append((key, version))
        if key == API_VERSIONS:
            refused = version > self.speaks[API_VERSIONS][1]
            known = [ApiVersion(each, *versions) for each, versions in self.speaks.items()]
            response = ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION if refused else ErrorCode.NONE, known)
            body = b"".join(encoder(ApiVersionsResponse, 0 if refused else version)(response))
        elif self.is_silent:
            return
        else:
            body = frame[position:]
        tags = b"\0" if response_header_is_flexible(key, version) else b""
        answer = SIZE.pack(correlation_id + self.lies) + tags + body
        self.transport.write(SIZE.pack(len(answer)) + answer)


DETOURS = {Endpoint("far-away", 1): Endpoint("broker-2", 9092)}


class Bench:
    """A link of the harness to a node of the simulation, and what it told."""

    def __init__(self, loop: SimulationLoop, **peer: object) -> None:
        self.loop = loop
        self.peers: list[Peer] = []
        self.asked: list[tuple[int, int]] = []
        self.traits = peer
        self.told: list[str] = []
        self.node = serve(loop, self._peer, "broker-2")
        settings = LinkSettings(client_id="test", stall_ms=1_000, in_flight_max=3, backoff_ms_max=200, detours=DETOURS)
        timers = LoopTimers(loop)
        self.link = BrokerLink(2, settings, timers, lambda: self.told.append("up"), lambda _: self.told.append("lost"))

    def _peer(self) -> Peer:
        peer = Peer()
        for name, value in self.traits.items():
            setattr(peer, name, value)
        peer.asked = self.asked
        self.peers.append(peer)
        return peer

    async def up(self, address: tuple[str, int] = ("broker-2", 9092)) -> None:
        self.link.move(address)
        self.link.connect()
        await self.until(lambda: self.link.is_up)

    async def until(self, condition: Callable[[], bool]) -> None:
        start = self.loop.time()
        while not condition():
            assert self.loop.time() - start < 30
            await asyncio.sleep(0.001)

    def ask(self, number: int, answers: list[bytes]) -> None:
        body = SIZE.pack(number)
        self.link.request(HEARTBEAT, 3, body, lambda frame, at: answers.append(bytes(frame[at:])))


def run(scenario: Callable[[Bench], Awaitable[None]], **peer: object) -> None:
    async def program(loop: SimulationLoop) -> None:
        bench = Bench(loop, **peer)
        await asyncio.sleep(0.01)
        await scenario(bench)
        bench.link.close()

    simulate(program, 1)


def test_it_is_up_when_the_other_end_has_said_what_it_speaks() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.up()
        assert bench.told == ["up"]
        assert bench.asked == [(API_VERSIONS, 4)]
        assert bench.link.version(FETCH, 13, 17) == 15
        assert bench.link.version(FETCH, 4, 12) == 12
        assert bench.link.version(FETCH, 16, 17) == -1
        assert bench.link.version(99, 0, 1) == -1

    run(scenario)


def test_it_takes_the_detour_to_the_other_end() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.up(("far-away", 1))
        assert bench.told == ["up"]

    run(scenario)


def test_an_older_broker_is_asked_again_in_a_version_that_it_speaks() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.up()
        assert bench.asked == [(API_VERSIONS, 4), (API_VERSIONS, 2)]
        assert bench.link.version(FETCH, 4, 17) == 11

    run(scenario, speaks=OLD)


def test_answers_come_in_the_order_of_the_requests_and_so_many_wait_at_most() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.up()
        answers: list[bytes] = []
        for number in range(3):
            assert bench.link.room == 3 - number
            bench.ask(number, answers)
        assert bench.link.room == 0
        with pytest.raises(AssertionError):
            bench.ask(3, answers)
        await bench.until(lambda: len(answers) == 3)
        assert answers == [SIZE.pack(number) for number in range(3)]
        assert bench.link.room == 3

    run(scenario)


def test_a_connection_that_is_lost_is_told_once_and_made_anew() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.up()
        answers: list[bytes] = []
        bench.peers[0].is_silent = True
        bench.ask(1, answers)
        bench.peers[0].transport.abort()
        await bench.until(lambda: len(bench.told) == 3)
        assert bench.told == ["up", "lost", "up"]
        bench.ask(2, answers)
        await bench.until(lambda: bool(answers))
        assert answers == [SIZE.pack(2)]

    run(scenario)


def test_an_answer_that_does_not_come_breaks_the_connection() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.up()
        start = bench.loop.time()
        bench.peers[0].is_silent = True
        bench.ask(1, [])
        await bench.until(lambda: "lost" in bench.told)
        assert 0.95 <= bench.loop.time() - start <= 1.3

    run(scenario)


def test_an_answer_to_another_request_breaks_the_connection() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.up()
        answers: list[bytes] = []
        bench.peers[0].lies = True
        bench.ask(1, answers)
        await bench.until(lambda: bench.told == ["up", "lost", "up"])
        assert answers == []

    run(scenario)


def test_pauses_grow_until_an_answer_was_of_use() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.up()
        times: list[float] = []
        for _ in range(6):
            count = len(bench.told)
            start = bench.loop.time()
            bench.link.break_off("the test says so")
            await bench.until(lambda count=count: len(bench.told) == count + 2)  # type: ignore[misc]  # bound now
            times.append(bench.loop.time() - start)
        for pause, least in zip(times, (0.02, 0.04, 0.08, 0.16, 0.2, 0.2), strict=True):
            assert least <= pause < least + 0.02
        bench.link.worked()
        start = bench.loop.time()
        bench.link.break_off("the test says so")
        await bench.until(lambda: bench.link.is_up)
        assert bench.loop.time() - start < 0.04

    run(scenario)


def test_a_broker_that_is_away_is_tried_until_it_is_back() -> None:
    async def scenario(bench: Bench) -> None:
        bench.node.kill()
        bench.link.move(("broker-2", 9092))
        bench.link.connect()
        await asyncio.sleep(3)
        assert bench.told == []
        bench.node.restart()
        await bench.until(lambda: bench.link.is_up)
        assert bench.told == ["up"]

    run(scenario)


def test_a_move_drops_the_connection_and_makes_another_without_a_word() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.up()
        assert not bench.link.move(("broker-2", 9092))
        bench.ask(1, [])
        assert bench.link.move(None)
        assert not bench.link.is_up
        await asyncio.sleep(1)
        assert bench.link.move(("broker-2", 9092))
        await bench.until(lambda: bench.link.is_up)
        assert bench.told == ["up", "up"]

    run(scenario)


@pytest.mark.parametrize("when", [0, 0.0005, 0.002, 0.02])
def test_after_it_is_closed_nothing_is_told_and_nothing_connected(when: float) -> None:
    async def scenario(bench: Bench) -> None:
        bench.link.move(("broker-2", 9092))
        bench.link.connect()
        await asyncio.sleep(when)
        bench.link.close()
        told = list(bench.told)
        connections = len(bench.peers)
        await asyncio.sleep(2)
        assert bench.told == told
        assert len(bench.peers) <= connections + 1  # one may have been on its way
        assert all(peer.transport.is_closing() for peer in bench.peers)

    run(scenario)


def test_before_it_is_wanted_it_does_not_connect() -> None:
    async def scenario(bench: Bench) -> None:
        bench.link.move(("broker-2", 9092))
        await asyncio.sleep(1)
        assert bench.peers == []

    run(scenario)


def answered(response: ApiVersionsResponse, version: int) -> memoryview:
    return memoryview(b"".join(encoder(ApiVersionsResponse, version)(response)))


def test_who_refuses_every_version_is_no_broker() -> None:
    refusal = ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, [ApiVersion(API_VERSIONS, 0, 2)])
    assert read_versions(answered(refusal, 0), 0, 4) == 2
    for version in (2, 1):
        with pytest.raises(WireError):
            read_versions(answered(refusal, 0), 0, version)
    with pytest.raises(WireError):
        read_versions(answered(ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION), 0), 0, 4)
    with pytest.raises(WireError):
        read_versions(answered(ApiVersionsResponse(ErrorCode.INVALID_REQUEST), 4), 0, 4)


def test_bytes_that_say_nothing_are_a_wire_error() -> None:
    rng, whole = Random(3), bytes(answered(ApiVersionsResponse(api_keys=[ApiVersion(1, 4, 17)]), 4))
    for length in range(len(whole)):
        with pytest.raises(WireError):
            read_versions(memoryview(whole[:length]), 0, 4)
    for _ in range(500):
        noise = memoryview(b"\0\0" + rng.randbytes(rng.randrange(40)))
        try:
            read_versions(noise, 0, 4)
        except WireError:
            continue


@pytest.mark.parametrize(
    ("theirs", "ours", "both"),
    [((4, 17), (13, 17), 17), ((4, 12), (13, 17), -1), ((14, 30), (4, 13), -1), ((0, 0), (0, 3), 0)],
)
def test_the_greatest_version_of_both_is_taken(theirs: tuple[int, int], ours: tuple[int, int], both: int) -> None:
    assert common({FETCH: theirs}, FETCH, *ours) == both
