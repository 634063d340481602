"""What a decider answers: the records that would make a change, and the response that tells of it."""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ottla.proto import metadata_pb2 as pb
from ottla.runtime.errors import ErrorCode, KafkaError

R = TypeVar("R")

Record = pb.MetadataRecord


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """Nothing has changed yet: only replaying ``records`` changes the state.

    ``atomic``: all of them take effect, or none; otherwise each batch of them must leave a state that a later decision
    can complete. ``upgrades_quorum``: kraft.version is to be raised first, and then the request decided again.
    ``is_last`` False: replay the records, let others have their turn, and decide on the same request again; the response is
    that of the last decision.
    """

    response: R
    records: list[Record] = field(default_factory=list)
    atomic: bool = True
    upgrades_quorum: bool = False
    is_last: bool = True


ENTRIES_MAX = 10_000
"""Topics, or resources and their changes, of a request: some 20 us each, in which the controller hears nobody."""


def check_entries(count: int, most: int) -> None:
    """Raises KafkaError (POLICY_VIOLATION), as Kafka's controller where so many records would come of a request."""
    if count > most:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{count} entries in one request: at most {most}")


def code_and_message(error: KafkaError) -> tuple[int, str]:
    """An error as responses carry it."""
    return int(error.code), error.message or error.code.name


NO_ERROR = int(ErrorCode.NONE)
