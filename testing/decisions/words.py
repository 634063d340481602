"""A history in words, for whoever has to find out what went wrong in it."""

from collections.abc import Callable

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.metadata.views import RECOVERING, PartitionView

REQUEST_SHOWN_MAX = 160

Say = Callable[..., None]
"""Takes words; what is long to find is a function, which is not called when nobody listens."""


class Chronicle:
    """Tells what happens with ``write``, as it happens; without one nothing is made of it."""

    def __init__(self, write: Callable[[str], object] | None = None) -> None:
        self._write = write

    def say(self, *words: object) -> None:
        if self._write is not None:
            self._write(" ".join(str(each() if callable(each) else each) for each in words))


def describe_request(request: rpc.ControllerRequest) -> str:
    name = str(request.WhichOneof("body"))
    return f"{name} {' '.join(str(getattr(request, name)).split())[:REQUEST_SHOWN_MAX]}"


def describe_partition(partition: PartitionView) -> str:
    """All but what is empty."""
    lists = (
        ("adding", partition.adding),
        ("removing", partition.removing),
        ("eligible", partition.elr),
        ("led last", partition.last_known_elr),
    )
    shown = " ".join(f"{name} {list(each)}" for name, each in lists if each)
    recovering = " recovering" if partition.leader_recovery_state == RECOVERING else ""
    return (
        f"replicas {list(partition.replicas)} in sync {list(partition.isr)} leader {partition.leader} "
        f"epochs {partition.leader_epoch}, {partition.partition_epoch}{recovering} "
        f"in {[_describe_directory(each) for each in partition.directories]} {shown}".rstrip()
    )


def _describe_directory(directory: bytes) -> str:
    """The reserved ones by their number."""
    return str(directory[-1]) if not any(directory[:-1]) else directory[:3].hex()
