import asyncio
import socket

from ottla.quorum.controller.knocking import Knocker


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
