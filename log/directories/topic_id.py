"""``partition.metadata``, written without waiting for the disk: creating 10,000 partitions must not cost 20,000 syncs.

It is synced with the first data that is. A torn one is from a crash before that, and its directory is taken for a stray.
"""

from ottla.log.directories.checkpoints import PARTITION_METADATA
from ottla.runtime.disk import Disk
from ottla.runtime.identifiers import id_to_text


def write_topic_id(disk: Disk, directory: str, topic_id: bytes) -> None:
    """OSError passes through."""
    file = disk.open(f"{directory}/{PARTITION_METADATA}", create=True)
    try:
        file.truncate(0)
        file.write_at([f"version: 0\ntopic_id: {id_to_text(topic_id)}".encode("ascii")], 0)
    finally:
        file.close()


def sync_topic_id(disk: Disk, directory: str) -> None:
    """OSError passes through."""
    file = disk.open(f"{directory}/{PARTITION_METADATA}")
    try:
        file.sync()
    finally:
        file.close()
