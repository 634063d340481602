import asyncio
import socket

from ottla.quorum.controller.knocking import Knocker
from ottla.runtime.settings.endpoints import Endpoint


def test_only_a_refused_connection_is_told() -> None:
    async def run() -> list[str]:
        told: list[str] = []
        knock = Knocker()
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))  # taken, and nobody listens
            knock("127.0.0.1", server.sockets[0].getsockname()[1], lambda: told.append("somebody is there"))
            knock("no name.invalid", 1, lambda: told.append("no such name"))
            knock("127.0.0.1", nobody.getsockname()[1], lambda: told.append("refused"))
            await knock.wait()
        server.close()
        await server.wait_closed()
        return told

    assert asyncio.run(run()) == ["refused"]


def test_a_knock_takes_the_detour() -> None:
    async def run() -> list[str]:
        told: list[str] = []
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            wanted, proxy = server.sockets[0].getsockname()[:2], nobody.getsockname()
            knock = Knocker({Endpoint(*wanted): Endpoint(*proxy)})
            knock(wanted[0], wanted[1], lambda: told.append("refused by the proxy"))
            await knock.wait()
        server.close()
        await server.wait_closed()
        return told

    assert asyncio.run(run()) == ["refused by the proxy"]


def test_closing_forgets_who_was_knocked_at() -> None:
    async def run() -> list[str]:
        told: list[str] = []
        knock = Knocker()
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            knock("127.0.0.1", nobody.getsockname()[1], lambda: told.append("refused"))
            await knock.close()
        return told

    assert asyncio.run(run()) == []
