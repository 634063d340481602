"""asyncio's own interface on the simulated network."""

import asyncio
import errno
from collections.abc import Callable

import pytest

from ottla.runtime.host import Host
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.node import SimulatedNode
from ottla.runtime.simulation.run import simulate
from ottla.runtime.simulation.transport import SimulatedTransport


class BufferedEcho(asyncio.BufferedProtocol):
    """Sends back what it reads, through a small buffer of its own; obeys back-pressure."""

    def __init__(self) -> None:
        self.buffer = bytearray(1000)
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.transport.write(bytes(self.buffer[:nbytes]))

    def pause_writing(self) -> None:
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.transport.resume_reading()


class Recorder(asyncio.Protocol):
    """Remembers what happens to its connection."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.data = bytearray()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> None:
        self.events.append("eof")

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append(f"lost {type(exc).__name__}" if exc else "lost")


def serve(loop: SimulationLoop, factory: Callable[[], asyncio.BaseProtocol], name: str = "server") -> SimulatedNode:
    """A node that serves ``factory`` on port 9092 for as long as it lives."""

    async def main(host: Host) -> None:
        server = await asyncio.get_running_loop().create_server(factory, name, 9092)
        await server.serve_forever()

    node = loop.create_node(name)
    node.start(main)
    return node


async def connected(loop: SimulationLoop) -> tuple[Recorder, Recorder, SimulatedNode]:
    """A client in the harness, its server end, and the server's node."""
    ends: list[Recorder] = []

    def factory() -> Recorder:
        ends.append(Recorder())
        return ends[-1]

    node = serve(loop, factory)
    await asyncio.sleep(0.001)
    _, client = await loop.create_connection(Recorder, "server", 9092)
    await asyncio.sleep(0.01)
    return client, ends[0], node


def test_streams_talk_to_a_buffered_echo_server() -> None:
    async def program(loop: SimulationLoop) -> bytes:
        serve(loop, BufferedEcho)
        await asyncio.sleep(0.001)
        reader, writer = await asyncio.open_connection("server", 9092)
        sent = bytes(range(256)) * 40
        writer.write(sent)
        writer.write_eof()
        back = await reader.read()
        writer.close()
        await writer.wait_closed()
        assert back == sent
        return back

    assert len(simulate(program, 3)) == 10_240


def test_many_clients_make_many_exchanges_in_order() -> None:
    async def program(loop: SimulationLoop) -> int:
        serve(loop, BufferedEcho)
        await asyncio.sleep(0.001)

        async def client(number: int) -> int:
            reader, writer = await asyncio.open_connection("server", 9092)
            for turn in range(50):
                line = b"%d/%d\n" % (number, turn)
                writer.write(line)
                assert await reader.readline() == line
            writer.close()
            return 50

        return sum(await asyncio.gather(*(client(number) for number in range(10))))

    assert simulate(program, 3) == 500


def test_writes_of_one_instant_arrive_together_or_split_but_in_order() -> None:
    async def program(loop: SimulationLoop) -> bytes:
        client, server, _ = await connected(loop)
        client.transport.writelines([b"a", bytearray(b"b"), memoryview(b"c")])
        for number in range(100):
            client.transport.write(b"%03d" % number)
            if number % 7 == 0:
                await asyncio.sleep(0)
        await asyncio.sleep(1)
        return bytes(server.data)

    assert simulate(program, 5) == b"abc" + b"".join(b"%03d" % number for number in range(100))


def test_a_reader_that_pauses_stops_the_writer() -> None:
    async def program(loop: SimulationLoop) -> tuple[list[str], int, int]:
        client, server, _ = await connected(loop)
        server.transport.pause_reading()
        client.transport.write(bytes(1_000_000))
        await asyncio.sleep(10)
        held = client.transport.get_write_buffer_size()
        assert not server.data
        server.transport.resume_reading()
        await asyncio.sleep(10)
        return client.events, held, len(server.data)

    events, held, received = simulate(program, 5)
    assert events == ["made", "pause", "resume"]
    assert held > 500_000
    assert received == 1_000_000


def test_a_buffer_reused_after_write_corrupts_the_stream_as_with_uvloop() -> None:
    async def program(loop: SimulationLoop) -> bytes:
        client, server, _ = await connected(loop)
        server.transport.pause_reading()
        client.transport.write(bytes(1_000_000))
        reused = bytearray(b"good")
        client.transport.write(reused)
        reused[:] = b"evil"
        server.transport.resume_reading()
        await asyncio.sleep(10)
        return bytes(server.data[-4:])

    assert simulate(program, 5) == b"evil"


def test_close_delivers_what_was_written_and_then_ends_both_sides() -> None:
    async def program(loop: SimulationLoop) -> tuple[list[str], list[str], int]:
        client, server, _ = await connected(loop)
        client.transport.write(bytes(1_000_000))
        client.transport.close()
        assert client.transport.is_closing()
        await asyncio.sleep(10)
        return client.events, server.events, len(server.data)

    client, server, received = simulate(program, 5)
    assert client == ["made", "pause", "resume", "lost"]
    assert server == ["made", "eof", "lost"]
    assert received == 1_000_000


def test_abort_throws_away_what_waits() -> None:
    async def program(loop: SimulationLoop) -> tuple[list[str], int]:
        client, server, _ = await connected(loop)
        server.transport.pause_reading()
        client.transport.write(bytes(1_000_000))
        client.transport.abort()
        await asyncio.sleep(1)
        server.transport.resume_reading()
        await asyncio.sleep(10)
        return client.events, len(server.data)

    events, received = simulate(program, 5)
    assert events == ["made", "pause", "lost"]
    assert 0 < received < 500_000


def test_writing_to_a_closed_transport_raises_as_with_uvloop() -> None:
    async def program(loop: SimulationLoop) -> None:
        client, _, _ = await connected(loop)
        client.transport.close()
        client.transport.write(b"ignored")
        await asyncio.sleep(1)
        with pytest.raises(RuntimeError, match="the handler is closed"):
            client.transport.write(b"x")

    simulate(program, 5)


def test_writing_to_a_peer_that_closed_ends_in_a_reset() -> None:
    async def program(loop: SimulationLoop) -> list[str]:
        client, server, _ = await connected(loop)

        def eof_received() -> bool:
            client.events.append("half open")
            return True

        client.eof_received = eof_received  # type: ignore[method-assign, assignment]
        server.transport.close()
        await asyncio.sleep(1)
        client.transport.write(b"anyone?")
        await asyncio.sleep(1)
        return client.events

    assert simulate(program, 5) == ["made", "half open", "lost ConnectionResetError"]


def test_connecting_to_nobody_is_refused_and_to_an_unknown_name_fails() -> None:
    async def program(loop: SimulationLoop) -> None:
        loop.create_node("server")
        before = loop.time()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("server", 9092)
        assert loop.time() > before
        with pytest.raises(OSError, match="Name or service not known"):
            await asyncio.open_connection("nowhere", 9092)

    simulate(program, 5)


def test_a_port_is_bound_once_and_free_again_after_close() -> None:
    async def program(loop: SimulationLoop) -> None:
        server = await loop.create_server(Recorder, "localhost", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(OSError, match="address already in use") as caught:
            await loop.create_server(Recorder, None, port)
        assert caught.value.errno == errno.EADDRINUSE
        transport, _ = await loop.create_connection(Recorder, "localhost", port)
        assert transport.get_extra_info("peername") == (loop.nodes["harness"].address, port)
        server.close()
        await server.wait_closed()
        await loop.create_server(Recorder, None, port)

    simulate(program, 5)


def test_a_server_that_cannot_keep_up_leaves_connections_in_the_backlog() -> None:
    async def program(loop: SimulationLoop) -> float:
        node = serve(loop, BufferedEcho)
        await asyncio.sleep(0.001)
        node.pause()
        started = loop.time()
        opening = [asyncio.ensure_future(asyncio.open_connection("server", 9092)) for _ in range(101)]
        _, waiting = await asyncio.wait(opening, timeout=0.5)
        assert len(waiting) == 1  # backlog: 100, and the kernel completes those by itself
        node.resume()
        await asyncio.wait(waiting)
        for done in opening:
            done.result()[1].close()
        return loop.time() - started

    assert 1 < simulate(program, 5) < 1.1  # the first SYN retry


def test_a_cut_link_holds_data_one_way_and_delivers_it_in_order_when_mended() -> None:
    async def program(loop: SimulationLoop) -> None:
        client, server, node = await connected(loop)
        harness = loop.nodes["harness"]
        loop.network.cut(harness, node)
        for number in range(10):
            client.transport.write(b"%d" % number)
            await asyncio.sleep(0.01)
        server.transport.write(b"still heard")
        await asyncio.sleep(60)
        assert not server.data
        assert client.data == b"still heard"
        loop.network.mend(harness, node)
        await asyncio.sleep(1)
        assert server.data == b"0123456789"

    for seed in range(10):
        simulate(program, seed)


def test_what_is_on_its_way_when_the_link_is_cut_keeps_its_place() -> None:
    async def program(loop: SimulationLoop) -> None:
        client, server, node = await connected(loop)
        harness = loop.nodes["harness"]
        loop.network.link(harness, node).delay_ns = (1_000_000_000, 1_000_000_001)
        client.transport.write(b"1")
        await asyncio.sleep(0.1)
        loop.network.cut(harness, node)
        client.transport.write(b"2")
        await asyncio.sleep(5)
        assert server.data == b""
        loop.network.mend(harness, node)
        await asyncio.sleep(5)
        assert server.data == b"12"

    simulate(program, 5)


def test_closing_with_unread_data_resets_the_peer() -> None:
    async def program(loop: SimulationLoop) -> list[str]:
        client, server, _ = await connected(loop)
        server.transport.pause_reading()
        client.transport.write(b"never read")
        await asyncio.sleep(1)
        server.transport.close()
        await asyncio.sleep(1)
        return client.events

    assert simulate(program, 5) == ["made", "lost ConnectionResetError"]


def test_closing_a_server_resets_connections_that_were_not_accepted() -> None:
    async def program(loop: SimulationLoop) -> list[str]:
        server = await loop.create_server(pytest.fail, "localhost", 1)
        harness = loop.nodes["harness"]
        loop.network.link(harness, harness).delay_ns = (1_000_000_000, 1_000_000_001)
        opening = asyncio.ensure_future(loop.create_connection(Recorder, "localhost", 1))
        await asyncio.sleep(2.5)  # the client is connected; the server's accept comes at 3 s
        server.close()
        await asyncio.sleep(5)
        client = opening.result()[1]
        assert isinstance(client, Recorder)
        return client.events

    assert simulate(program, 5) == ["made", "eof", "lost"]


def test_without_acknowledgements_a_sender_stops_at_its_window() -> None:
    async def program(loop: SimulationLoop) -> tuple[int, int]:
        client, server, node = await connected(loop)
        loop.network.cut(node, loop.nodes["harness"])
        client.transport.write(bytes(1_000_000))
        await asyncio.sleep(10)
        got = len(server.data)
        loop.network.mend_all()
        await asyncio.sleep(10)
        return got, len(server.data)

    assert simulate(program, 5) == (256 * 1024, 1_000_000)


@pytest.mark.parametrize("way", ["there", "back", "both"])
def test_connecting_over_a_cut_link_waits_for_a_retry(way: str) -> None:
    async def program(loop: SimulationLoop) -> float:
        node = serve(loop, Recorder)
        harness = loop.nodes["harness"]
        await asyncio.sleep(0.001)
        started = loop.time()
        if way != "back":
            loop.network.cut(harness, node)
        if way != "there":
            loop.network.cut(node, harness)
        loop.call_later(2, loop.network.mend_all)
        await loop.create_connection(Recorder, "server", 9092)
        return loop.time() - started

    assert 3 < simulate(program, 5) < 3.1  # SYNs leave at 0, 1 and 3 s


def test_connecting_to_a_machine_without_power_times_out() -> None:
    async def program(loop: SimulationLoop) -> float:
        loop.create_node("server").crash()
        started = loop.time()
        with pytest.raises(TimeoutError):
            await loop.create_connection(Recorder, "server", 9092)
        return loop.time() - started

    assert round(simulate(program, 5)) == 127


def test_a_cancelled_connect_leaves_no_connection() -> None:
    async def program(loop: SimulationLoop) -> list[str]:
        ends: list[Recorder] = []

        def factory() -> Recorder:
            ends.append(Recorder())
            return ends[-1]

        serve(loop, factory)
        await asyncio.sleep(0.001)
        opening = asyncio.ensure_future(loop.create_connection(Recorder, "server", 9092))
        await asyncio.sleep(0.0001)
        opening.cancel()
        await asyncio.sleep(1)
        return ends[0].events if ends else []

    for seed in range(10):
        assert simulate(program, seed) in ([], ["made", "eof", "lost"])


def test_a_protocol_that_fails_loses_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def program(loop: SimulationLoop) -> list[str]:
        client, server, _ = await connected(loop)
        server.data_received = lambda data: [][0]  # type: ignore[method-assign]
        client.transport.write(b"x")
        await asyncio.sleep(1)
        assert server.events == ["made", "lost IndexError"]
        return client.events

    assert simulate(program, 5) == ["made", "eof", "lost"]
    assert "protocol failed" in caplog.text


def test_resetting_connections_breaks_both_ends() -> None:
    async def program(loop: SimulationLoop) -> None:
        client, server, node = await connected(loop)
        loop.network.reset_between(node, loop.nodes["harness"])
        await asyncio.sleep(1)
        assert client.events == server.events == ["made", "lost ConnectionResetError"]

    simulate(program, 5)


def test_slow_and_lossy_links_delay() -> None:
    async def program(loop: SimulationLoop) -> None:
        client, server, node = await connected(loop)
        link = loop.network.link(loop.nodes["harness"], node)
        link.delay_ns = (5_000_000_000, 5_000_000_001)
        client.transport.write(b"slow")
        await asyncio.sleep(4.9)
        assert not server.data
        await asyncio.sleep(0.2)
        assert server.data == b"slow"
        link.delay_ns, link.loss = (1000, 2000), 1.0
        client.transport.write(b"lost once")
        await asyncio.sleep(0.19)
        assert server.data == b"slow"
        await asyncio.sleep(0.3)
        assert server.data == b"slowlost once"

    simulate(program, 5)


def test_nothing_is_kept_of_connections_that_ended() -> None:
    async def program(loop: SimulationLoop) -> int:
        serve(loop, BufferedEcho)
        await asyncio.sleep(0.001)
        for _ in range(20):
            _, writer = await asyncio.open_connection("server", 9092)
            writer.close()
            await writer.wait_closed()
        await asyncio.sleep(1)
        return len(loop.network._connections)

    assert simulate(program, 5) == 0


def test_write_buffer_limits_are_asyncios() -> None:
    async def program(loop: SimulationLoop) -> None:
        client, _, _ = await connected(loop)
        assert isinstance(client.transport, SimulatedTransport)
        assert client.transport.get_write_buffer_limits() == (16384, 65536)
        client.transport.set_write_buffer_limits(high=1000)
        assert client.transport.get_write_buffer_limits() == (250, 1000)
        with pytest.raises(ValueError, match="must be >="):
            client.transport.set_write_buffer_limits(high=1, low=2)

    simulate(program, 5)
