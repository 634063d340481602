"""Requests as bytes, many of them on one connection, and a look at the node meanwhile."""

import multiprocessing
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from ottla.broker.wire.apis import BY_NAME
from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.headers import encode_request_header, read_response_header
from ottla.runtime.errors import ErrorCode
from ottla.testing.processes import ProcessCluster

GROWTH_MAX = 100 << 20
WAIT_MAX_S = 2.0
"""For another client's request, in time that the node's process works: how busy the machine is says nothing about it."""
FORKED = multiprocessing.get_context("fork")
"""Who asks beside a storm is a process of its own: as a thread it waited for the interpreter that decodes the storm's
answers, and all the node did meanwhile counted as its wait."""


class Connection:
    """One connection, on which many requests may wait for their answers."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("localhost", port), 60)
        self._answers = self._socket.makefile("rb")
        self._sent = 0

    def close(self) -> None:
        self._answers.close()
        self._socket.close()

    def ask(self, body: msgspec.Struct, version: int) -> Any:
        self._socket.sendall(frame(body, version))
        return self.answer(body, version)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def is_over(self) -> bool:
        """The node has ended it, and answered nothing."""
        try:
            return not self._answers.read(1)
        except ConnectionResetError:
            return True

    def answer(self, body: msgspec.Struct, version: int) -> Any:
        api = BY_NAME[type(body).__name__.removesuffix("Request")]
        (size,) = struct.unpack(">i", self._answers.read(4))
        data = memoryview(self._answers.read(size))
        _, position = read_response_header(data, 0, api.key, version)
        return decoder(f"{api.name}Response", version)(data, position)[0]


def frame(body: msgspec.Struct, version: int) -> bytes:
    key = BY_NAME[type(body).__name__.removesuffix("Request")].key
    data = encode_request_header(key, version, 1, "hostile") + b"".join(encoder(type(body), version)(body))
    return struct.pack(">i", len(data)) + data


@contextmanager
def nobody_disturbed(single: ProcessCluster, *asks: Callable[[Connection], ErrorCode]) -> Iterator[None]:
    """Somebody else asks these in turn all the while, once at least, and is answered, and the node grows by no more than it may.

    ``asks``: a request each, for each waits by itself.
    """
    stop, (told, answers) = FORKED.Event(), FORKED.Pipe(duplex=False)

    def beside() -> None:
        connection = Connection(single.node(1).port)
        waits, errors = list[float](), set[ErrorCode]()
        while not waits or not stop.wait(0.01):
            for ask in asks:
                began = worked_s(single)
                errors.add(ask(connection))
                waits.append(worked_s(single) - began)
        answers.send((max(waits), errors))

    asker = FORKED.Process(target=beside)
    before = resident(single)
    asker.start()
    answers.close()
    try:
        yield
    finally:
        stop.set()
        longest_s, errors = told.recv()
        asker.join()
    assert errors == {ErrorCode.NONE}, errors
    assert longest_s < WAIT_MAX_S, f"{longest_s:.2f} s of the node's work for one request"
    assert resident(single) - before < GROWTH_MAX


def worked_s(single: ProcessCluster) -> float:
    with open(f"/proc/{single.node(1).pid()}/stat", encoding="ascii") as stat:
        user, system = stat.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def resident(single: ProcessCluster) -> int:
    with open(f"/proc/{single.node(1).pid()}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS"))
