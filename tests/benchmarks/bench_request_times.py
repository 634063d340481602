"""What it costs to watch the loop and to time requests: one connection without a socket, on a real loop, in one process.

    .venv/bin/python tests/benchmarks/bench_request_times.py [--rounds 15]

Off and on take turns; the median of the rounds' differences is the cost, for a turn of one request and of fifty.
"""

import argparse
import asyncio
import statistics
import struct
import sys
import time

import uvloop

from ottla.broker.network.connection import Connection
from ottla.broker.network.limits import ConnectionLimits
from ottla.broker.network.receive import ReceivePool
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route, RouteTable
from ottla.broker.network.times import RequestTimes
from ottla.broker.network.turn import Turn
from ottla.broker.wire.headers import encode_request_header
from ottla.runtime.loop_watch import LoopWatch

METADATA, VERSION = 3, 4
REQUESTS = 40_000


class Nowhere(asyncio.Transport):
    """Takes everything."""

    def write(self, data: object) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def answer(request: RequestContext, frame: memoryview, position: int) -> None:
    request.respond([b"there"])


def connect(watch: LoopWatch) -> Connection:
    routes = RouteTable([Route(METADATA, VERSION, VERSION, answer)])
    if watch.is_on:
        routes.time(RequestTimes())
    connection = Connection(routes, ReceivePool(), ConnectionLimits(), turn=Turn(loop_watch=watch))
    connection.connection_made(Nowhere())
    return connection


async def cpu_us(connection: Connection, data: bytes, of_turn: int) -> float:
    """Microseconds of CPU a request."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    left = REQUESTS // of_turn

    def turn() -> None:
        nonlocal left
        connection.get_buffer(-1)[: len(data)] = data
        connection.buffer_updated(len(data))
        left -= 1
        if left:
            loop.call_soon(turn)
        else:
            loop.call_soon(done.set)

    began = time.process_time()
    loop.call_soon(turn)
    await done.wait()
    return (time.process_time() - began) / REQUESTS * 1e6


async def main(rounds: int) -> None:
    off, on = LoopWatch(), LoopWatch()
    on.start()
    payload = encode_request_header(METADATA, VERSION, 1, "rdkafka")
    for of_turn in (1, 50):
        data = (struct.pack(">i", len(payload)) + payload) * of_turn
        plain, timed = connect(off), connect(on)
        pairs = [(await cpu_us(plain, data, of_turn), await cpu_us(timed, data, of_turn)) for _ in range(rounds)]
        without, with_times = (statistics.median(each) for each in zip(*pairs, strict=True))
        cost = statistics.median(after - before for before, after in pairs)
        sys.stdout.write(
            f"{of_turn:2} requests a turn: {without:.2f} us a request, watched and timed {with_times:.2f}, cost {cost:.2f}\n"
        )
    on.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    uvloop.run(main(parser.parse_args().rounds))
