"""Brokers as the controller does not see them: a machine with disks, and at times a process on it."""

from dataclasses import dataclass, field

from ottla.quorum.metadata.delta import PartitionKey
from ottla.testing.decisions.disks import Disks, Log, age

NONE = -1
"""No broker epoch."""


@dataclass(slots=True, eq=False)
class Process:
    """One start of a broker. It reads the directories that are there when it starts, and none that comes back later."""

    number: int
    directories: list[bytes]
    missing: list[bytes]
    """Directories of its configuration that were gone when it started."""
    previous_epoch: int
    """Of the process before, if that stopped in order; else NONE."""
    epoch: int = NONE
    is_registering: bool = False
    is_leaving: bool = False
    offline: list[bytes] = field(default_factory=list)
    """Directories that failed since it started."""
    failed: set[PartitionKey] = field(default_factory=set)
    """What was in these: it is not made anew before the next start."""
    unhosted: dict[PartitionKey, bool] = field(default_factory=dict)
    """Replicas that it could not open or make, and of each whether it was a new one, which can have held nothing."""

    @property
    def working(self) -> list[bytes]:
        return [each for each in self.directories if each not in self.offline]


class Broker:
    """``suspect``: replicas whose process died, or could not say of all its directories that it had stopped in order. The controller
    takes such a one for lost until it is in sync again, so nobody may rely on it, though it may have lost nothing."""

    def __init__(self, broker_id: int) -> None:
        self.id = broker_id
        self.disks = Disks(broker_id)
        self.process: Process | None = None
        self.suspect: set[PartitionKey] = set()
        self._starts = 0

    @property
    def registered(self) -> Process | None:
        """The process, once it has an epoch."""
        process = self.process
        return process if process is not None and process.epoch != NONE else None

    def start(self) -> Process | None:
        """A new process; None where there is no directory to start with."""
        disks = self.disks
        if not disks.there:
            return None
        self._starts += 1
        missing = [each for each in disks.directories if each in disks.gone and each not in disks.left_out]
        clean_epoch = disks.take_clean_epoch()
        if clean_epoch is None:
            self.suspect |= disks.keys
        self.process = Process(self._starts, disks.there, missing, NONE if clean_epoch is None else clean_epoch)
        return self.process

    def stop(self) -> None:
        """In order: all that it has is synced, and so it says in each directory that it can write to."""
        process = self.process
        assert process is not None
        epoch = process.epoch if process.epoch != NONE else process.previous_epoch
        self.disks.clean.update(dict.fromkeys(process.working, epoch))
        self.process = None

    def die(self) -> None:
        self.process = None
        self.suspect |= self.disks.keys

    def hosted(self, key: PartitionKey) -> Log | None:
        """The log that its process writes to and sends from."""
        process = self.process
        if process is None or key in process.unhosted:
            return None
        return max((log for _, log in self.disks.logs_of(key, process.working)), key=age, default=None)

    def is_intact(self, key: PartitionKey, committed: Log) -> bool:
        """Whether what is committed would be there if this one led, and the controller may know it."""
        return not committed or (key not in self.suspect and self.disks.hold(key, committed))
