"""Same seed, same run; whatever the interpreter's hash seed is. And the guards that keep it so."""

import asyncio
import contextlib
import itertools
import os
import random
import subprocess
import sys
import threading
import time
import types
import uuid
from collections.abc import Callable
from functools import partial

import pytest

from ottla.runtime.host import Host
from ottla.runtime.simulation.faults import KINDS, generate, schedule
from ottla.runtime.simulation.guards import ForbiddenError
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.run import run_on, simulate
from ottla.runtime.simulation.trace import Trace

NAMES = ("a", "b", "c")


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError), contextlib.closing(writer):
        while line := await reader.readline():
            writer.write(line)


async def talk(host: Host, peer: str) -> None:
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.wait_for(asyncio.open_connection(peer, 1), 1)
            with contextlib.closing(writer):
                for _ in range(20):
                    writer.write(b"%d\n" % host.rng.getrandbits(100))
                    await asyncio.wait_for(reader.readline(), 1)
                    await asyncio.sleep(host.rng.random() / 10)
        await asyncio.sleep(0.1)


async def gossiper(host: Host, name: str) -> None:
    await asyncio.start_server(answer, None, 1)
    talking = [asyncio.ensure_future(talk(host, peer)) for peer in NAMES if peer != name]
    for number in itertools.count():
        with contextlib.suppress(OSError):
            host.disk.write_atomically("/state", b"%d %d" % (number, len(talking)))
        await asyncio.sleep(0.5)


async def gossip(loop: SimulationLoop) -> None:
    """Three nodes that write, sync and talk to each other, under every kind of fault."""
    for name in NAMES:
        loop.create_node(name).start(partial(gossiper, name=name))
    schedule(loop, generate(loop.rng("faults"), NAMES, count=30, until_ms=20_000, kinds=tuple(KINDS)))
    await asyncio.sleep(25)


def trace_of(seed: int) -> tuple[int, int]:
    loop = SimulationLoop(seed)
    loop.call_exception_handler = lambda context: None  # type: ignore[method-assign]  # in the place of the real one
    try:
        run_on(loop, gossip)
        return loop.trace.digest, loop.trace.count
    finally:
        loop.close()


def test_the_same_seed_gives_the_same_trace_and_another_seed_another() -> None:
    traces = [trace_of(seed) for seed in (1, 2, 1, 2)]
    assert traces[0] == traces[2]
    assert traces[1] == traces[3]
    assert traces[0] != traces[1]
    assert traces[0][1] > 5000


def test_the_trace_does_not_depend_on_the_hash_seed() -> None:
    def elsewhere(hash_seed: str) -> str:
        script = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
        script += "import test_loop_determinism as test; print(test.trace_of(3))"
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", script]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    assert elsewhere("0") == elsewhere("12345") == f"{trace_of(3)}\n"


def test_the_trace_sees_whose_step_it_was_and_what_the_bytes_were() -> None:
    def digest(node: int, name: str, data: bytes) -> int:
        trace = Trace()
        trace.step(1, node)
        trace.event(2, name, "kill")
        trace.bytes_moved(3, "a", 1, data)
        return trace.digest

    variants = [(0, "a", b"x"), (1, "a", b"x"), (0, "b", b"x"), (0, "a", b"y")]
    assert len({digest(*variant) for variant in variants}) == 4


def test_one_more_draw_for_one_purpose_changes_nothing_for_another() -> None:
    loop = SimulationLoop(1)
    assert loop.rng("a").random() == loop.rng("a").random() != loop.rng("b").random()
    loop.close()


def test_the_tail_of_the_trace_tells_what_happened() -> None:
    loop = SimulationLoop(4)
    loop.call_exception_handler = lambda context: None  # type: ignore[method-assign]  # in the place of the real one
    run_on(loop, gossip)
    tail = loop.trace.tail(2000)
    assert all(word in tail for word in ("connect", "receive", "sync", "rename"))
    loop.close()


def ours(source: str) -> Callable[[], object]:
    """A function that looks as if it stood in a module of ottla's."""
    module = types.ModuleType("ottla.broker.some_module")
    exec(source, module.__dict__)
    function: Callable[[], object] = module.__dict__["function"]
    return function


@pytest.mark.parametrize(
    "call",
    [
        *("time.time()", "time.monotonic()", "time.sleep(1)", "random.random()", "uuid.uuid4()", "os.urandom(8)"),
        *("secrets.token_bytes(8)", "random.shuffle([1, 2])", "time.perf_counter()", "time.time_ns()"),
    ],
)
def test_our_code_may_not_read_the_real_world(call: str) -> None:
    function = ours(f"import os, random, secrets, time, uuid\ndef function(): return {call}")

    async def program(loop: SimulationLoop) -> None:
        with pytest.raises(ForbiddenError, match=call.split("(", maxsplit=1)[0]):
            function()

    simulate(program, 1)


def test_libraries_get_virtual_time_and_seeded_numbers() -> None:
    async def program(loop: SimulationLoop) -> tuple[float, float, float, str, bytes]:
        before = time.monotonic(), time.time()
        await asyncio.sleep(3600)
        passed_s = round(time.monotonic() - before[0], 3), round(time.time() - before[1], 3)
        return *passed_s, random.random(), str(uuid.uuid4()), os.urandom(4)

    first = simulate(program, 1)
    assert first[:2] == (3600.0, 3600.0)
    assert simulate(program, 1) == first
    assert simulate(program, 2)[2:] != first[2:]


def test_other_threads_and_the_time_after_the_run_are_real() -> None:
    seen: list[float] = []

    async def program(loop: SimulationLoop) -> None:
        thread = threading.Thread(target=lambda: seen.append(time.time()))
        thread.start()
        thread.join()

    real = time.time()
    simulate(program, 1)
    assert abs(seen[0] - real) < 60
    assert abs(time.time() - real) < 60
