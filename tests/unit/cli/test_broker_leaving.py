"""What is said of a broker that is drained, though the broker that is asked has not heard of the elections yet."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.cli import broker_leaving
from ottla.cli.broker_leaving import drain
from ottla.cli.cluster_state import BrokerNow, ClusterNow
from ottla.cli.placing import Partition

BROKERS = {each: BrokerNow(each, f"h{each}:9092", "", is_fenced=False) for each in (1, 2)}


def led_by(leader: int) -> ClusterNow:
    return ClusterNow(BROKERS, {("t", 0): Partition((2, 1), (1, 2), leader)}, {}, {})


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Iterator[ClusterNow]], None]:
    """Drains broker 2 of a cluster that is seen so, one time after the other."""

    def drained(seen: Iterator[ClusterNow]) -> None:
        monkeypatch.setattr(broker_leaving, "read_cluster", lambda *_, **__: next(seen))
        monkeypatch.setattr(broker_leaving, "begin", lambda *_: None)
        monkeypatch.setattr(broker_leaving, "_elect_preferred", lambda *_: None)
        drain("localhost:9092", 2, tmp_path / "back.json", dry_run=False, yes=True)

    monkeypatch.setattr(broker_leaving, "HEARD_S", 0.1)
    return drained


def test_leaders_are_counted_once_the_elections_are_heard_of(
    told: Callable[[Iterator[ClusterNow]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    told(iter([led_by(2), led_by(2), led_by(2), led_by(1)]))
    assert "broker 2 leads 0 partitions; the way back" in capsys.readouterr().out


def test_a_topic_that_is_deleted_meanwhile_is_not_waited_for(
    told: Callable[[Iterator[ClusterNow]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    told(iter([led_by(2), ClusterNow(BROKERS, {}, {}, {})]))
    assert "broker 2 leads 0 partitions; the way back" in capsys.readouterr().out


def test_what_is_not_elected_is_not_waited_for_long(
    told: Callable[[Iterator[ClusterNow]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    told(iter(lambda: led_by(2), None))
    assert "broker 2 leads 1 partitions; the way back" in capsys.readouterr().out
