"""The metadata log of a running cluster, asked of a controller's own listener (`ReadLogRequest`).

Kafka's clients may not fetch ``__cluster_metadata``, and an observer's fetch would leave its name with the leader. So tools
have a request of their own, which no rule of the consensus sees. The batches read are those below the high watermark that
the first answer told: all committed.
"""

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

from crc32c import crc32c

from ottla.broker.wire.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from ottla.broker.wire.messages.describe_quorum_response import DescribeQuorumResponse
from ottla.cli.client import TIMEOUT_S, Client
from ottla.cli.failures import CommandError
from ottla.log.batch import check_crc, headers
from ottla.log.names import METADATA_PARTITION
from ottla.proto import quorum_pb2 as pb
from ottla.quorum.metadata.archive import ArchiveError, RawBatch, image_of_snapshot
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.rpc.transport import MESSAGE_BYTES_MAX
from ottla.runtime.errors import ErrorCode
from ottla.runtime.key_value import KeyValueStore
from ottla.runtime.settings.endpoints import parse_endpoint

READ_BYTES = 1 << 20
PROBE_S = 3.0
FOREIGN = (
    "what answers there speaks Kafka's protocol and is no controller of Ottla's. If it is Apache Kafka's, its metadata is read with "
    "kafka-metadata-shell.sh, or with ottla log dump from its files; if it is a broker's listener, give it with --bootstrap-server"
)


def controllers_of(bootstrap: str) -> list[str]:
    """host:port of each voter, the leader first, as a broker tells them. Raises CommandError."""
    asked = [TopicData(topic_name=METADATA_PARTITION.topic, partitions=[PartitionData(partition_index=0)])]
    with Client(bootstrap) as client:
        answer = client.call(DescribeQuorumRequest(topics=asked), DescribeQuorumResponse)
    partitions = [each for topic in answer.topics for each in topic.partitions]
    if answer.error_code or not partitions or not answer.nodes:
        reason = answer.error_message or "it names no controllers"
        raise CommandError(f"the broker cannot say who the controllers are: {reason}; try --bootstrap-controller")
    nodes = sorted(answer.nodes, key=lambda node: node.node_id != partitions[0].leader_id)
    return [f"{each.host}:{each.port}" for node in nodes for each in node.listeners[:1]]


class ControllerArchive:
    """`Archive` over one controller, the first that answers."""

    def __init__(self, controllers: list[str], open_store: Callable[[str], KeyValueStore]) -> None:
        """Raises CommandError when none answers."""
        self._reader, first = _first_that_answers(controllers)
        self.start = None
        self.first_offset, self.end_offset = first.log_start, first.high_watermark
        if first.HasField("snapshot"):
            snapshot = OffsetAndEpoch(first.snapshot.offset, first.snapshot.epoch)
            self.start = self._image(snapshot, open_store)
            self.first_offset = snapshot.offset
        elif first.log_start > 0:
            raise ArchiveError(f"the log begins at {first.log_start} and no snapshot has what lies before")

    def batches(self) -> Iterator[RawBatch]:
        offset = self.first_offset
        while offset < self.end_offset:
            answer = self._reader.call(pb.ReadLogRequest(offset=offset, max_bytes=READ_BYTES)).read_log
            before = offset
            for position, header in headers(answer.records):
                check_crc(answer.records, header, position)
                if self.first_offset <= header.base_offset < self.end_offset:
                    yield RawBatch(header, memoryview(answer.records)[position : position + header.size_bytes])
                offset = header.next_offset
            if offset == before:
                raise ArchiveError(f"the log was compacted to {answer.log_start} while it was read: try again")

    def _image(self, snapshot: OffsetAndEpoch, open_store: Callable[[str], KeyValueStore]) -> Any:
        with tempfile.TemporaryDirectory(prefix="ottla-") as directory:
            path = os.path.join(directory, "snapshot")
            self._download(snapshot, path)
            return image_of_snapshot(open_store(path), snapshot)

    def _download(self, snapshot: OffsetAndEpoch, path: str) -> None:
        place = pb.OffsetAndEpoch(offset=snapshot.offset, epoch=snapshot.epoch)
        position = checksum = 0
        with open(path, "wb") as file:
            while True:
                request = pb.ReadLogRequest(snapshot=place, position=position, max_bytes=READ_BYTES)
                piece = self._reader.call(request).fetch_snapshot
                file.write(piece.data)
                checksum = crc32c(piece.data, checksum)
                position += len(piece.data)
                if position >= piece.size:
                    break
                if not piece.data:
                    raise ArchiveError(f"the snapshot at {snapshot.offset} ends at {position} of {piece.size} bytes")
        if checksum != piece.checksum:
            raise ArchiveError(f"the snapshot at {snapshot.offset} arrived damaged: try again")


def _first_that_answers(controllers: list[str]) -> tuple["_Reader", pb.ReadLogResponse]:
    failures = []
    for controller in controllers:
        reader = _Reader(controller.strip())
        try:
            return reader, reader.call(pb.ReadLogRequest(offset=-1)).read_log
        except ArchiveError as error:
            failures.append(f"{controller.strip()}: {FOREIGN}" if _speaks_kafka(controller) else str(error))
    raise CommandError("; ".join(failures))


def _speaks_kafka(address: str) -> bool:
    """The controllers of an Ottla cluster speak gRPC on their own listener, and nothing else."""
    try:
        Client(address, PROBE_S).close()
    except CommandError:
        return False
    return True


class _Reader:
    """Questions to one controller, one after another."""

    def __init__(self, controller: str) -> None:
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # read when gRPC is first imported
        import grpc

        host, port = parse_endpoint(controller, "--bootstrap-controller")
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        options = [("grpc.max_receive_message_length", MESSAGE_BYTES_MAX), ("grpc.enable_http_proxy", 0)]
        self._name = controller
        self._exchange = grpc.insecure_channel(target, options=options).stream_stream(
            "/ottla.quorum.Quorum/Exchange",
            request_serializer=pb.QuorumRequest.SerializeToString,
            response_deserializer=pb.QuorumResponse.FromString,
        )

    def call(self, request: pb.ReadLogRequest) -> pb.QuorumResponse:
        """Raises ArchiveError."""
        import grpc

        answered = threading.Event()

        def requests() -> Iterator[pb.QuorumRequest]:
            yield pb.QuorumRequest(read_log=request)
            answered.wait()  # the end of the requests would end the conversation before its answer

        responses = self._exchange(requests(), timeout=TIMEOUT_S)
        try:
            response: pb.QuorumResponse = next(responses)
        except grpc.RpcError as error:
            raise ArchiveError(f"{self._name}: {_reason(error)}") from error
        except StopIteration:
            raise ArchiveError(f"{self._name} does not know the question: it is an older version") from None
        finally:
            answered.set()
            responses.cancel()
        if response.error_code:
            raise ArchiveError(f"{self._name}: {ErrorCode(response.error_code).name}: try again")
        return response


def _reason(error: Any) -> str:
    import grpc

    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return "no controller answers there: check the address, and that the node is up"
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"no answer within {TIMEOUT_S:.0f} s"
    return f"{error.code().name}: {error.details()}"
