"""The control records of the metadata log, in Kafka's bytes (kraft.md 1.9; LeaderChangeMessage, VotersRecord): so that
Kafka's own dump tool can read them.

All are flexible messages of version 0: compact arrays and strings (length + 1 as an unsigned varint), tagged fields.
"""

from collections.abc import Sequence
from struct import Struct

from ottla.log.records import ControlType, Record, control_key, encode_batch
from ottla.quorum.raft.instructions import AppendControl, KRaftVersion, LeaderChange, Voters
from ottla.quorum.raft.voters import KRAFT_VERSION, VOTERS_IN_LOG, Endpoint, ReplicaKey, Voter, VoterSet
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.identifiers import ZERO_ID

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_KRAFT_VERSION = Struct(">hh")  # of the message, the level
_UINT16 = Struct(">H")
LISTENER = "CONTROLLER"
MARK_HEADER = "epoch-mark"
_NO_TAGS = b"\x00"


class UnreadableLevelError(KafkaError):
    """The log goes on in a way that only newer software reads: this node must not go on."""


def control_batch(instruction: AppendControl, now_ms: int) -> bytearray:
    """The batch for an AppendControl instruction; ``now_ms`` since 1970."""
    mark = ((MARK_HEADER, _INT64.pack(instruction.mark)),) if instruction.mark else ()
    records = [
        Record(instruction.offset + index, now_ms, *_encode(record), () if index else mark)
        for index, record in enumerate(instruction.records)
    ]
    return encode_batch(records, base_offset=instruction.offset, leader_epoch=instruction.epoch, control=True)


def mark_of(record: Record) -> int:
    """The mark of the epoch that begins with this control record, as its leader gave it; 0 where it gave none. Raises
    KafkaError (CORRUPT_MESSAGE)."""
    value = next((value for key, value in record.headers if key == MARK_HEADER), None)
    if value is None:
        return 0
    if len(value) != _INT64.size:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the mark of an epoch cannot be read")
    mark: int = _INT64.unpack(value)[0]
    return mark


def _encode(record: LeaderChange | KRaftVersion | Voters) -> tuple[bytes, bytes]:
    if isinstance(record, LeaderChange):
        return control_key(ControlType.LEADER_CHANGE), _leader_change(record)
    if isinstance(record, KRaftVersion):
        return control_key(ControlType.KRAFT_VERSION), _KRAFT_VERSION.pack(0, record.level) + _NO_TAGS
    return control_key(ControlType.KRAFT_VOTERS), encode_voters(record.voters)


def _leader_change(record: LeaderChange) -> bytes:
    """Version 0, as Kafka writes it and its tools expect: directory ids stand in the voters record only."""
    head = _INT16.pack(0) + _INT32.pack(record.leader_id)
    return head + _voter_ids([key.id for key in record.voters]) + _voter_ids(record.granting) + _NO_TAGS


def _voter_ids(ids: Sequence[int]) -> bytes:
    return _unsigned_varint(len(ids) + 1) + b"".join(_INT32.pack(node_id) + _NO_TAGS for node_id in ids)


def encode_voters(voters: VoterSet) -> bytes:
    """A VotersRecord's value."""
    parts = [_INT16.pack(0), _unsigned_varint(len(voters) + 1)]
    for voter in voters.voters:
        parts += [_INT32.pack(voter.key.id), voter.key.directory_id or ZERO_ID, _unsigned_varint(2)]
        parts += [_string(LISTENER), _string(voter.endpoint.host), _UINT16.pack(voter.endpoint.port), _NO_TAGS]
        parts += [_INT16.pack(0), _INT16.pack(VOTERS_IN_LOG), _NO_TAGS]  # the levels of kraft.version that it reads
        parts.append(_NO_TAGS)
    return b"".join(parts) + _NO_TAGS


def check_kraft_version(value: bytes) -> None:
    """Raises UnreadableLevelError when a KRaftVersionRecord's level is one that this software does not read, KafkaError
    (CORRUPT_MESSAGE)."""
    level = decode_kraft_version(value)
    if level > VOTERS_IN_LOG:
        message = (
            f"the cluster uses {KRAFT_VERSION} at level {level} and this node reads 0 to {VOTERS_IN_LOG}: upgrade it"
        )
        raise UnreadableLevelError(ErrorCode.UNSUPPORTED_VERSION, message)


def decode_kraft_version(value: bytes) -> int:
    """Raises KafkaError (CORRUPT_MESSAGE)."""
    if len(value) < _KRAFT_VERSION.size:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "kraft.version record cut off")
    level: int = _KRAFT_VERSION.unpack_from(value)[1]
    return level


def decode_voters(value: bytes) -> VoterSet:
    """The first endpoint of each voter counts. Raises KafkaError (CORRUPT_MESSAGE)."""
    try:
        return _Reader(value).voters()
    except (IndexError, ValueError) as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"voters record cannot be read: {error}") from error


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 2  # after the version

    def take(self, count: int) -> bytes:
        chunk = self.data[self.at : self.at + count]
        if len(chunk) != count or count < 0:
            raise ValueError("cut off")
        self.at += count
        return chunk

    def varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("a number of more than 5 bytes")

    def count(self) -> int:
        return self.varint() - 1

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())

    def voters(self) -> VoterSet:
        count = self.count()
        if count < 1:
            raise ValueError("nobody votes")
        return VoterSet.of([self.voter() for _ in range(count)])

    def voter(self) -> Voter:
        node_id: int = _INT32.unpack(self.take(4))[0]
        directory = self.take(16)
        endpoints = [self.endpoint() for _ in range(self.count())]
        self.take(4)
        self.skip_tags()
        self.skip_tags()
        return Voter(ReplicaKey(node_id, None if directory == ZERO_ID else directory), endpoints[0])

    def endpoint(self) -> Endpoint:
        self.take(self.count())
        host = self.take(self.count()).decode()
        port: int = _UINT16.unpack(self.take(2))[0]
        self.skip_tags()
        return Endpoint(host, port)


def _string(text: str) -> bytes:
    data = text.encode()
    return _unsigned_varint(len(data) + 1) + data


def _unsigned_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
