"""What clients and brokers are shown."""

from collections.abc import Iterator
from typing import Any

from ottla.broker.handlers.fetching import fetch_read
from ottla.broker.handlers.fetching.fetch_read import Reader
from ottla.broker.replication.decisions.leader import PartitionLeader
from ottla.broker.replication.partition import Partition
from ottla.quorum.metadata import delta
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.planted.bug import PlantedBug, cut_between, slow

USERS = "users get answers a correct cluster gives"


def _shows_all(partition: Partition, reader: Reader) -> int:
    return partition.log.log_end_offset


def _deletes_none(before: Any, after: Any) -> Iterator[MetadataDelta]:
    yield MetadataDelta()


def _always_certain(leader: PartitionLeader) -> bool:
    return True


VIEWS = (
    PlantedBug(
        "show consumers the log's end",
        "fetch_read.limit_for: consumers see what is committed",
        ((fetch_read, "limit_for", _shows_all),),
        1,
        (Fault(500, "pause", ("node-3",), 1400),),
        (USERS,),
        ("readers",),
    ),
    PlantedBug(
        "keep topics that a snapshot lacks",
        "differences: what only the older image has was deleted",
        ((delta, "_deleted_topics", _deletes_none),),
        1,
        (Fault(500, "isolate", ("node-3",), 4000),),
        ("when faults end, the cluster heals",),
        ("topics",),
    ),
    PlantedBug(
        "tell the end before it is certain",
        "ListOffsets: not before the leader has committed what it had when its epoch began",
        ((PartitionLeader, "has_committed_own_epoch", _always_certain),),
        40,
        (
            *cut_between(500, 3, 1, 2800),
            slow(400, 3, 2, 200, 250, 1000),
            Fault(1195, "kill", ("node-3",), 4000),
            slow(1500, 2, 1, 400, 500, 3000),
        ),
        (USERS,),
        ("hasty", "readers"),
    ),
)
