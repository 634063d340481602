"""What passed through a listener since it began, for the metrics."""

from ottla.broker.network.times import RequestTimes


class ListenerCounters:
    """Plain integers. The bytes are added to once a read and once a write of a socket, some 40 ns each; the rest once a
    connection or an error."""

    __slots__ = ("accepted", "bytes_in", "bytes_out", "closed", "errors", "listener", "refused", "times")

    def __init__(self, listener: str = "PLAINTEXT", times: RequestTimes | None = None) -> None:
        self.listener = listener
        self.times = times or RequestTimes()  # of all listeners
        self.bytes_in = self.bytes_out = 0
        self.accepted = self.closed = self.refused = 0
        self.errors: dict[tuple[int, int], int] = {}  # by API key and error code

    def count_error(self, api_key: int, code: int, count: int = 1) -> None:
        self.errors[api_key, code] = self.errors.get((api_key, code), 0) + count
