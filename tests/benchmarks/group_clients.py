"""Members of groups as plain sockets: one thread drives thousands of them, on any Kafka-wire broker."""

import selectors
import struct
import time
from collections.abc import Callable, Iterable

from tests.peers.load.groups import HEARTBEAT, JOIN_GROUP, NO_METADATA, SYNC_GROUP, Caller, data, frame, text

REBALANCE_IN_PROGRESS = 27
NOT_YET = (14, 15, 16)
"""The coordinator loads, or does not know yet that it is the one."""
SESSION_MS, REBALANCE_MS = 45_000, 300_000


class Member:
    """Joins, asks for its assignment, and then says every ``beat_s`` that it is there; joins again when it is told to."""

    def __init__(self, address: tuple[str, int], group: str, beat_s: float, metadata: bytes = NO_METADATA) -> None:
        self.caller = Caller(*address)
        self._group = text(group)
        self._beat_s = beat_s
        self._metadata = metadata
        self.member_id = ""
        self.generation = -1
        self.is_synced = False
        self.beats = 0
        self.next_beat_s = float("inf")
        self._then: Callable[[bytes], None] = self._joined

    def join(self) -> None:
        self.is_synced, self.next_beat_s = False, float("inf")
        protocols = struct.pack(">i", 1) + text("range") + data(self._metadata)
        timeouts = struct.pack(">ii", SESSION_MS, REBALANCE_MS)
        body = self._group + timeouts + text(self.member_id) + text("consumer") + protocols
        self._send(frame(JOIN_GROUP, 2, body), self._joined)

    def _joined(self, answer: bytes) -> None:
        _, error, self.generation = struct.unpack_from(">ihi", answer)
        if error in NOT_YET:
            time.sleep(0.05)
            self.join()
            return
        if error:
            raise SystemExit(f"JoinGroup: error {error}")
        _, at = _text(answer, 10)  # protocol
        leader, at = _text(answer, at)
        self.member_id, at = _text(answer, at)
        members = list(_members(answer, at)) if leader == self.member_id else []
        assignments = b"".join(text(each) + data(NO_METADATA) for each in members)
        self._send(frame(SYNC_GROUP, 1, self._me() + struct.pack(">i", len(members)) + assignments), self._synced)

    def _synced(self, answer: bytes) -> None:
        self._go_on(struct.unpack_from(">ih", answer)[1], "SyncGroup")

    def beat(self) -> None:
        self.next_beat_s = float("inf")
        self._send(frame(HEARTBEAT, 1, self._me()), self._has_beaten)

    def _has_beaten(self, answer: bytes) -> None:
        self.beats += 1
        self._go_on(struct.unpack_from(">ih", answer)[1], "Heartbeat")

    def _go_on(self, error: int, asked: str) -> None:
        if error == REBALANCE_IN_PROGRESS:
            self.join()
        elif error:
            raise SystemExit(f"{asked}: error {error}")
        else:
            self.is_synced = True
            self.next_beat_s = time.monotonic() + self._beat_s

    def _me(self) -> bytes:
        return self._group + struct.pack(">i", self.generation) + text(self.member_id)

    def _send(self, request: bytes, then: Callable[[bytes], None]) -> None:
        self._then = then
        self.caller.send(request)

    def hear(self) -> None:
        """There is an answer."""
        self._then(self.caller.receive())


def drive(members: Iterable[Member], ended: Callable[[], bool]) -> None:
    """Answers come and heartbeats go until ``ended`` says so."""
    everyone = list(members)
    with selectors.EpollSelector() as selector:
        for member in everyone:
            selector.register(member.caller.socket, selectors.EVENT_READ, member)
        while not ended():
            for key, _ in selector.select(0.005):
                key.data.hear()
            now_s = time.monotonic()
            for member in everyone:
                if member.next_beat_s <= now_s:
                    member.beat()


def _text(answer: bytes, at: int) -> tuple[str, int]:
    size = struct.unpack_from(">h", answer, at)[0]
    return answer[at + 2 : at + 2 + size].decode(), at + 2 + size


def _members(answer: bytes, at: int) -> Iterable[str]:
    """Of the leader's answer."""
    count = struct.unpack_from(">i", answer, at)[0]
    at += 4
    for _ in range(count):
        member_id, at = _text(answer, at)
        at += 4 + struct.unpack_from(">i", answer, at)[0]
        yield member_id
