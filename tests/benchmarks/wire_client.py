"""A client of Kafka's protocol on a blocking socket, so that nothing but the broker is measured."""

import socket
import struct
import time
from typing import Any, Self

import msgspec

from ottla.broker.wire.apis import BY_NAME
from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.headers import encode_request_header, read_response_header
from ottla.broker.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.broker.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.broker.wire.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from ottla.broker.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.quorum.metadata.views import TOPIC_RESOURCE

_SIZE = struct.Struct(">i")


class RequestFailed(Exception):
    """The broker answered with an error."""


class WireClient:
    """One connection, one request in flight. OSError when it breaks or is silent for ``timeout_s``."""

    def __init__(self, address: tuple[str, int], timeout_s: float = 60) -> None:
        self._socket = socket.create_connection(address, timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._socket.close()

    def ask(self, api: str, version: int, body: msgspec.Struct) -> Any:
        """The decoded response."""
        self._correlation_id += 1
        key = BY_NAME[api].key
        header = encode_request_header(key, version, self._correlation_id, "benchmark")
        data = header + b"".join(encoder(type(body), version)(body))
        self._socket.sendall(_SIZE.pack(len(data)) + data)
        (size,) = _SIZE.unpack(self._read(4))
        answer = memoryview(self._read(size))
        _, position = read_response_header(answer, 0, key, version)
        return decoder(f"{api}Response", version)(answer, position)[0]

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return data

    def versions(self) -> None:
        """The smallest of requests."""
        self.ask("ApiVersions", 0, ApiVersionsRequest())

    def alter_topic(self, topic: str, name: str, value: str) -> None:
        """Returns when the change is committed."""
        change = AlterConfigsResource(TOPIC_RESOURCE, topic, [AlterableConfig(name, 0, value)])
        answer = self.ask("IncrementalAlterConfigs", 1, IncrementalAlterConfigsRequest(resources=[change]))
        _check(answer.responses[0])

    def create_topic(self, topic: str, partitions: int = 1, replicas: int = 1) -> None:
        """Returns when the topic is committed."""
        wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=replicas)
        answer = self.ask("CreateTopics", 5, CreateTopicsRequest(topics=[wanted], timeout_ms=60_000))
        _check(answer.topics[0])

    def quorum(self) -> Any:
        """DescribeQuorum's only partition. RequestFailed while nobody leads."""
        asked = TopicData("__cluster_metadata", [PartitionData(0)])
        partition = self.ask("DescribeQuorum", 1, DescribeQuorumRequest(topics=[asked])).topics[0].partitions[0]
        _check(partition)
        return partition


def _check(answer: Any) -> None:
    if answer.error_code:
        raise RequestFailed(f"error {answer.error_code}: {getattr(answer, 'error_message', '')}")


def wait_for_quorum(address: tuple[str, int], voters: int, timeout_s: float = 120) -> int:
    """Waits until every voter holds the whole metadata log, and returns the leader."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            with WireClient(address, 10) as client:
                quorum = client.quorum()
                behind = [each for each in quorum.current_voters if each.log_end_offset < quorum.high_watermark]
                if len(quorum.current_voters) == voters and not behind:
                    return int(quorum.leader_id)
        except (RequestFailed, OSError):
            pass
        time.sleep(0.05)
    raise SystemExit(f"the quorum was not whole after {timeout_s:.0f} s")
