"""Metrics of a whole cluster: each moves when its thing happens, and the on-call engineer sees it from outside."""

import asyncio

from ottla.broker.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.broker.wire.messages.produce_response import ProduceResponse
from ottla.log.errors import DamagedLogError
from ottla.log.names import TopicPartition
from ottla.log.records import Record, encode_batch
from ottla.runtime.errors import ErrorCode
from ottla.runtime.metrics import gather_now
from ottla.testing.metrics import numbers
from ottla.testing.simulation.workload import PRODUCE_VERSION
from tests.simulation.conftest import Rig, play

TOPIC = "flights"
FLOOR = 64 << 20
R = "kafka_server_replicamanager_"
C = "kafka_controller_kafkacontroller_"
LEADER = "kafka_server_raftmetrics_current_leader"


def told(rig: Rig, node: int = 1) -> dict[str, float]:
    return numbers(rig.server(node).metrics.registry)


def over_all(rig: Rig, name: str) -> float:
    return sum(told(rig, node)[name] for node in rig.cluster.nodes if rig.up(node))


def active(rig: Rig) -> int:
    return next(node for node in rig.cluster.nodes if rig.up(node) and told(rig, node)[C + "activecontrollercount"])


async def produce(rig: Rig, node: int, count: int = 1) -> int:
    """The error that the broker answers with."""
    batch = bytes(encode_batch([Record(number, 1, b"", b"value") for number in range(count)]))
    data = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(acks=-1, timeout_ms=500, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])])
    answer = await rig.client().call(rig.cluster.brokers[node - 1], request, ProduceResponse, PRODUCE_VERSION)
    return answer.responses[0].partition_responses[0].error_code


def test_a_cluster_at_rest_tells_what_it_is() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(TOPIC, 4, 3, retention_ms="-1")
        await rig.until(lambda: over_all(rig, R + "partitioncount") == 12)
        assert over_all(rig, R + "leadercount") == 4
        assert over_all(rig, C + "activecontrollercount") == 1
        for node in rig.cluster.nodes:
            numbers_of = told(rig, node)
            assert numbers_of[C + "globalpartitioncount"] == 4
            assert numbers_of[C + "globaltopiccount"] == 1
            assert numbers_of[C + "activebrokercount"] == 3
            assert numbers_of["kafka_server_kafkaserver_brokerstate"] == 3
            assert numbers_of["kafka_server_raftmetrics_number_of_voters"] == 3
            assert numbers_of[LEADER] == active(rig)
            for quiet in ("underreplicatedpartitions", "underminisrpartitioncount", "offlinereplicacount"):
                assert numbers_of[R + quiet] == 0

    play(scenario)


def test_a_broker_that_is_no_controller_observes_and_counts_no_cluster() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(TOPIC, 1, 2, retention_ms="-1")
        now = told(rig, 2)
        assert now["kafka_server_raftmetrics_current_state{observer}"] == 1
        assert now["kafka_server_raftmetrics_fetch_records_total"] > 0
        assert now["kafka_server_broker_metadata_metrics_last_applied_record_offset"] > 0
        assert not [name for name in now if name.startswith("kafka_controller")]
        assert told(rig, 1)["kafka_server_raftmetrics_number_of_observers"] == 1

    play(scenario, nodes=1, plain_brokers=1)


def test_what_is_produced_and_fetched_is_counted() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(TOPIC, 1, 3, retention_ms="-1")
        leader = rig.view(TOPIC, 0).leader
        follower = leader % 3 + 1
        assert await produce(rig, leader, count=5) == 0
        assert await produce(rig, follower) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        there, here = told(rig, follower), told(rig, leader)
        assert here["kafka_server_brokertopicmetrics_messagesin_total"] == 5
        size = here["kafka_server_brokertopicmetrics_bytesin_total"]
        assert size > 5 * len(b"value")
        assert there["kafka_server_brokertopicmetrics_replicationbytesin_total"] == size
        assert here["kafka_server_brokertopicmetrics_replicationbytesout_total"] > 2 * size
        assert here[f"kafka_network_requestmetrics_requests_total{{Produce,{PRODUCE_VERSION}}}"] == 1
        assert there["kafka_network_requestmetrics_errors_total{Produce,NOT_LEADER_OR_FOLLOWER}"] == 1
        assert there["kafka_server_brokertopicmetrics_failedproducerequests_total"] == 1
        assert here["kafka_server_socket_server_metrics_connection_count{PLAINTEXT}"] >= 3
        assert here["kafka_server_socket_server_metrics_incoming_byte_total{PLAINTEXT}"] > size
        assert here["ottla_log_records"] == 5

    play(scenario)


def test_a_full_disk_is_told_and_the_produce_it_refuses() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(TOPIC, 1, 1, retention_ms="-1")
        full = "ottla_log_directory_full{/data}"
        assert told(rig)[full] == 0
        platter = rig.cluster.nodes[1].platter
        capacity = platter.capacity_bytes
        platter.capacity_bytes = platter.used_bytes + FLOOR - 1
        await asyncio.sleep(1.1)
        assert await produce(rig, 1) == ErrorCode.KAFKA_STORAGE_ERROR
        assert told(rig)[full] == 1
        assert told(rig)["ottla_log_directory_free_bytes{/data}"] < FLOOR
        assert told(rig)["kafka_network_requestmetrics_errors_total{Produce,KAFKA_STORAGE_ERROR}"] == 1
        platter.capacity_bytes = capacity
        await asyncio.sleep(1.1)
        assert told(rig)[full] == 0

    play(scenario, nodes=1, settings={"ottla.free.bytes.floor": str(FLOOR), "min.insync.replicas": "1"})


def test_a_dead_follower_shows_in_the_isr_and_when_it_is_back() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(TOPIC, 1, 3, retention_ms="-1")
        leader = rig.view(TOPIC, 0).leader
        dead = next(node for node in (1, 2, 3) if node not in (leader, active(rig)))
        producer = rig.produce(TOPIC, 0)
        rig.cluster.nodes[dead].kill()
        await rig.until(lambda: len(rig.view(TOPIC, 0, leader).isr) == 2)
        await rig.goes_on(producer)
        now = told(rig, leader)
        assert (now[R + "underreplicatedpartitions"], now[R + "underminisrpartitioncount"]) == (1, 0)
        assert now[R + "atminisrpartitioncount"] == 1
        assert told(rig, active(rig))[C + "fencedbrokercount"] == 1
        await rig.restart(dead)
        await rig.until(lambda: len(rig.view(TOPIC, 0, leader).isr) == 3)
        await rig.until(lambda: told(rig, leader)[R + "underreplicatedpartitions"] == 0)
        await rig.until(lambda: told(rig, leader)[R + "isrexpands_total"] == 1)
        assert told(rig, leader)[R + "atminisrpartitioncount"] == 0
        assert told(rig, active(rig))[C + "fencedbrokercount"] == 0

    play(scenario, settings={"min.insync.replicas": "2"})


def test_below_the_minimum_in_sync_is_told_and_offline_when_nobody_is_left() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(TOPIC, 1, 2, retention_ms="-1")
        leader, follower = rig.view(TOPIC, 0).replicas
        third = next(node for node in (1, 2, 3) if node not in (leader, follower))
        rig.cluster.nodes[follower].kill()
        await rig.until(lambda: told(rig, leader)[R + "underminisrpartitioncount"] == 1)
        assert told(rig, leader)[R + "atminisrpartitioncount"] == 0
        await rig.restart(follower)
        await rig.until(lambda: told(rig, leader)[R + "underminisrpartitioncount"] == 0)
        assert told(rig, third)[C + "offlinepartitionscount"] == 0

    play(scenario, settings={"min.insync.replicas": "2"})


def test_a_partition_without_a_leader_is_offline_on_every_controller() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(TOPIC, 3, 1, retention_ms="-1")
        assert told(rig)[C + "offlinepartitionscount"] == 0
        dead = next(node for node in (1, 2, 3) if node != active(rig))
        alive = [node for node in (1, 2, 3) if node != dead]
        lost = sum(rig.view(TOPIC, index).leader == dead for index in range(3))
        rig.cluster.nodes[dead].kill()
        await rig.until(lambda: all(told(rig, node)[C + "offlinepartitionscount"] == lost > 0 for node in alive))
        await rig.restart(dead)
        await rig.until(lambda: over_all(rig, C + "offlinepartitionscount") == 0)

    play(scenario, settings={"min.insync.replicas": "1"})


def test_another_controller_shows_in_epoch_leader_and_count() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(TOPIC, 3, 3)
        first = active(rig)
        epoch = told(rig, first)["kafka_server_raftmetrics_current_epoch"]
        assert told(rig, first)["kafka_server_raftmetrics_current_state{leader}"] == 1
        assert told(rig, first)["kafka_server_raftmetrics_append_records_total"] > 0
        rig.cluster.nodes[first].kill()
        alive = [node for node in rig.cluster.nodes if node != first]
        await rig.until(lambda: over_all(rig, C + "activecontrollercount") == 1)
        second = active(rig)
        await rig.until(lambda: all(told(rig, node)[LEADER] == second for node in alive))
        now = told(rig, second)
        assert now["kafka_server_raftmetrics_current_epoch"] > epoch
        assert now["kafka_server_raftmetrics_election_latency_max"] >= 0
        assert now["ottla_quorum_campaigns_total"] >= 1
        assert now[C + "newactivecontrollerscount_total"] == 1
        assert now[f"ottla_quorum_voter_lag_records{{{first}}}"] > 0
        await rig.until(lambda: told(rig, second)[C + "fencedbrokercount"] == 1)
        assert told(rig, second)[C + "timedoutbrokerheartbeatcount_total"] == 1
        await rig.until(lambda: told(rig, second).get("kafka_server_raftmetrics_commit_latency_max", -1) >= 0)

    play(scenario)


def test_a_directory_that_fails_is_told_with_the_replicas_it_takes_along() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(TOPIC, 4, 3)
        broker = rig.server(2).broker
        assert broker is not None
        await rig.until(lambda: told(rig, 2)[R + "partitioncount"] == 4)
        held = told(rig, 2)["ottla_log_directory_partitions{/more}"]
        rig.cluster.nodes[2].platter.fail("/more")
        await rig.until(lambda: told(rig, 2)["kafka_log_logmanager_offlinelogdirectorycount"] == 1)
        now = told(rig, 2)
        assert now["kafka_log_logmanager_logdirectoryoffline{/more}"] == 1
        assert now["kafka_log_logmanager_logdirectoryoffline{/data}"] == 0
        assert now[R + "offlinereplicacount"] == held > 0

    play(scenario, directories=("/data", "/more"))


def test_damage_is_told_until_it_is_healed() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(TOPIC, 1, 3, retention_ms="-1")
        leader = rig.view(TOPIC, 0).leader
        follower = leader % 3 + 1
        assert await produce(rig, leader, count=5) == 0
        server = rig.server(follower).broker
        assert server is not None
        await rig.until(lambda: told(rig, follower)["ottla_log_records"] == 5)
        damage = DamagedLogError("00000000000000000000.log", 0, 0, "made up by a test")
        damaged = "ottla_replication_damaged_partitions"
        process = rig.cluster.nodes[follower].process
        assert process is not None
        process.run(server.replicas.damaged, TopicPartition(TOPIC, 0), damage)
        assert told(rig, follower)[damaged] == 1
        await rig.until(lambda: told(rig, follower)[damaged] == 0)
        assert told(rig, follower)["ottla_replication_damage_found_total"] == 1
        await rig.until(lambda: told(rig, follower)["ottla_log_records"] == 5)
        assert sum(told(rig, node)[R + "isrshrinks_total"] for node in (1, 2, 3)) == 0  # the controller took it out

    play(scenario)


def test_a_follower_that_cannot_keep_up_shows_its_lag() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(TOPIC, 1, 3, retention_ms="-1")
        leader = rig.view(TOPIC, 0).leader
        follower = next(node for node in (1, 2, 3) if node not in (leader, active(rig)))
        lag = "kafka_server_replicafetchermanager_maxlag{Replica}"
        mend = rig.cluster.nodes[follower].platter.fail(f"/data/{TOPIC}-0", number=24, operations=("write",))
        producer = rig.produce(TOPIC, 0)
        await rig.until(lambda: told(rig, leader)[R + "isrshrinks_total"] == 1, 60)
        await rig.goes_on(producer)
        await rig.until(lambda: told(rig, follower)[lag] > 0)
        mend()
        await rig.until(lambda: len(rig.view(TOPIC, 0, leader).isr) == 3)
        await rig.until(lambda: told(rig, follower)[lag] == 0)
        await rig.until(lambda: told(rig, leader)[R + "isrexpands_total"] == 1)

    play(scenario)


def test_ten_thousand_partitions_make_no_more_series_than_ten() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic("few", 10, 1)
        await rig.until(lambda: told(rig)["ottla_log_segments"] == 10)
        few = {family.name: len(family.samples) for family in gather_now(rig.server(1).metrics.registry)}
        await rig.topic("many", 300, 1)
        await rig.until(lambda: told(rig)["ottla_log_segments"] == 310)
        assert {family.name: len(family.samples) for family in gather_now(rig.server(1).metrics.registry)} == few

    play(scenario, nodes=1)
