"""The server settings that replication reads."""

import msgspec

from ottla.broker.replication.following.fetcher import FetcherSettings
from ottla.runtime.settings.server import ServerConfig


class ReplicationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times in ms. ``listener_name``: where brokers reach each other."""

    listener_name: str
    lag_time_max_ms: int
    checkpoint_interval_ms: int
    session_slots: int
    fetcher: FetcherSettings

    @classmethod
    def of(cls, config: ServerConfig) -> "ReplicationSettings":
        return cls(
            listener_name=config.inter_broker_listener.name,
            lag_time_max_ms=config.integer("replica.lag.time.max.ms"),
            checkpoint_interval_ms=config.integer("replica.high.watermark.checkpoint.interval.ms"),
            session_slots=config.integer("max.incremental.fetch.session.cache.slots"),
            fetcher=FetcherSettings(
                node_id=config.node_id,
                max_wait_ms=config.integer("replica.fetch.wait.max.ms"),
                min_bytes=config.integer("replica.fetch.min.bytes"),
                partition_bytes=config.integer("replica.fetch.max.bytes"),
                response_bytes=config.integer("replica.fetch.response.max.bytes"),
                backoff_ms=config.integer("replica.fetch.backoff.ms"),
            ),
        )
