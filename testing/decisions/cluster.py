"""The controller, the brokers beside it, and what they were promised: all that a step of a history works on."""

from collections.abc import Callable
from random import Random

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.metadata.delta import PartitionKey
from ottla.quorum.metadata.views import PartitionView
from ottla.testing.decisions.brokers import NONE, Broker
from ottla.testing.decisions.controller import Controller
from ottla.testing.decisions.disks import Log
from ottla.testing.decisions.promises import Promises
from ottla.testing.decisions.rules import check_change, check_election
from ottla.testing.decisions.words import Chronicle, describe_partition

BROKERS = 4
TOPIC = "t"


class Cluster:
    """``told``: by partition and follower the broker epoch and the end of the log in its last fetch of this leader epoch.
    ``proposals``: AlterPartition requests on the way, with the partition of each. ``asked_for``: the replicas that a
    partition was created with, and those that somebody asked for, of those that were ever to move; ``stuck``:
    those of which that says nothing (`users.reassign`). ``slow``: brokers that run and fetch nothing for a while."""

    def __init__(self, rng: Random, write: Callable[[str], object] | None = None) -> None:
        self.rng = rng
        self.say = Chronicle(write).say
        self.are_faults_on = True
        self.brokers = {broker_id: Broker(broker_id) for broker_id in range(1, BROKERS + 1)}
        self.controller = Controller(rng, self._partition_changed, self.say)
        self.promises = Promises(self.brokers, self.controller, self.say)
        self.told: dict[PartitionKey, dict[int, tuple[int, int]]] = {}
        self.proposals: list[tuple[rpc.ControllerRequest, PartitionKey]] = []
        self.asked_for: dict[PartitionKey, list[tuple[int, ...]]] = {}
        self.stuck: set[PartitionKey] = set()
        self.slow: set[int] = set()
        self._records = 0

    def partitions(self) -> dict[PartitionKey, PartitionView]:
        return self.controller.partitions()

    def any_partition(self) -> PartitionKey:
        return self.rng.choice(list(self.partitions()))

    def any_broker(self) -> Broker:
        return self.rng.choice(list(self.brokers.values()))

    def registered_epoch(self, broker_id: int) -> int:
        """As the controller knows it."""
        broker = self.controller.image.brokers.get(broker_id)
        return broker.epoch if broker is not None else NONE

    def next_record(self) -> int:
        self._records += 1
        return self._records

    def leading(self, key: PartitionKey) -> tuple[PartitionView, Log] | None:
        """A partition whose leader runs, and that one's log."""
        partition = self.partitions()[key]
        log = self.promises.leading_log(key, partition)
        return (partition, log) if log is not None else None

    def _partition_changed(self, key: PartitionKey, before: PartitionView, after: PartitionView, why: str) -> None:
        self.say("  ", f"P{key[1]}", lambda: describe_partition(after), "because:", why)
        check_change(before, after)
        check_election(before, after, self.controller.taken_out)
        if after.leader_epoch != before.leader_epoch:
            self.told[key] = {}
        self.promises.partition_changed(key, before, after)
