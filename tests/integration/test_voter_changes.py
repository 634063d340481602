"""Voters come and go while records flow: real processes, the command line, kill -9, restarts."""

import json
import shutil
import signal
import subprocess
import sys
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient

from ottla.cli.initial_controllers import InitialControllers
from ottla.cli.local_node import LocalNode
from ottla.testing import Cluster
from ottla.testing.history import AcknowledgedProducer
from ottla.testing.processes import ProcessCluster, free_port_block, wait_for

TOPIC = "history"
Row = dict[str, Any]


class Quorum:
    """What a person at the command line sees and does."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self._cluster = cluster

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "ottla.cli.main", "quorum", *words, "-o", "json"]
        command += ["-b", self._cluster.bootstrap_servers]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def features(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "ottla.cli.main", "features", *words, "-b", self._cluster.bootstrap_servers]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def rows(self, *words: str) -> list[Row]:
        done = self.run(*words)
        found: list[Row] = json.loads(done.stdout) if done.returncode == 0 else []
        return found

    def described(self, *words: str) -> list[Row]:
        """As soon as somebody leads who can say it."""
        while not (found := self.rows("describe", *words)):
            pass  # each question takes a process, and has a time of its own
        return found

    def roles(self) -> dict[int, str]:
        return {row["node"]: row["role"] for row in self.described("--replication")}

    def voters(self) -> list[int]:
        rows = self.rows("describe", "--status")
        return rows[0]["voters"] if rows else []

    def leader(self) -> int:
        rows = self.rows("describe", "--status")
        return rows[0]["leader"] if rows else -1

    def directory_id(self, node_id: int) -> str:
        return next(str(row["directory id"]) for row in self.described() if row["node"] == node_id)

    def add(self, node: LocalNode) -> None:
        wait_for(
            lambda: bool(self.rows("add-controller", "--config", str(node.properties))), "the controller to be added"
        )

    def remove(self, node_id: int) -> None:
        words = ("--controller-id", str(node_id), "--controller-directory-id", self.directory_id(node_id))
        wait_for(lambda: bool(self.rows("remove-controller", *words)), "the controller to be removed")


def snapshots(node: LocalNode) -> list[str]:
    return [path.name for path in node.home.glob("data/__cluster_metadata-0/*.checkpoint")]


def restart_all(cluster: ProcessCluster) -> None:
    for node in cluster.nodes:
        cluster.kill(node.node_id, signal.SIGTERM)
    for node in cluster.nodes:
        node.start()
    for node in cluster.nodes:
        wait_for(node.ready_file.exists, f"node {node.node_id} to be ready")


def test_a_voter_is_added_and_the_leader_removed_while_records_flow() -> None:
    with ProcessCluster(nodes=3) as cluster:
        quorum = Quorum(cluster)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 1, 3, config={"min.insync.replicas": "2"})])[TOPIC].result(60)
        with AcknowledgedProducer(cluster.bootstrap_servers, TOPIC) as history:
            wait_for(lambda: len(history.times) > 100, "the producer to run")
            quorum.add(cluster.add_node())
            wait_for(lambda: quorum.voters() == [1, 2, 3, 4], "node 4 to vote")

            removed = quorum.leader()
            quorum.remove(removed)
            left = [node for node in (1, 2, 3, 4) if node != removed]
            wait_for(lambda: quorum.leader() in left, "the others to elect a leader")
            wait_for(lambda: quorum.voters() == left, "the removed node to be no voter")
            wait_for(lambda: quorum.roles().get(removed) == "observer", "the removed node to follow")

            killed = quorum.leader()
            cluster.kill(killed)
            wait_for(lambda: quorum.leader() in left and quorum.leader() != killed, "two of three to elect a leader")
            cluster.start(killed)
            acknowledged = len(history.times)
            wait_for(lambda: len(history.times) > acknowledged + 100, "the producer to go on")
        assert history.failures == []
        history.check()

        restart_all(cluster)  # three of the four are configured with the static voters 1, 2, 3
        wait_for(lambda: quorum.voters() == left, "the voters of the log")
        history.check()


def test_a_controller_joins_by_itself_when_it_is_told_to() -> None:
    """What it missed comes in a snapshot, voters included."""
    with ProcessCluster(nodes=1, settings={"metadata.log.max.record.bytes.between.snapshots": "2000"}) as cluster:
        quorum = Quorum(cluster)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        for created in admin.create_topics([NewTopic(f"topic-{number}", 20, 1) for number in range(5)]).values():
            created.result(60)
        wait_for(lambda: snapshots(cluster.node(1)) != [], "a snapshot")
        joined = cluster.add_node({"controller.quorum.auto.join.enable": "true"})
        wait_for(lambda: quorum.voters() == [1, 2], "node 2 to join")
        assert snapshots(joined) != []
        cluster.add_node()
        refused = quorum.run("remove-controller", "--controller-id", "3", "--controller-directory-id", "-")

        assert refused.returncode == 1
        assert "VOTER_NOT_FOUND: node 3 is no voter: the voters are 1, 2" in refused.stderr
        wait_for(lambda: quorum.roles().get(3) == "observer", "node 3 to follow without a vote")


def test_a_static_quorum_is_upgraded_and_a_dead_disk_replaced() -> None:
    """docs/quorum.md, "An operator's walk"."""
    with ProcessCluster(nodes=3) as cluster:
        quorum = Quorum(cluster)
        upgrade = ("upgrade", "--feature", "kraft.version=1")
        wait_for(lambda: quorum.features(*upgrade).returncode == 0, "every voter to be registered")
        [status] = quorum.described("--status")
        assert (status["kraft.version"], status["voters"]) == (1, [1, 2, 3])

        lost = quorum.leader()
        disk = quorum.directory_id(lost)
        cluster.kill(lost)
        node = cluster.node(lost)
        shutil.rmtree(node.home / "data")
        others = ",".join(f"localhost:{each.controller_port}" for each in cluster.nodes if each is not node)
        lines = node.properties.read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if not line.startswith("controller.quorum.voters=")]
        kept.append(f"controller.quorum.bootstrap.servers={others}")
        node.properties.write_text("\n".join(kept) + "\n", encoding="utf-8")
        cluster.format(node, InitialControllers(none=True))
        removed = quorum.run("remove-controller", "--controller-id", str(lost), "--controller-directory-id", disk)
        assert removed.returncode == 0, removed.stderr  # it waits for the election
        node.start()
        added = quorum.run("add-controller", "--config", str(node.properties))
        assert added.returncode == 0, added.stderr  # and for the process to start
        wait_for(lambda: quorum.voters() == [1, 2, 3], "the new disk to vote")
        assert quorum.directory_id(lost) != disk


def test_a_second_process_with_a_voters_id_is_refused_and_says_so() -> None:
    with ProcessCluster(nodes=3) as cluster:
        quorum = Quorum(cluster)
        follower = next(node for node, role in quorum.roles().items() if role == "follower")
        disk = quorum.directory_id(follower)
        twin = LocalNode(cluster.home / "twin", follower, free_port_block(1))
        text = cluster.node(follower).properties.read_text(encoding="utf-8")
        text = text.replace(str(cluster.node(follower).home), str(twin.home)).replace(
            "=broker,controller", "=controller"
        )
        listeners = f"listeners=CONTROLLER://localhost:{twin.controller_port}"
        own = ("listeners=", "advertised.listeners=", "ottla.metrics.listener=")
        lines = [line for line in text.splitlines() if not line.startswith(own)]
        twin.home.mkdir(parents=True)
        twin.properties.write_text("\n".join([*lines, listeners]) + "\n", encoding="utf-8")
        cluster.format(twin)
        twin.start()
        try:
            wait_for(
                lambda: "refuses this process" in twin.log_file.read_text(encoding="utf-8"), "the twin to be refused"
            )
            assert quorum.directory_id(follower) == disk
            wait_for(lambda: quorum.roles().get(follower) in ("follower", "leader"), "the first to go on")
        finally:
            assert twin.process is not None
            twin.process.terminate()
            twin.process.wait(60)


def test_a_cluster_inside_a_test_grows_too() -> None:
    with Cluster(nodes=1) as cluster:
        node_id = cluster.add_node({"controller.quorum.auto.join.enable": "true"})
        wait_for(lambda: voters_of(cluster.bootstrap_servers) == [1, node_id], "node 2 to join")
        cluster.stop_node(1)
        cluster.start_node(1)
        wait_for(lambda: voters_of(cluster.bootstrap_servers) == [1, node_id], "both to vote again")


def voters_of(bootstrap_servers: str) -> list[int]:
    """As kafka-python's administrator sees them; none while nobody leads."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers.split(","))
    try:
        topics = admin.describe_metadata_quorum()["topics"]
    finally:
        admin.close()
    return [each["replica_id"] for each in topics[0]["partitions"][0]["current_voters"]] if topics else []
