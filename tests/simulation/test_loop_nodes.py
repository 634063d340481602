"""Nodes that die, sleep and lose track of time."""

import asyncio
import gc
import sys
from functools import partial

import pytest

from ottla.runtime.host import Host
from ottla.runtime.simulation.crash import SimulatedCrash
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.node import SimulatedNode
from ottla.runtime.simulation.run import run_on, simulate


def test_a_killed_node_runs_not_one_more_line() -> None:
    log: list[str] = []

    async def stubborn(host: Host) -> None:
        try:
            while True:
                log.append("works")
                await asyncio.sleep(1)
        except BaseException as error:
            log.append(f"caught {type(error).__name__}")
            raise
        finally:
            log.append("finally")

    async def waits_for_itself(host: Host) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            log.append("collected")

    async def program(loop: SimulationLoop) -> None:
        for number, main in enumerate((stubborn, waits_for_itself)):
            loop.create_node(f"broker-{number}").start(main)
        await asyncio.sleep(2.5)
        for number in range(2):
            loop.nodes[f"broker-{number}"].kill()
        await asyncio.sleep(10)
        gc.collect()  # their coroutines are kept: collecting them would run the finally blocks
        assert log == ["works"] * 3

    simulate(program, 1)


def test_a_killed_node_leaves_no_complaint_behind(caplog: pytest.LogCaptureFixture) -> None:
    async def main(host: Host) -> None:
        async def child() -> None:
            try:
                await asyncio.sleep(100)
            finally:
                await asyncio.sleep(100)

        children = [asyncio.ensure_future(child()) for _ in range(5)]
        await asyncio.gather(*children)

    async def program(loop: SimulationLoop) -> None:
        node = loop.create_node("broker-1")
        node.start(main)
        await asyncio.sleep(1)
        node.kill()
        node.restart()
        await asyncio.sleep(1)

    simulate(program, 1)
    gc.collect()
    assert caplog.text == ""


def test_a_task_that_only_waits_for_itself_lives_to_the_end_of_the_run(caplog: pytest.LogCaptureFixture) -> None:
    async def main(host: Host) -> None:
        await asyncio.get_running_loop().create_future()  # nothing but this coroutine refers to it

    async def program(loop: SimulationLoop) -> None:
        loop.create_node("broker-1").start(main)
        await asyncio.sleep(1)

    loop = SimulationLoop(1)
    run_on(loop, program)
    gc.collect()
    loop.close()
    gc.collect()
    assert caplog.text == ""


def test_the_dead_cannot_reach_the_living() -> None:
    """A crash in the middle of a disk operation unwinds the stack: what its finally blocks do must have no effect."""
    log: list[str] = []

    async def main(host: Host) -> None:
        file = host.disk.open("/data", create=True)
        _, writer = await asyncio.open_connection("server", 9092)
        loop = asyncio.get_running_loop()
        try:
            file.write_at([b"last words"], 0)
            log.append("survived")
        except Exception:  # noqa: BLE001 - the broadest that a program should use
            log.append("swallowed")
        finally:
            writer.write(b"from the grave")
            loop.call_soon(log.append, "callback")
            loop.create_task(asyncio.sleep(0)).add_done_callback(lambda task: log.append("task"))
            with pytest.raises(SimulatedCrash):
                host.disk.open("/grave", create=True)

    async def program(loop: SimulationLoop) -> bytes:
        heard = bytearray()

        async def listen(host: Host) -> None:
            async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                heard.extend(await reader.read(100))

            server = await asyncio.start_server(hear, "server", 9092)
            await server.serve_forever()

        loop.create_node("server").start(listen)
        await asyncio.sleep(0.001)
        node = loop.create_node("broker-1")
        node.crash_at_disk_operation(2)
        node.start(main)
        await asyncio.sleep(10)
        assert node.process is None
        assert not node.up
        assert "/grave" not in node.platter.root.entries
        return bytes(heard)

    assert simulate(program, 1) == b""
    assert log == []


def test_a_crash_loses_what_was_not_synced_and_a_kill_does_not() -> None:
    async def main(host: Host) -> None:
        host.disk.write_atomically("/file", b"synced")
        host.disk.open("/file").write_at([b"unsynced"], 0)
        host.disk.lock("/.lock")
        await asyncio.Event().wait()

    async def program(loop: SimulationLoop, crash: bool) -> bytes:
        node = loop.create_node("broker-1")
        node.start(main)
        await asyncio.sleep(1)
        assert node.host is not None
        disk = node.host.disk
        if crash:
            node.crash()
        else:
            node.kill()
        with pytest.raises(SimulatedCrash):
            disk.exists("/file")
        node.boot()
        assert node.host is not None
        node.host.disk.lock("/.lock")
        return node.host.disk.read_bytes("/file")

    assert {simulate(partial(program, crash=False), seed) for seed in range(20)} == {b"unsynced"}
    assert {b"synced", b"unsynced"} < {simulate(partial(program, crash=True), seed) for seed in range(20)}


def test_a_node_that_kills_itself_stops_at_that_line() -> None:
    log: list[str] = []

    async def program(loop: SimulationLoop) -> None:
        async def main(host: Host) -> None:
            log.append("before")
            loop.nodes["broker-1"].kill()
            log.append("after")

        loop.create_node("broker-1").start(main)
        await asyncio.sleep(1)

    simulate(program, 1)
    assert log == ["before"]


async def echo_main(host: Host) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, None, 9092)
    await server.serve_forever()


async def client_of(node: SimulatedNode) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    await asyncio.sleep(0.001)
    reader, writer = await asyncio.open_connection(node.name, 9092)
    writer.write(b"hello\n")
    assert await reader.readline() == b"hello\n"
    return reader, writer


def test_peers_of_a_killed_process_see_the_connection_close() -> None:
    async def program(loop: SimulationLoop) -> None:
        node = loop.create_node("server")
        node.start(echo_main)
        reader, writer = await client_of(node)
        node.kill()
        assert await reader.read() == b""
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("server", 9092)
        writer.close()

    simulate(program, 1)


def test_a_reset_between_two_dead_processes_is_not_answered() -> None:
    async def program(loop: SimulationLoop) -> None:
        server, client = loop.create_node("server"), loop.create_node("client")
        server.start(echo_main)
        await asyncio.sleep(0.001)

        async def main(host: Host) -> None:
            _, writer = await asyncio.open_connection("server", 9092)
            writer.write(b"anyone?")
            await asyncio.Event().wait()

        client.start(main)
        await asyncio.sleep(0.1)
        loop.network.cut_between([server], [client])
        server.kill()
        client.kill()
        loop.network.mend(server, client)
        loop.network.mend(client, server)
        loop.network.reset_between(server, client)
        await asyncio.sleep(10)
        assert not loop.unhandled

    simulate(program, 1)


def test_peers_of_a_crashed_machine_hear_nothing_until_it_is_back() -> None:
    async def program(loop: SimulationLoop) -> None:
        node = loop.create_node("server")
        node.start(echo_main)
        reader, writer = await client_of(node)
        node.crash()
        writer.write(b"are you there?\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readline(), 600)
        node.restart()
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.readline(), 10)
        writer.close()
        _, again = await client_of(node)
        again.close()

    simulate(program, 1)


def test_a_paused_node_gets_everything_later() -> None:
    async def program(loop: SimulationLoop) -> None:
        ticks: list[float] = []
        started = loop.time()

        async def main(host: Host) -> None:
            mine = asyncio.get_running_loop()
            for delay_s in (1, 2, 3):
                mine.call_later(delay_s, lambda: ticks.append(round(loop.now_ns / 1e9, 3)))
            await echo_main(host)

        node = loop.create_node("server")
        node.start(main)
        reader, writer = await client_of(node)
        node.pause()
        writer.write(b"held\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readline(), 5)
        assert ticks == []
        node.resume()
        assert await asyncio.wait_for(reader.readline(), 1) == b"held\n"
        assert len(ticks) == 3
        assert min(ticks) >= 5
        assert loop.time() - started < 6
        writer.close()

    simulate(program, 1)


def test_a_node_can_be_killed_while_paused() -> None:
    async def program(loop: SimulationLoop) -> None:
        node = loop.create_node("server")
        node.start(echo_main)
        reader, writer = await client_of(node)
        node.pause()
        node.kill()
        assert await reader.read() == b""
        node.restart()
        writer.close()
        _, again = await client_of(node)
        again.close()

    simulate(program, 1)


def test_a_fast_clock_fires_early_and_slow_ones_late() -> None:
    async def program(loop: SimulationLoop) -> list[str]:
        order: list[str] = []

        async def main(host: Host, name: str) -> None:
            before = host.clock.monotonic_ms()
            await asyncio.sleep(10)
            order.append(f"{name} {host.clock.monotonic_ms() - before} {loop.now_ns // 1_000_000_000}")

        for name, rate in (("slow", 0.5), ("exact", 1.0), ("fast", 2.0)):
            node = loop.create_node(name)
            node.set_clock_rate(rate)
            node.start(partial(main, name=name))
        await asyncio.sleep(30)
        return order

    assert simulate(program, 1) == ["fast 10000 5", "exact 10000 10", "slow 10000 20"]


def test_a_change_of_rate_moves_timers_already_set() -> None:
    async def program(loop: SimulationLoop) -> int:
        ended: list[int] = []

        async def main(host: Host) -> None:
            await asyncio.sleep(10)
            ended.append(loop.now_ns // 1_000_000)

        node = loop.create_node("broker-1")
        node.start(main)
        await asyncio.sleep(5)
        node.set_clock_rate(10.0)
        await asyncio.sleep(30)
        return ended[0]

    assert simulate(program, 1) == 5500


def test_the_calendar_jumps_and_the_monotonic_clock_does_not() -> None:
    async def program(loop: SimulationLoop) -> None:
        node = loop.create_node("broker-1")
        node.boot()
        assert node.host is not None
        clock = node.host.clock
        before = clock.monotonic_ms(), clock.wall_ms()
        node.jump_wall_clock(-3_600_000)
        assert (clock.monotonic_ms(), clock.wall_ms()) == (before[0], before[1] - 3_600_000)
        other = loop.create_node("broker-2")
        assert loop.time() != other.clock.local_ns(loop.now_ns) / 1e9, "monotonic clocks of two machines share nothing"

    simulate(program, 1)


def test_a_program_that_ends_or_exits_has_exited(caplog: pytest.LogCaptureFixture) -> None:
    async def program(loop: SimulationLoop) -> None:
        async def returns(host: Host) -> None:
            asyncio.get_running_loop().call_later(1, pytest.fail, "a process that has ended goes on")

        async def fails(host: Host) -> None:
            raise OSError(5, "I/O error")

        async def exits(host: Host) -> None:
            asyncio.get_running_loop().call_soon(sys.exit, 3)
            await asyncio.sleep(100)

        nodes = [loop.create_node(main.__name__) for main in (returns, fails, exits)]
        for node, main in zip(nodes, (returns, fails, exits), strict=True):
            node.start(main)
        await asyncio.sleep(10)
        assert [node.process for node in nodes] == [None] * 3
        assert [type(node.exit) for node in nodes] == [type(None), OSError, SystemExit]

    simulate(program, 1)
    assert "fails failed" in caplog.text


def test_a_restarted_node_finds_its_disk_and_another_seed() -> None:
    async def program(loop: SimulationLoop) -> None:
        seen: list[tuple[bytes, float]] = []

        async def main(host: Host) -> None:
            file = host.disk.open("/boots", create=True)
            before = file.read_at(100, 0)
            file.write_at([b"+"], len(before))
            seen.append((before, host.rng.random()))
            await asyncio.Event().wait()

        node = loop.create_node("broker-1")
        node.start(main)
        await asyncio.sleep(1)
        node.restart()
        await asyncio.sleep(1)
        assert [data for data, _ in seen] == [b"", b"+"]
        assert seen[0][1] != seen[1][1]

    simulate(program, 1)


def test_code_called_from_outside_belongs_to_the_node_it_is_run_as() -> None:
    log: list[str] = []

    async def program(loop: SimulationLoop) -> None:
        node = loop.create_node("broker-1")
        process = node.boot()
        process.run(loop.call_later, 1, log.append, "dies with its node")
        loop.call_later(1, log.append, "lives on")
        node.kill()
        await asyncio.sleep(2)

    simulate(program, 1)
    assert log == ["lives on"]


def test_a_sync_in_the_background_promises_at_its_end_and_nothing_when_the_node_dies_first() -> None:
    async def program(loop: SimulationLoop, wait_s: float) -> tuple[bytes, list[object]]:
        answers: list[object] = []

        async def main(host: Host) -> None:
            file = host.disk.open("/log", create=True)
            file.sync()
            host.disk.sync_directory("/")
            file.write_at([b"record"], 0)
            host.sync_later.sync(file, answers.append)
            assert not answers
            await asyncio.Event().wait()

        node = loop.create_node("broker-1")
        node.start(main)
        await asyncio.sleep(wait_s)
        node.crash()
        node.boot()
        assert node.host is not None
        return node.host.disk.read_bytes("/log"), answers

    late = [simulate(partial(program, wait_s=0.01), seed) for seed in range(20)]
    assert late == [(b"record", [None])] * 20
    early = [simulate(partial(program, wait_s=0.00001), seed) for seed in range(20)]
    assert {data for data, _ in early} > {b"", b"record"}
    assert all(answers == [] for _, answers in early)
