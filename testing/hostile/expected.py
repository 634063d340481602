"""What may be answered to bytes: for each whole frame one response of its API and version, in order, or the end of the connection."""

import struct
from typing import NamedTuple

import msgspec

from ottla.broker.network.response_errors import errors_in
from ottla.broker.wire.apis import API_VERSIONS, APIS, PRODUCE
from ottla.broker.wire.codec import decoder
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.headers import read_response_header
from ottla.runtime.errors import ErrorCode

REQUEST_BYTES_MAX = 104_857_600


class Asked(NamedTuple):
    key: int
    version: int
    correlation_id: int


class WrongAnswer(Exception):
    """A response that is none, or that tells of a mistake of ours."""


def frames_in(data: bytes) -> list[Asked]:
    """The whole frames in what was sent, as far as they can be answered at all."""
    found, position = [], 0
    while position + 4 <= len(data):
        (size,) = struct.unpack_from(">i", data, position)
        if not 10 <= size <= REQUEST_BYTES_MAX or position + 4 + size > len(data):
            break
        found.append(Asked(*struct.unpack_from(">hhi", data, position + 4)))
        position += 4 + size
    return found


def responses_in(data: bytes) -> tuple[list[bytes], bytes]:
    """The whole ones, and what is there of the next. Raises WrongAnswer for a size that no response has."""
    found, position = [], 0
    while position + 4 <= len(data):
        (size,) = struct.unpack_from(">i", data, position)
        if size < 4:
            raise WrongAnswer(f"a response that says it has {size} bytes")
        if position + 4 + size > len(data):
            break
        found.append(data[position + 4 : position + 4 + size])
        position += 4 + size
    return found, data[position:]


def check(asked: list[Asked], answers: list[bytes]) -> list[Asked]:
    """What is not answered (yet). Raises WrongAnswer."""
    left = list(asked)
    for answer in answers:
        (correlation_id,) = struct.unpack_from(">i", answer)
        while left and left[0].correlation_id != correlation_id and left[0].key == PRODUCE:
            left.pop(0)  # acks=0: none is given
        if not left or left[0].correlation_id != correlation_id:
            raise WrongAnswer(f"an answer to request {correlation_id}, which was not asked: {left}")
        check_one(left.pop(0), answer)
    return left


def check_one(asked: Asked, answer: bytes) -> None:
    key, version, _ = asked
    if key == API_VERSIONS and not APIS[key].min <= version <= APIS[key].max:
        version = 0  # how a version from the future is answered
    view = memoryview(answer)
    name = f"{APIS[key].name}Response"
    try:
        _, position = read_response_header(view, 0, key, version)
        message, end = decoder(name, version)(view, position)
    except WireError as error:
        raise WrongAnswer(f"the answer to {asked} is no {name}: {error}") from error
    if end != len(answer):
        raise WrongAnswer(f"{len(answer) - end} bytes behind the {name} that answers {asked}")
    assert isinstance(message, msgspec.Struct)
    if ErrorCode.UNKNOWN_SERVER_ERROR in errors_in(message):
        raise WrongAnswer(f"UNKNOWN_SERVER_ERROR, a mistake of ours, answers {asked}: {str(message)[:500]}")
