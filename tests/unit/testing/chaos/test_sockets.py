"""The kernel's counts of what passes through a port."""

import socket

from ottla.testing.chaos.sockets import Traffic
from ottla.testing.processes import wait_for


def test_bytes_are_counted_in_each_direction_and_ended_connections_are_seen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        before = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        before.sendall(b"x" * 1000)
        assert accepted.recv(2000, socket.MSG_WAITALL | socket.MSG_DONTWAIT)
        traffic = Traffic([port])
        before.sendall(b"y" * 70)
        accepted.sendall(b"z" * 7)

        def counted() -> bool:
            traffic.look()
            return (traffic.received, traffic.sent, traffic.opened, traffic.ended) == (70, 7, 1, 0)

        wait_for(counted, "the bytes since it was made to be counted")
        before.close()
        accepted.close()
        traffic.look()
        assert (traffic.ended, traffic.received) == (1, 70)


def test_other_ports_are_not_looked_at() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            assert Traffic([port + 1]).opened == 0
            assert Traffic([port]).opened == 1
