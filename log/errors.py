"""How a log fails: damaged bytes, a directory that is gone, a disk without room."""

import errno

from ottla.runtime.errors import ErrorCode, KafkaError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
NOT_THE_DISK = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR)  # the process's trouble: it may pass


class DamagedLogError(KafkaError):
    """Bytes of a segment that were sound once and are not now. Nothing of them was served.

    ``offset`` is where the damage begins, as far as that can be told: a follower may truncate to it and fetch again.
    """

    def __init__(self, path: str, position: int, offset: int, reason: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, f"{path}: damaged at byte {position}, offset {offset}: {reason}")
        self.path = path
        self.position = position
        self.offset = offset


class StorageError(KafkaError):
    """The directory cannot take or give data now; retriable for clients, who may find the data on another replica."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)
