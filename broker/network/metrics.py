"""The metrics of the client listeners (docs/metrics.md)."""

from collections.abc import Callable, Generator, Mapping
from operator import itemgetter

from ottla.broker.network.server import NetworkServer
from ottla.broker.network.times import CONSUMER, FETCH, FOLLOWER, Phases
from ottla.broker.wire.apis import APIS
from ottla.runtime.errors import ErrorCode
from ottla.runtime.metrics import Labels, Metric, Spread, counter, gauge, summary


def _per_listener(attribute: str) -> Callable[[NetworkServer], dict[Labels, float]]:
    def read(server: NetworkServer) -> dict[Labels, float]:
        found: dict[Labels, float] = {}
        for each in server.counters:
            found[each.listener,] = found.get((each.listener,), 0) + getattr(each, attribute)
        return found

    return read


def _connections(server: NetworkServer) -> dict[Labels, float]:
    accepted, closed = _per_listener("accepted")(server), _per_listener("closed")(server)
    return {labels: count - closed[labels] for labels, count in accepted.items()}


def _requests(server: NetworkServer) -> dict[Labels, float]:
    """Of all versions that were asked for at least once."""
    counts: dict[Labels, float] = {}
    for table in server.tables:
        for (key, version), count in table.requests().items():
            labels = (APIS[key].name, str(version))
            counts[labels] = counts.get(labels, 0) + count
    return counts


def _errors(server: NetworkServer) -> dict[Labels, float]:
    counts: dict[Labels, float] = {}
    for each in server.counters:
        for (key, code), count in each.errors.items():
            labels = (APIS[key].name, ErrorCode(code).name)
            counts[labels] = counts.get(labels, 0) + count
    return counts


def _counts(server: NetworkServer) -> dict[str, float]:
    """Requests of each name; Kafka has fetches also by who fetches."""
    counts: dict[str, float] = {}
    for (name, _), count in _requests(server).items():
        counts[name] = counts.get(name, 0) + count
    if FETCH in counts:
        counts[FOLLOWER] = server.times.follower_fetches
        counts[CONSUMER] = counts[FETCH] - counts[FOLLOWER]
    return counts


Spreads = dict[str, dict[Labels, Spread]]
"""By phase and request."""


def look_at_times(server: NetworkServer) -> Generator[None, None, Spreads]:
    """A phase of a name in each slice: some 0.2 ms."""
    found: Spreads = {phase: {} for phase in Phases._fields}
    for name, number in _counts(server).items():
        for phase, spreads in found.items():
            spreads[name,] = server.times.spread(name, phase, number)
            yield
    return found


def _phase(name: str, phase: str, words: str) -> Metric[Spreads]:
    read: Callable[[Spreads], Mapping[Labels, Spread]] = itemgetter(phase)
    return summary(f"kafka_network_requestmetrics_{name}", f"{words}, in milliseconds.", read, "request")


TIME_METRICS: tuple[Metric[Spreads], ...] = (
    _phase("requestqueuetimems", "queue", "From the loop's turn in which a request was read to its handler"),
    _phase("localtimems", "local", "In its handler"),
    _phase("remotetimems", "remote", "Parked, from its handler's end to its answer"),
    _phase("responsequeuetimems", "response_queue", "Behind earlier requests' answers, and until the turn's writes"),
    _phase("responsesendtimems", "send", "Until the socket, or its buffer, took the answer"),
    _phase("totaltimems", "total", "A request, from its last byte to its answer's"),
)
METRICS: tuple[Metric[NetworkServer], ...] = (
    gauge(
        "kafka_network_socketserver_memorypoolused",
        "Bytes of requests that came in part or wait, and of answers that are not taken; queued.max.request.bytes bounds it.",
        lambda server: server.budget.used,
    ),
    gauge("kafka_server_socket_server_metrics_connection_count", "Open connections.", _connections, "listener"),
    counter(
        "kafka_server_socket_server_metrics_connection_creation_total",
        "Connections that were opened.",
        _per_listener("accepted"),
        "listener",
    ),
    counter(
        "kafka_server_socket_server_metrics_connection_close_total",
        "Connections that were closed.",
        _per_listener("closed"),
        "listener",
    ),
    counter(
        "ottla_network_connections_refused_total",
        "Connections over max.connections, max.connections.per.ip or clients' share of descriptors.",
        _per_listener("refused"),
        "listener",
    ),
    counter(
        "kafka_server_socket_server_metrics_incoming_byte_total",
        "Bytes received.",
        _per_listener("bytes_in"),
        "listener",
    ),
    counter(
        "kafka_server_socket_server_metrics_outgoing_byte_total",
        "Bytes given to the sockets.",
        _per_listener("bytes_out"),
        "listener",
    ),
    counter(
        "kafka_network_requestmetrics_requests_total", "Requests, by API and version.", _requests, "request", "version"
    ),
    counter(
        "kafka_network_requestmetrics_errors_total",
        "Error codes given to clients, by API; Kafka counts NONE too. Metadata's are not counted.",
        _errors,
        "request",
        "error",
    ),
)
