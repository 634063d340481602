"""What is said of a broker that is drained, though the broker that is asked has not heard of the elections yet; and what its way back is."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.cli import broker_leaving
from ottla.cli.broker_leaving import drain
from ottla.cli.cluster_state import BrokerNow, ClusterNow
from ottla.cli.placing import Partition
from ottla.cli.plan_file import read_plan, write_plan
from ottla.cli.planning import way_back

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


def seen(**partitions: Partition) -> ClusterNow:
    return ClusterNow(BROKERS, {(topic, 0): each for topic, each in partitions.items()}, {}, {})


def test_the_way_back_is_of_this_drain_not_of_one_that_was_taken_back(
    told: Callable[[Iterator[ClusterNow]], None], tmp_path: Path
) -> None:
    file = tmp_path / "back.json"
    write_plan(file, {("moved", 0): (2, 3), ("gone", 0): (2, 1), ("drained", 0): (2, 1)})
    now = seen(
        moved=Partition((2, 1), (1, 2), 2), drained=Partition((1, 2), (1, 2), 1), new=Partition((2, 1), (1, 2), 2)
    )
    told(iter([now, seen(new=Partition((1, 2), (1, 2), 1))]))
    assert read_plan(file) == {("moved", 0): (2, 1), ("drained", 0): (2, 1), ("new", 0): (2, 1)}


def test_the_way_back_of_a_plan_is_noted_once_for_what_it_began_and_anew_for_the_rest() -> None:
    plan = {("begun", 0): (3, 1), ("since", 0): (3, 1)}
    now = seen(begun=Partition((3, 1), (3, 1), 3), since=Partition((2, 1), (1, 2), 2))
    noted = {("begun", 0): (1, 2), ("since", 0): (9, 8)}
    assert way_back(plan, now, noted) == {("begun", 0): (1, 2), ("since", 0): (2, 1)}
