"""The bounds of what clients may take of us."""

import msgspec

from ottla.broker.wire.apis import APIS, BY_NAME, PRODUCE
from ottla.runtime.descriptors import MANY, Descriptors
from ottla.runtime.settings.definitions import address_counts
from ottla.runtime.settings.server import ServerConfig

UNLIMITED = 2**31 - 1
PLAIN_BYTES = "ottla.plain.request.max.bytes"
SHARES = {PRODUCE: 0, BY_NAME["Fetch"].key: 8, BY_NAME["JoinGroup"].key: 8, BY_NAME["SyncGroup"].key: 8}
"""Requests that may be larger than plain ones, how many times; 0: as large as any. A follower names all partitions of a leader at once, and what
members tell each other is bytes that nobody looks into here."""
FRAME_BYTES_MIN = 10
"""API key, version, correlation id, length of the client id."""
_TLS = b"\x16\x03"
_HTTP = (b"GET ", b"POST", b"HEAD", b"PUT ")
OVERRIDES = "max.connections.per.ip.overrides"


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one connection; sizes in bytes."""

    request_bytes_max: int = 104_857_600
    """``socket.request.max.bytes``: a frame that says it is larger closes the connection."""
    plain_bytes_max: int = 2 << 20
    """``ottla.plain.request.max.bytes``: the same for requests that carry lists and no records: 2 MiB of the smallest entries take a second of
    CPU, of which others wait for some 60 ms (`beside.py`).
    """
    in_flight_max: int = 500
    """Requests without an answer; at the bound the socket is not read until half of them are answered.

    ``queued.max.requests``, which Kafka counts over all connections because it takes one request a time from each.
    """
    ahead_bytes_max: int = 8 << 20
    """Bytes of produce requests without an answer: what a client may write ahead of the slowest replica in sync. Kafka takes the
    next request when the one before is answered; without a bound a client's whole queue lies between leader and followers, who are
    then behind for longer than ``replica.lag.time.max.ms`` for its load alone.
    """
    unsent_bytes_max: int = 4 << 20
    """Answers that wait for an earlier request's or for this call's end, and batches kept until they are written."""
    write_buffer_bytes: int = 16 << 10
    """Bytes the client has not taken from us yet, beside what the kernel keeps for it. Above it they count against the node's budget, the socket is not
    read, and no request that came is looked at."""

    def of(self, api_key: int) -> int:
        """Of a request of that API."""
        share = SHARES.get(api_key, 1)
        return min(self.request_bytes_max, self.plain_bytes_max * share) if share else self.request_bytes_max

    def refusal(self, size: int, start: bytes) -> str | None:
        """Why a request of that size, of which so much came, is not taken."""
        if start[:2] == _TLS:
            return "it speaks TLS, and this listener does not"
        if start[:4] in _HTTP:
            return "it speaks HTTP, not Kafka's protocol"
        if size < FRAME_BYTES_MIN:
            return f"a request of {size} bytes cannot be"
        if size > self.request_bytes_max:
            return f"a request of {size} bytes is over socket.request.max.bytes={self.request_bytes_max}"
        api_key = int.from_bytes(start[4:6], signed=True)
        if len(start) < 6 or size <= self.of(api_key):
            return None
        name = APIS[api_key].name if api_key in APIS else f"API key {api_key}"
        words = f"a request of {size} bytes is too large for {name}, which takes {self.of(api_key)}: ask for less at a time, or raise {PLAIN_BYTES}"
        return words


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of all listeners together."""

    connections_max: int = UNLIMITED
    """``max.connections``: one more is closed at once."""
    protected_listener: str = ""
    """The listener between brokers, where it is one of several: neither ``max.connections`` nor a crowd of clients must end replication there."""
    descriptors_max: int = MANY.clients
    """Clients' share of the process's descriptors, for logs and peers need theirs; one more takes the place of one that was silent
    for a while, or is closed at once."""
    peer_descriptors_max: int = MANY.peers // 2
    """What brokers may have beside that by the listener between them: half of the nodes' share, the rest is for connections to them."""
    connections_per_ip_max: int = UNLIMITED
    """``max.connections.per.ip``."""
    connections_per_ip_overrides: dict[str, int] = {}
    """``max.connections.per.ip.overrides``, by address; by a host's name until it is looked up (`host_names.py`)."""
    memory_bytes_max: int = 512 << 20
    """``queued.max.request.bytes``: what requests that came in part or wait, and answers that nobody took, may hold together; -1 for
    no bound, which is Kafka's default. See `budget.py`."""
    idle_ms_max: int = 600_000
    """``connections.max.idle.ms``; -1 never closes an idle connection. Kept to within a quarter of it."""
    backlog: int = 4096
    """``socket.listen.backlog.size``: connections the kernel holds until we accept them.

    With Kafka's 50, of a thousand clients that come together most would try again after a second.
    """
    connection: ConnectionLimits = ConnectionLimits()

    def descriptors_of(self, listener: str) -> int:
        """How many connections there may be in all when one more comes by that listener."""
        return self.descriptors_max + (self.peer_descriptors_max if listener == self.protected_listener else 0)

    @classmethod
    def from_config(cls, config: ServerConfig, descriptors: Descriptors = MANY) -> "ServerLimits":
        """The bounds as ``server.properties`` and the machine set them. Raises SettingError."""
        memory_bytes_max = config.integer("queued.max.request.bytes")
        return cls(
            descriptors_max=descriptors.clients,
            peer_descriptors_max=descriptors.peers // 2,
            connections_max=config.integer("max.connections"),
            protected_listener=config.inter_broker_listener.name if len(config.client_listeners) > 1 else "",
            connections_per_ip_max=config.integer("max.connections.per.ip"),
            connections_per_ip_overrides=address_counts(OVERRIDES, config.string(OVERRIDES)),
            memory_bytes_max=memory_bytes_max if memory_bytes_max > 0 else -1,  # Kafka has no pool at 0, either
            idle_ms_max=config.integer("connections.max.idle.ms"),
            backlog=config.integer("socket.listen.backlog.size"),
            connection=ConnectionLimits(
                plain_bytes_max=config.integer(PLAIN_BYTES),
                request_bytes_max=config.integer("socket.request.max.bytes"),
                in_flight_max=config.integer("queued.max.requests"),
            ),
        )
