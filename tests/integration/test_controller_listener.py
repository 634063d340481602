"""Controllers without a broker: people ask them on their own listener, whichever of them is active."""

import json
import subprocess
import sys
from typing import Any

from ottla.broker.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.broker.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.cli.client import Client
from ottla.cli.local_cluster import Shape
from ottla.runtime.errors import ErrorCode
from ottla.testing.processes import ProcessCluster, wait_for


def asked(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla.cli.main", *words, "-o", "json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def ottla(*words: str) -> list[dict[str, Any]]:
    done = asked(*words)
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def test_each_of_three_controllers_finds_the_active_one_also_after_it_died() -> None:
    with ProcessCluster(shape=Shape(only_controllers=3)) as cluster:
        places = {node.node_id: f"localhost:{node.controller_port}" for node in cluster.nodes}

        def leader(*nodes: int) -> int:
            where = ",".join(places[node] for node in nodes)
            (row,) = ottla("quorum", "describe", "--status", "--bootstrap-controller", where)
            assert row["voters"] == [1, 2, 3]
            number: int = row["leader"]
            return number

        wait_for(lambda: leader(1) > 0, "a leader")
        first = leader(1)
        standby = next(node for node in places if node != first)
        assert leader(standby) == first
        with Client(places[standby]) as client:
            answer = client.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000), CreateTopicsResponse)
        assert answer.topics[0].error_code == ErrorCode.NOT_CONTROLLER

        cluster.kill(first)
        where = ",".join(places.values())
        describe = ("quorum", "describe", "--status", "--bootstrap-controller", where)
        wait_for(lambda: "NOT_LEADER_OR_FOLLOWER" not in asked(*describe).stderr, "the election to be over")
        assert leader(*places) != first
        levels = {
            row["feature"]: row["finalized"]
            for row in ottla("features", "describe", "--bootstrap-controller", places[standby])
        }
        assert levels["metadata.version"] > 0
