"""The metrics listener: what it answers, and that nobody can make it suffer."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from ottla.broker.metrics import http
from ottla.broker.metrics.http import CONNECTIONS_MAX, HEAD_BYTES_MAX, MetricsServer
from ottla.broker.metrics.scrape import Scraper
from ottla.runtime.metrics import Labels, Metric, Registry, Spread, at_once, counter, gauge, summary
from ottla.runtime.settings.endpoints import Endpoint


def registry() -> Registry:
    found = Registry()
    metrics: list[Metric[None]] = [
        gauge("kafka_full", "Whether it is full.", lambda _: {("/data", 'a"b\\c\n'): 1.5}, "logDirectory", "odd"),
        counter("kafka_things_total", "Things.", lambda _: 3),
    ]
    found.add(metrics, at_once(lambda: None))
    return found


def serve(scenario: Callable[[MetricsServer, int], Awaitable[None]], found: Registry | None = None) -> None:
    async def main() -> None:
        server = MetricsServer(Scraper(found or registry()))
        port = await server.bind(Endpoint("127.0.0.1", 0))
        try:
            await scenario(server, port)
        finally:
            await server.close()

    asyncio.run(asyncio.wait_for(main(), 120))


async def ask(port: int, request: bytes) -> tuple[bytes, bytes]:
    """Head and body of the answer, read to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


async def is_refused(port: int) -> bool:
    try:
        return (await ask(port, get("/metrics")))[0] == b""
    except ConnectionError:
        return True


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode()


def test_a_scrape_is_answered_in_prometheus_text() -> None:
    async def scenario(server: MetricsServer, port: int) -> None:
        head, body = await ask(port, get("/metrics"))
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Content-Type: text/plain; version=0.0.4" in head
        assert f"Content-Length: {len(body)}".encode() in head
        lines = body.decode().splitlines()
        assert "# HELP kafka_full Whether it is full." in lines
        assert "# TYPE kafka_full gauge" in lines
        assert r'kafka_full{logDirectory="/data",odd="a\"b\\c\n"} 1.5' in lines
        assert "# TYPE kafka_things_total counter" in lines
        assert "kafka_things_total 3.0" in lines
        assert any(line.startswith("process_resident_memory_bytes ") for line in lines)

    serve(scenario)


def timed() -> Registry:
    found = Registry()
    spreads: dict[Labels, float | Spread] = {("Fetch",): Spread(5, {"0.50": 1.5, "0.99": 7.0})}
    found.add([summary("kafka_totaltimems", "All of it.", lambda _: spreads, "request")], at_once(lambda: None))
    return found


def test_a_summary_is_written_as_the_jmx_exporter_does() -> None:
    async def scenario(server: MetricsServer, port: int) -> None:
        _, body = await ask(port, get("/metrics"))
        assert body.decode().startswith(
            "# HELP kafka_totaltimems All of it.\n"
            "# TYPE kafka_totaltimems summary\n"
            'kafka_totaltimems{quantile="0.50",request="Fetch"} 1.5\n'
            'kafka_totaltimems{quantile="0.99",request="Fetch"} 7.0\n'
            'kafka_totaltimems_count{request="Fetch"} 5.0\n'
        )

    serve(scenario, timed())


def test_programs_get_a_summarys_count_as_a_metric_of_its_own() -> None:
    async def scenario(server: MetricsServer, port: int) -> None:
        _, body = await ask(port, get("/metrics.json"))
        spread, count, *_ = json.loads(body)
        assert spread["samples"][1] == {"labels": {"request": "Fetch", "quantile": "0.99"}, "value": 7.0}
        assert (count["name"], count["kind"]) == ("kafka_totaltimems_count", "counter")
        assert count["samples"] == [{"labels": {"request": "Fetch"}, "value": 5}]

    serve(scenario, timed())


def test_programs_get_json() -> None:
    async def scenario(server: MetricsServer, port: int) -> None:
        head, body = await ask(port, get("/metrics.json"))
        assert b"Content-Type: application/json" in head
        families = {each["name"]: each for each in json.loads(body)}
        assert families["kafka_things_total"]["kind"] == "counter"
        assert families["kafka_full"]["samples"] == [
            {"labels": {"logDirectory": "/data", "odd": 'a"b\\c\n'}, "value": 1.5}
        ]

    serve(scenario)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (get("/metrics", "POST"), b"405"),
        (get("/"), b"404"),
        (get("/metrics?name=kafka_full"), b"200"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"\x16\x03\x01\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"y" * HEAD_BYTES_MAX + b"\r\n\r\n", b"431"),
    ],
)
def test_what_is_no_scrape_is_told_so(request_bytes: bytes, status: bytes) -> None:
    async def scenario(server: MetricsServer, port: int) -> None:
        head, _ = await ask(port, request_bytes)
        assert head.split(b" ")[1] == status

    serve(scenario)


def test_a_head_request_gets_no_body() -> None:
    async def scenario(server: MetricsServer, port: int) -> None:
        head, body = await ask(port, get("/metrics", "HEAD"))
        assert b" 200 " in head
        assert body == b""

    serve(scenario)


def test_connections_beyond_the_bound_are_closed_and_the_others_served() -> None:
    async def scenario(server: MetricsServer, port: int) -> None:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)]
        assert await is_refused(port)
        reader, writer = idle[0]
        writer.write(get("/metrics"))
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        for _, each in idle:
            each.close()

    serve(scenario)


def test_a_client_that_takes_too_long_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECTION_S_MAX", 0.01)

    async def scenario(server: MetricsServer, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HT")
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()

    serve(scenario)


def test_a_client_that_leaves_takes_nothing_from_the_next() -> None:
    async def scenario(server: MetricsServer, port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(get("/metrics"))
        await writer.drain()
        writer.transport.abort()
        head, _ = await ask(port, get("/metrics"))
        assert b" 200 " in head

    serve(scenario)


def test_one_reading_serves_all_who_ask_within_a_second() -> None:
    looks: list[None] = []

    async def scenario(server: MetricsServer, port: int) -> None:
        for page in ("/metrics", "/metrics", "/metrics.json"):
            await ask(port, get(page))
        assert len(looks) == 1
        server.scraper._stale_at = 0
        await ask(port, get("/metrics"))
        assert len(looks) == 2

    found = Registry()
    found.add([gauge("kafka_a", "A.", lambda _: 1)], at_once(lambda: looks.append(None)))
    serve(scenario, found)
