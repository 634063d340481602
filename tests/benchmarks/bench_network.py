"""What the connection layer costs: ApiVersions, many in flight and one, from a raw socket in another process.

    .venv/bin/python tests/benchmarks/bench_network.py [--seconds 3]

The figure to trust is the server's own CPU per request; requests per second depend on who else uses the machine.
"""

import argparse
import asyncio
import multiprocessing
import resource
import socket
import struct
import sys
import time
from multiprocessing.connection import Connection as Pipe

from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route, RouteTable
from ottla.broker.network.server import NetworkServer
from ottla.broker.wire.apis import API_VERSIONS
from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.headers import encode_request_header
from ottla.broker.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.broker.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from ottla.runtime.disk import Buffer
from ottla.runtime.launch import run

VERSION = 3
PRODUCE, PRODUCE_VERSION = 0, 9


def serve(pipe: Pipe) -> None:
    """A server with two handlers: ApiVersions decoded and encoded, and a Produce that looks at nothing."""
    decode = decoder(ApiVersionsRequest, VERSION)
    answer = encoder(ApiVersionsResponse, VERSION)(
        ApiVersionsResponse(api_keys=[ApiVersion(key, 0, 9) for key in range(60)])
    )

    def api_versions(request: RequestContext, frame: memoryview, position: int) -> None:
        decode(frame, position)
        request.respond(answer)

    def produce(request: RequestContext, frame: memoryview, position: int) -> None:
        request.respond([b"\0" * 50])

    async def main() -> None:
        server = NetworkServer()
        routes = RouteTable([Route(API_VERSIONS, 0, 4, api_versions), Route(PRODUCE, 3, 13, produce)])
        port = await server.bind("PLAINTEXT", "127.0.0.1", 0, routes)
        await server.start()
        pipe.send(port)
        while True:
            await asyncio.sleep(0.01)
            if pipe.poll():
                if pipe.recv() == "stop":
                    return await server.stop()
                usage = resource.getrusage(resource.RUSAGE_SELF)
                pipe.send(usage.ru_utime + usage.ru_stime)

    run(main)


def read_exactly(connection: socket.socket, size: int) -> None:
    view = memoryview(bytearray(min(size, 1 << 20)))
    while size:
        size -= connection.recv_into(view[: min(size, len(view))])


def frame(key: int, version: int, body: Buffer) -> bytes:
    payload = encode_request_header(key, version, 1, "rdkafka") + body
    return struct.pack(">i", len(payload)) + payload


def measure(port: int, pipe: Pipe, request: bytes, in_flight: int, seconds: float) -> tuple[float, float]:
    """Requests per second, and the server's CPU in microseconds per request."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(request)
        response_bytes = 4 + struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
        read_exactly(connection, response_bytes - 4)
        pipe.send("cpu")
        cpu, start, count = pipe.recv(), time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            connection.sendall(request * in_flight)
            read_exactly(connection, response_bytes * in_flight)
            count += in_flight
        elapsed = time.perf_counter() - start
        pipe.send("cpu")
        return count / elapsed, (pipe.recv() - cpu) / count * 1e6


def measure_many(port: int, pipe: Pipe, request: bytes, count: int, seconds: float) -> tuple[float, float]:
    """As ``measure``, with one request in flight on each of ``count`` connections."""
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    pipe.send("cpu")
    cpu, start, done = pipe.recv(), time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        for connection in connections:
            connection.sendall(request)
        for connection in connections:
            connection.recv(4096)
        done += count
    elapsed = time.perf_counter() - start
    pipe.send("cpu")
    used = pipe.recv() - cpu
    for connection in connections:
        connection.close()
    return done / elapsed, used / done * 1e6


def open_many(port: int, count: int) -> float:
    """Seconds until ``count`` connections, opened one after another, have each been answered."""
    request = frame(API_VERSIONS, VERSION, encoder(ApiVersionsRequest, VERSION)(ApiVersionsRequest("a", "1"))[0])
    start = time.perf_counter()
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    for connection in connections:
        connection.sendall(request)
    for connection in connections:
        connection.recv(4096)
    elapsed = time.perf_counter() - start
    for connection in connections:
        connection.close()
    return elapsed


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=2.0)
    seconds = parser.parse_args().seconds
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    port = ours.recv()
    tiny = frame(
        API_VERSIONS, VERSION, encoder(ApiVersionsRequest, VERSION)(ApiVersionsRequest("rdkafka", "2.15.0"))[0]
    )
    cases = [
        ("ApiVersions, 50 in flight", tiny, 50),
        ("ApiVersions, 1 in flight", tiny, 1),
        ("Produce 100 B (not looked at), 50 in flight", frame(PRODUCE, PRODUCE_VERSION, b"\0" * 101), 50),
        ("Produce 16 KB (not looked at), 50 in flight", frame(PRODUCE, PRODUCE_VERSION, b"\0" * 16_401), 50),
        ("Produce 1 MB (not looked at), 5 in flight", frame(PRODUCE, PRODUCE_VERSION, b"\0" * 1_048_577), 5),
    ]
    for name, request, in_flight in cases:
        rate, cpu = measure(port, ours, request, in_flight, seconds)
        size = rate * len(request) / 1e6
        say(f"{name:46} {rate:10,.0f} requests/s {cpu:8.2f} us of server CPU each {size:8,.0f} MB/s")
    rate, cpu = measure_many(port, ours, tiny, 200, seconds)
    say(f"{'ApiVersions, 1 in flight on 200 connections':46} {rate:10,.0f} requests/s {cpu:8.2f} us of server CPU each")
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
    say(f"{'1,000 connections opened and answered':46} {open_many(port, 1000):10.3f} s")
    ours.send("stop")
    process.join()


if __name__ == "__main__":
    main()
