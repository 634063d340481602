"""The lines of a history: what each operation says of itself. docs/checker.md has them as a table.

Times are nanoseconds of any clock that all who write have in common. ``end`` is missing while nobody was told: such an operation
may have taken effect at any time since it began, or never.
"""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct


class Outcome(StrEnum):
    """``fail``: it certainly has no effect. ``unknown``: nobody can say."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Isolation(StrEnum):
    UNCOMMITTED = "read_uncommitted"
    COMMITTED = "read_committed"


FOREVER = 2**63 - 1
EARLIEST, LATEST = "earliest", "latest"


class Operation(Struct, kw_only=True, tag_field="op"):
    """``id``: a later line of the same process with the same id takes this one's place, so a process that may be killed writes what
    it begins and again what came of it."""

    process: str = ""
    id: int = -1
    begin: int = 0
    end: int = FOREVER
    outcome: Outcome = Outcome.UNKNOWN
    error: str = ""

    @property
    def name(self) -> str:
        return str(self.__struct_config__.tag)


class Produce(Operation, tag="produce"):
    """One record. Its ``value`` is what it is known by: no two of a topic are the same, unless one is sent again on purpose.

    ``producer`` and ``sequence``: records of one producer stand in a partition in the order of their sequences. ``transaction``:
    the one it belongs to. ``timestamp``: in milliseconds, if the producer gave it one. ``source``: what it was made of; of each source one record is committed. ``idempotent``: false where the
    producer may write it twice.
    """

    topic: str
    value: str
    partition: int = -1
    offset: int = -1
    key: str | None = None
    producer: str = ""
    sequence: int = -1
    timestamp: int = -1
    transaction: str = ""
    source: str = ""
    idempotent: bool = True


class Read(Operation, tag="read"):
    """Records of one partition, [offset, value] each, in the order in which they came. ``start``: the position read from, -1 if it was
    not said; ``next``: the position afterwards.

    ``group``: read by its member ``process``. ``final``: of the whole partition, when nobody wrote any more; in several lines
    if it is long. ``replica``: whose log was read, -1: the leader's. ``lagging``: that replica is not in sync. ``fresh``: it has to
    see all that was acknowledged before it began.
    """

    topic: str
    partition: int
    records: Sequence[tuple[int, str]] = ()
    start: int = -1
    next: int = -1
    isolation: Isolation = Isolation.UNCOMMITTED
    group: str = ""
    replica: int = -1
    final: bool = False
    lagging: bool = False
    fresh: bool = False


class Get(Operation, tag="get"):
    """The value that a key had: that of its last record. Null: there was none."""

    topic: str
    key: str
    value: str | None = None


class ListOffsets(Operation, tag="list-offsets"):
    """``asked``: `earliest`, `latest`, or a time in milliseconds. ``offset`` -1: there is no record so late."""

    topic: str
    partition: int
    asked: str | int
    offset: int = -1
    timestamp: int = -1
    fresh: bool = False


class Transaction(Operation, tag="transaction"):
    """The end of a transaction: ``action`` is `commit` or `abort`. One without such a line was never committed."""

    transaction: str
    action: str


class Assigned(Operation, tag="assigned"):
    """A member of a group was given a partition."""

    group: str
    topic: str
    partition: int


class Commit(Operation, tag="commit"):
    """A group's offset of a partition. ``final``: it was asked for at the end."""

    group: str
    topic: str
    partition: int
    offset: int
    final: bool = False


class Admin(Operation, tag="admin"):
    """``action``: `create`, `alter`, `delete`, `describe`. What is made, set or seen is one ``value`` (a topic's settings, as text;
    null: no such topic). ``result``: `exists` or `absent`, where the answer was that there is one already or none.
    ``local``: told by one broker, which may not have heard of the latest changes."""

    action: str
    topic: str
    value: str | None = None
    result: str = ""
    local: bool = False


class Topic(Operation, tag="topic"):
    """``compacted``: of each key the last record counts."""

    topic: str
    compacted: bool = False


class Unclean(Operation, tag="unclean"):
    """A leader was elected that may lack acknowledged records from ``from_offset`` on: what was written before ``end`` may be lost.
    ``partition`` -1: of all partitions."""

    topic: str
    partition: int = -1
    from_offset: int = 0


class Deleted(Operation, tag="deleted"):
    """Records below an offset were deleted on purpose."""

    topic: str
    partition: int
    before: int


class Fault(Operation, tag="fault"):
    """Something that was done to the cluster: for people who read the file."""

    fault: str = ""
    detail: str = ""


AnyOperation = (
    Produce | Read | Get | ListOffsets | Transaction | Assigned | Commit | Admin | Topic | Unclean | Deleted | Fault
)
