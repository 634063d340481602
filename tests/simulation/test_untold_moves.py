"""Replicas that moved to another log directory, by a broker that died before it could tell the controller."""

import pytest

from ottla.broker.replication.reports.assignments import AssignmentQueue
from ottla.broker.replication.reports.offline import OfflineReplicas
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.quorum.metadata.views import DIRECTORY_UNASSIGNED
from ottla.runtime.errors import ErrorCode
from tests.simulation.conftest import Rig, play
from tests.simulation.test_log_directories import TOPIC, move

DIRECTORIES = "/data", "/more", "/third"
BROKER = 4


def log_of(rig: Rig) -> Log | None:
    broker = rig.server(BROKER).broker
    return broker.storage.manager.logs.get(TopicPartition(TOPIC, 0)) if broker is not None else None


def offline(rig: Rig) -> OfflineReplicas:
    broker = rig.server(BROKER).broker
    assert broker is not None
    return broker.replicas.offline


def test_what_moved_into_a_directory_that_is_lost_is_there_when_that_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else its broker, the last in sync, would lead with an empty log in the old place, and the other be cut to that."""

    async def scenario(rig: Rig) -> None:
        await rig.place(TOPIC, [BROKER, 5], min_insync_replicas="1")
        producer = rig.produce(TOPIC, 0)
        await rig.goes_on(producer)
        rig.cluster.nodes[5].kill()
        await rig.until(lambda: rig.view(TOPIC, 0).isr == (BROKER,))
        await rig.until(lambda: rig.view(TOPIC, 0).directory_of(BROKER) != DIRECTORY_UNASSIGNED)
        await rig.goes_on(producer)
        log = log_of(rig)
        assert log is not None
        other = "/more" if log.root.path == "/third" else "/third"  # not the metadata log's
        with monkeypatch.context() as patch:
            patch.setattr(AssignmentQueue, "submit", lambda *_: None)
            assert await move(rig, BROKER, other, 0) == [ErrorCode.NONE]
            await rig.until(lambda: log_of(rig) is not log)
            rig.cluster.nodes[BROKER].kill()
        end = len(producer.history.acknowledged)
        assert end
        mend = rig.cluster.nodes[BROKER].platter.fail(other)
        rig.cluster.nodes[BROKER].restart()
        await rig.until(lambda: rig.up(BROKER), 60)
        await rig.until(lambda: (TOPIC, 0) in offline(rig))
        mend()
        await rig.restart(BROKER)
        await rig.until(lambda: rig.view(TOPIC, 0).leader == BROKER, 60)
        found = log_of(rig)
        assert found is not None
        assert found.log_end_offset >= end

    play(scenario, plain_brokers=2, directories=DIRECTORIES)
