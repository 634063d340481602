"""What a broker's partitions hear of settings that change for all of them."""

from random import Random
from types import SimpleNamespace
from typing import Any, cast

from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.topic_config import LogConfigs
from ottla.log.config import LogConfig
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.families.settings import config_record
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.views import BROKER_RESOURCE
from ottla.runtime.sync_later import SyncLater
from tests.unit.broker.handlers.conftest import Site


class Bench:
    """A broker of one partition, which notes the settings that it is given."""

    def __init__(self) -> None:
        site, nobody = Site(), cast(Any, None)
        self.manager = ReplicaManager(
            site.config, nobody, cast(Any, site.timers), nobody, Random(1), nobody, SyncLater(), nobody
        )
        self.image = MetadataImage()
        self.given: list[LogConfig] = []
        log = SimpleNamespace(config=LogConfigs(site.config).of({}))

        def configure(config: LogConfig, _now_ms: int, **_: bool) -> None:
            log.config = config
            self.given.append(config)

        self.manager.partitions[bytes(16), 0] = cast(
            Any, SimpleNamespace(topic="t", topic_id=bytes(16), index=0, log=log, configure=configure)
        )

    def change(self, name: str, value: str | None) -> None:
        """A setting of all brokers; None: it has its default again."""
        delta = MetadataDelta()
        self.image.apply(config_record(BROKER_RESOURCE, "", name, value), delta)
        self.manager.publish(delta, self.image)


def test_a_default_of_all_topics_is_told_when_it_changes_and_when_it_goes() -> None:
    bench = Bench()
    bench.change("log.retention.ms", "1000")
    bench.change("log.retention.ms", None)
    assert [config.retention_ms for config in bench.given] == [1_000, 604_800_000]


def test_a_setting_that_no_log_reads_has_none_looked_at() -> None:
    """Each log that is told settings reads its active segment: ten thousand of them took the loop for seconds, for a throttle's sake."""
    bench = Bench()
    bench.change("leader.replication.throttled.rate", "1000000")
    bench.change("log.retention.ms", "1000")
    bench.change("leader.replication.throttled.rate", None)
    assert [config.retention_ms for config in bench.given] == [1_000]
