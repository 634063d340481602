"""Ports nobody listens on, of which no two test processes are given the same."""

import os
import socket

FIRST_PORT = 20_000
LAST_PORT = (
    30_000  # with the offsets of a node's other ports below the range that the kernel hands out to clients (32768..)
)
_BLOCKS_APART = 10

_claims: dict[int, socket.socket] = {}
"""A socket for datagrams on the same number says that a port is taken, though nobody listens there yet: until the process ends."""


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that are free now, all different."""
    return [free_port_block(1) for _ in range(count)]


def free_port_block(count: int, offsets: tuple[int, ...] = (0,)) -> int:
    """A port P such that P..P+count-1 are free now, and the same ports each offset further on."""
    start = os.getpid() * 7 % (LAST_PORT - FIRST_PORT)
    for at in range(0, LAST_PORT - FIRST_PORT, _BLOCKS_APART):
        base = FIRST_PORT + (start + at) % (LAST_PORT - FIRST_PORT)
        if _claim([base + number + offset for number in range(count) for offset in offsets]):
            return base
    raise OSError("no free block of ports on this machine")


def _claim(ports: list[int]) -> bool:
    """All of them or none."""
    claimed: dict[int, socket.socket] = {}
    for port in ports:
        claim = None if port in _claims else _claim_one(port)
        if claim is None:
            for each in claimed.values():
                each.close()
            return False
        claimed[port] = claim
    _claims.update(claimed)
    return True


def _claim_one(port: int) -> socket.socket | None:
    claim = socket.socket(type=socket.SOCK_DGRAM)
    try:
        claim.bind(("127.0.0.1", port))
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("localhost", port))
    except OSError:
        claim.close()
        return None
    return claim
