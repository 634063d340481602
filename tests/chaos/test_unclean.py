"""An unclean election loses what nobody else had, and the checker permits exactly that."""

from pathlib import Path

from confluent_kafka.admin import AdminClient

from ottla.testing.chaos.site import Site
from ottla.testing.chaos.workloads.sequences import Sequences
from ottla.testing.checker import Kind
from ottla.testing.processes import ProcessCluster, wait_for

UNCLEAN: dict[str, str] = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
SETTINGS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "300"}
ALONE = 100
"""Records that a leader takes while its follower is away."""


class OnePartition(Sequences):
    PARTITIONS = 1


def partition(cluster: ProcessCluster, topic: str) -> tuple[int, list[int], list[int]]:
    """Leader, replicas, those in sync. Who is asked may not have heard of the topic yet: leader -1."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    found = admin.list_topics(topic, timeout=60).topics[topic].partitions.get(0)
    return (found.leader, found.replicas, found.isrs) if found is not None else (-1, [], [])


def test_what_an_unclean_election_takes_is_permitted_and_told(tmp_path: Path) -> None:
    with ProcessCluster(nodes=3, settings=SETTINGS) as cluster:
        directories: dict[int, tuple[Path, ...]] = {node.node_id: (node.home / "data",) for node in cluster.nodes}
        workload = OnePartition(replication=2, topic_settings=UNCLEAN)
        workload.prepare(Site(cluster.bootstrap_servers, (1, 2, 3), 1, tmp_path, True, directories))
        [topic] = workload.topics
        cluster.wait_for_topic(topic)
        leader, replicas, _ = partition(cluster, topic)
        [follower] = set(replicas) - {leader}
        workload.start()
        wait_for(lambda: workload.operations() > ALONE, "records in both")
        cluster.kill(follower)
        wait_for(lambda: partition(cluster, topic)[2] == [leader], "a leader alone")
        written = workload.operations()
        wait_for(lambda: workload.operations() > written + ALONE, "records that it has alone")
        cluster.kill(leader)
        cluster.start(follower)
        wait_for(lambda: partition(cluster, topic)[0] == follower, "an unclean election")
        written = workload.operations()
        wait_for(lambda: workload.operations() > written + ALONE, "records of the new leader")
        cluster.start(leader)
        wait_for(lambda: len(partition(cluster, topic)[2]) == 2, "both to be in sync")
        workload.stop()
        workload.finish()
    report = workload.check()
    assert report.valid, str(report)
    assert {each.kind for each in report.permitted} <= {Kind.LOST, Kind.OFFSET_CHANGED, Kind.REORDERED}
    assert Kind.LOST in {each.kind for each in report.permitted}
