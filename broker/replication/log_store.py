"""Where replication has its logs from: `ottla.broker.storage.Storage` is the real one, tests bring others."""

from typing import Protocol

from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition


class LogStore(Protocol):
    """The logs of a broker, over its directories."""

    def get_or_create(
        self,
        partition: TopicPartition,
        config: LogConfig,
        topic_id: bytes,
        directory_id: bytes | None = None,
        *,
        is_new: bool = True,
    ) -> Log: ...
    def delete(self, partition: TopicPartition, topic_id: bytes) -> None: ...
    def reads(self, directory_id: bytes) -> bool: ...
    def checkpoint_high_watermarks(self) -> None: ...
