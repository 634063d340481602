"""What happens to connections when links are cut, slow or lossy, and peers fail."""

import asyncio

import pytest

from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.run import simulate
from ottla.runtime.simulation.transport import SimulatedTransport
from tests.simulation.network_ends import BufferedEcho, Recorder, connected, serve


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
        server.data_received = lambda data: [][0]  # type: ignore[method-assign]  # in the place of the real one
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
