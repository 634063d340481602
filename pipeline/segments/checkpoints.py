"""Kafka's small text files, as far as whoever reads a stopped node's directories needs them.

`ottla.log.directories` writes them and says what they hold; executors cannot import it.
"""

from pathlib import Path

HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"

_OWNER = "@"


class Checkpoint:
    """The offsets in a file of a log directory. One that is not there, or not whole, says nothing."""

    def __init__(self, path: Path) -> None:
        self._owned: dict[tuple[str, str, int], int] = {}
        self._plain: dict[tuple[str, int], int] = {}
        self._read(path)

    def offset(self, topic: str, topic_id: str, partition: int) -> int | None:
        """The partition's offset. Rows of Ottla's files belong to a topic's id, those of Kafka's to its name."""
        if self._owned:
            return self._owned.get((topic, topic_id, partition))
        return self._plain.get((topic, partition))

    def _read(self, path: Path) -> None:
        try:
            lines = path.read_text("utf-8").splitlines()
            rows = [line.split(" ") for line in lines[2:]]
            if len(rows) != int(lines[1]):
                return
            self._take(rows)
        except (OSError, ValueError, IndexError):
            self._owned, self._plain = {}, {}

    def _take(self, rows: list[list[str]]) -> None:
        owner, owned = "", 0
        for name, partition, offset in rows:
            if _OWNER in name:
                owner, owned = name.split(_OWNER, 1)[1], int(partition)
                continue
            if owned:
                self._owned[name, owner, int(partition)] = int(offset)
                owned -= 1
            else:
                self._plain[name, int(partition)] = int(offset)


def topic_id(directory: Path) -> str:
    """The id of the topic whose partition lies here; empty where nothing says it."""
    return _property(directory / PARTITION_METADATA, "topic_id", ": ")


def node_id(root: Path) -> str:
    """The id of the node whose log directory this is; empty where nothing says it."""
    return _property(root / META_PROPERTIES, "node.id", "=") or _property(root / META_PROPERTIES, "broker.id", "=")


def _property(path: Path, name: str, between: str) -> str:
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return ""
    return next((line[len(name + between) :].strip() for line in lines if line.startswith(name + between)), "")
