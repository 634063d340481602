"""What the node's file says of groups and transactions reaches whoever decides by it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

import ottla.broker
from ottla.broker.coordinator.coordinator import Coordinator
from ottla.broker.coordinator.decisions.groups.migration.policy import MigrationPolicy
from ottla.broker.coordinator.decisions.groups.settings import GroupSettings
from ottla.broker.coordinator.decisions.transactions.settings import TransactionSettings
from ottla.broker.coordinator.group_coordinator import GroupCoordinator, group_settings
from ottla.broker.coordinator.shard_host import Surroundings
from ottla.broker.coordinator.transaction_coordinator import TransactionCoordinator, transaction_settings
from ottla.quorum.metadata.image import MetadataImage
from ottla.runtime.settings.definitions import server_settings
from ottla.runtime.settings.idle import why_idle
from ottla.runtime.settings.server import ServerConfig
from tests.unit.broker.fake_timers import FakeTimers
from tests.unit.broker.handlers.conftest import Site

PREFIXES = ("group.", "offset.", "offsets.", "transaction.", "transactional.", "producer.id.", "add.partitions.")
BY_PARTS = {
    f"{topic}.{what}"
    for topic in ("offsets.topic", "transaction.state.log")
    for what in ("num.partitions", "replication.factor", "segment.bytes", "min.isr")
} | {
    f"group.consumer.{bound}.{what}.ms"
    for bound in ("min", "max")
    for what in ("assignment.interval", "heartbeat.interval", "session.timeout")
}
"""Names that are put together where they are read: `broker/internal_topics.py`, `runtime/settings/server.py`, `group.py`."""


def config(**settings: str) -> ServerConfig:
    return Site(**settings).config


def test_groups_are_as_the_file_says() -> None:
    assert group_settings(config()) == GroupSettings(), "the defaults are Kafka's"
    assert group_settings(
        config(
            group_initial_rebalance_delay_ms="1",
            group_min_session_timeout_ms="2",
            group_max_session_timeout_ms="3",
            group_max_size="4",
            offset_metadata_max_bytes="5",
            offsets_retention_minutes="6",
            group_consumer_regex_refresh_interval_ms="10007",
            group_consumer_migration_policy="Upgrade",
            group_consumer_max_size="8",
            group_consumer_assignors="range",
            group_consumer_session_timeout_ms="50000",
            group_consumer_min_session_timeout_ms="48000",
            group_consumer_max_session_timeout_ms="51000",
            group_consumer_heartbeat_interval_ms="7000",
            group_consumer_min_heartbeat_interval_ms="6000",
            group_consumer_max_heartbeat_interval_ms="8000",
            group_consumer_assignment_interval_ms="10",
            group_consumer_min_assignment_interval_ms="9",
            group_consumer_max_assignment_interval_ms="11",
        )
    ) == GroupSettings(
        initial_rebalance_delay_ms=1,
        min_session_timeout_ms=2,
        max_session_timeout_ms=3,
        max_size=4,
        offset_metadata_bytes_max=5,
        offsets_retention_ms=360_000,
        regex_refresh_interval_ms=10_007,
        migration_policy=MigrationPolicy.UPGRADE,
        consumer_max_size=8,
        consumer_assignors=("range",),
        consumer_session_timeout_ms=50_000,
        consumer_session_bounds=(48_000, 51_000),
        consumer_heartbeat_interval_ms=7_000,
        consumer_heartbeat_bounds=(6_000, 8_000),
        consumer_assignment_interval_ms=10,
        consumer_assignment_bounds=(9, 11),
    )


def test_transactions_are_as_the_file_says() -> None:
    assert transaction_settings(config()) == TransactionSettings(), "the defaults are Kafka's"
    assert transaction_settings(
        config(
            transaction_max_timeout_ms="1",
            transactional_id_expiration_ms="2",
            transaction_two_phase_commit_enable="true",
        )
    ) == TransactionSettings(max_timeout_ms=1, id_expiration_ms=2, two_phases=True)


class Rounds:
    """A coordinator, when it looks at its shards, and for what."""

    def __init__(self, make: Any) -> None:
        self.timers = FakeTimers()
        self.seen: list[tuple[str, int]] = []
        shard: Any = SimpleNamespace(expire=lambda: self.note("expire"), abort_late=lambda: self.note("abort"))
        nothing: Any = None
        with patch.object(Coordinator, "shards", lambda _: iter((shard,))):
            self.coordinator = make(Surroundings(self.timers, nothing, nothing, nothing, 1))
            self.coordinator.start()
            for _ in range(60):
                self.timers.advance(10)
            self.coordinator.stop()

    def note(self, what: str) -> None:
        self.seen.append((what, self.timers.now_ms()))


def test_offsets_are_expired_as_often_as_the_file_says() -> None:
    texts = config(offsets_retention_check_interval_ms="200")
    rounds = Rounds(lambda around: GroupCoordinator(texts, MetadataImage(), around))
    assert rounds.seen == [("expire", 200), ("expire", 400), ("expire", 600)]


def test_late_transactions_are_aborted_and_ids_expired_as_often_as_the_file_says() -> None:
    texts = config(
        transaction_abort_timed_out_transaction_cleanup_interval_ms="300",
        transaction_remove_expired_transaction_cleanup_interval_ms="500",
    )
    nothing: Any = None
    rounds = Rounds(lambda around: TransactionCoordinator(texts, MetadataImage(), around, nothing, nothing))
    assert rounds.seen == [("abort", 300), ("expire", 500), ("abort", 600)]


@pytest.fixture(scope="module")
def sources() -> str:
    broker = Path(ottla.broker.__file__ or "").parent
    return "".join(each.read_text(encoding="utf-8") for each in broker.rglob("*.py") if "wire" not in each.parts)


@pytest.mark.parametrize("name", [each for each in server_settings() if each.startswith(PREFIXES)])
def test_a_setting_of_coordinators_is_read_or_said_to_change_nothing(name: str, sources: str) -> None:
    is_read = f'"{name}"' in sources or f'"{name.removeprefix("group.")}"' in sources or name in BY_PARTS
    is_default_of_groups = name.startswith("group.consumer.") and name.endswith(("interval.ms", "timeout.ms"))
    assert (is_read or is_default_of_groups) != (why_idle(name) is not None)
