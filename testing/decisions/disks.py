"""What a broker's disks have: of each replica a log, which is a list of the leader epoch and the number of each record."""

from collections.abc import Container
from random import Random

from ottla.quorum.metadata.delta import PartitionKey

Log = list[tuple[int, int]]

DIRECTORIES = 2


def agreed(one: Log, other: Log) -> int:
    """With how many of the same records both begin."""
    shorter = min(len(one), len(other))
    return next((index for index in range(shorter) if one[index] != other[index]), shorter)


def has(log: Log, committed: Log) -> bool:
    return log[: len(committed)] == committed


def age(log: Log) -> tuple[int, int]:
    """Of two logs of one replica the higher is the newer."""
    return (log[-1][0] if log else -1, len(log))


class Disks:
    """The log directories of one broker. What is in a directory that is ``gone``, or ``left_out`` of the configuration, is back with
    it, unless it was emptied. ``clean``: the broker epoch that a process which stopped in order wrote into a directory."""

    def __init__(self, broker_id: int) -> None:
        self.directories = [bytes([0xD0, broker_id, number]) + bytes([7]) * 13 for number in range(DIRECTORIES)]
        self.gone: set[bytes] = set()
        self.left_out: set[bytes] = set()
        self.clean: dict[bytes, int] = {}
        self.logs: dict[tuple[bytes, PartitionKey], Log] = {}

    @property
    def there(self) -> list[bytes]:
        return [each for each in self.directories if each not in self.gone and each not in self.left_out]

    @property
    def are_whole(self) -> bool:
        return not self.gone and not self.left_out

    @property
    def keys(self) -> set[PartitionKey]:
        """Of all that lies in any of the directories."""
        return {key for _, key in self.logs}

    def logs_of(self, key: PartitionKey, directories: Container[bytes]) -> list[tuple[bytes, Log]]:
        """The logs of a replica in these of the directories."""
        return [(each, self.logs[each, key]) for each in self.there if each in directories and (each, key) in self.logs]

    def hold(self, key: PartitionKey, committed: Log) -> bool:
        """Whether what is there now has all that is committed."""
        return not committed or any(has(self.logs.get((each, key), []), committed) for each in self.there)

    def take_clean_epoch(self) -> int | None:
        """For a process that starts: the epoch on which all directories of its configuration agree, if they do. Later ones find none."""
        configured = [each for each in self.directories if each not in self.left_out]
        epochs = {None if each in self.gone else self.clean.get(each) for each in configured}
        for each in self.there:
            self.clean.pop(each, None)
        return epochs.pop() if len(epochs) == 1 else None

    def lose_tails(self, rng: Random) -> None:
        """The power is cut: of each log any part that was not synced is lost."""
        for log in self.logs.values():
            del log[rng.randrange(len(log) + 1) :]

    def fail(self, directory: bytes, *, for_ever: bool) -> list[PartitionKey]:
        """A directory is not to be read any more; ``for_ever``: it comes back empty. Which replicas lay in it."""
        self.gone.add(directory)
        there = [key for each, key in self.logs if each == directory]
        for key in there if for_ever else ():
            del self.logs[directory, key]
        return there
