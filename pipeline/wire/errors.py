"""What a cluster, or the way to it, does to us.

Each is one line that names whom it is about, and what to do where that is known. They are made of their facts alone, so
that they come back from an executor's process as they were.
"""

from ottla.runtime.errors import ErrorCode


class ClientError(Exception):
    """Anything that goes wrong between us and a cluster."""


class SettingError(ClientError, ValueError):
    """A setting that cannot be what it is."""


class BrokerError(ClientError):
    """One broker did not do its part; another, or the same one later, may."""

    def __init__(self, broker: str, api: str, reason: str) -> None:
        super().__init__(broker, api, reason)
        self.broker, self.api, self.reason = broker, api, reason

    def __str__(self) -> str:
        return f"broker {self.broker}: {self.api}: {self.reason}"


class BrokerUnreachableError(BrokerError):
    """No connection to it could be made."""


class ConnectionLostError(BrokerError):
    """The connection ended. Whether the request was carried out, nobody knows."""


class RequestTimedOutError(BrokerError):
    """No answer in time. Whether the request was carried out, nobody knows."""


class UnsupportedApiError(ClientError):
    """The broker has no version of an API that we can use."""

    def __init__(self, broker: str, api: str, wanted: str, offered: str) -> None:
        super().__init__(broker, api, wanted, offered)
        self.broker, self.api, self.wanted, self.offered = broker, api, wanted, offered

    def __str__(self) -> str:
        return f"broker {self.broker} offers {self.api} {self.offered}; {self.wanted} is needed"


class DeadlineError(ClientError):
    """Tried until the time was up."""

    def __init__(self, what: str, seconds: float, last: str) -> None:
        super().__init__(what, seconds, last)
        self.what, self.seconds, self.last = what, seconds, last

    def __str__(self) -> str:
        return f"{self.what} did not succeed in {self.seconds:g} s; last: {self.last}"


class UnknownTopicError(ClientError):
    """There is no topic of that name, or it may not be seen."""

    def __init__(self, topic: str, code: int = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) -> None:
        super().__init__(topic, int(code))
        self.topic, self.code = topic, ErrorCode(code)

    def __str__(self) -> str:
        return f"topic {self.topic}: {self.code.name}"


class PartitionError(ClientError):
    """A broker refused something about one partition, for good."""

    def __init__(
        self, topic: str, partition: int, code: int, offset: int | None = None, broker: str = "", said: str = ""
    ) -> None:
        super().__init__(topic, partition, int(code), offset, broker, said)
        self.topic, self.partition, self.code = topic, partition, ErrorCode(code)
        self.offset, self.broker, self.said = offset, broker, said

    def __str__(self) -> str:
        at = "" if self.offset is None else f" at offset {self.offset}"
        by = f"broker {self.broker}: " if self.broker else ""
        return f"{by}{self.topic}-{self.partition}{at}: {self.code.name}{f' ({self.said})' if self.said else ''}"


class CoordinatorError(ClientError):
    """A coordinator refused something about a group or a transactional id."""

    def __init__(self, kind: str, key: str, code: int, said: str = "") -> None:
        super().__init__(kind, key, int(code), said)
        self.kind, self.key, self.code, self.said = kind, key, ErrorCode(code), said

    def __str__(self) -> str:
        return f"{self.kind} {self.key}: {self.code.name}{f' ({self.said})' if self.said else ''}"


class DataLossError(PartitionError):
    """Records that were to be read are not there any more."""

    def __init__(self, topic: str, partition: int, offset: int, begins: int, ends: int, broker: str = "") -> None:
        said = f"the log has {begins} up to {ends} now"
        super().__init__(topic, partition, ErrorCode.OFFSET_OUT_OF_RANGE, offset, broker, said)
        self.args = (topic, partition, offset, begins, ends, broker)
        self.begins, self.ends = begins, ends


class TopicChangedError(ClientError):
    """The topic was deleted, and perhaps another made under its name."""

    def __init__(self, topic: str, partition: int, planned: str, now: str) -> None:
        super().__init__(topic, partition, planned, now)
        self.topic, self.partition, self.planned, self.now = topic, partition, planned, now

    def __str__(self) -> str:
        is_now = f"is another topic now (id {self.now})" if self.now else "was deleted"
        return f"topic {self.topic} {is_now}; what was to be read of partition {self.partition} was in the one with id {self.planned}"
