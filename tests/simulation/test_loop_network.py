"""The simulated network under asyncio: streams, transports and servers behave as with uvloop."""

import asyncio
import errno

import pytest

from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.run import simulate
from tests.simulation.network_ends import BufferedEcho, Recorder, connected, serve


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

        client.eof_received = eof_received  # type: ignore[method-assign, assignment]  # in the place of the real one
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
