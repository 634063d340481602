"""`ottla metadata` against a real cluster: what happened is told, with its cause, by whoever is asked."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.cli.local_node import LocalNode
from ottla.testing.processes import ProcessCluster, wait_for

VICTIM = 2


@pytest.fixture(scope="module")
def bereaved() -> Iterator[ProcessCluster]:
    """Three nodes, of which one was killed after a topic with a replica on each was created."""
    with ProcessCluster(nodes=3) as cluster:
        created = ottla("topics", "create", "flights", "--partitions", "3", "-b", cluster.bootstrap_servers)
        assert created.returncode == 0, created.stderr
        cluster.wait_for_topic("flights", 3)  # the victim has it in its log, too
        cluster.kill(VICTIM)
        wait_for(lambda: is_told_fenced(cluster), "the victim to be fenced")
        yield cluster


def ottla(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def printed(*words: str) -> Any:
    result = ottla("metadata", *words, "-o", "json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def blame(*source: str) -> list[dict[str, Any]]:
    rows = printed("blame", "flights/0", *source)
    assert isinstance(rows, list)
    return rows


def is_told_fenced(cluster: ProcessCluster) -> bool:
    """False also while nobody can be asked, for the victim may have led the quorum."""
    told = ottla("metadata", "blame", "flights/0", *online(cluster), "-o", "json")
    return told.returncode == 0 and "is fenced" in json.dumps(json.loads(told.stdout)[-1])


def living(cluster: ProcessCluster) -> list[LocalNode]:
    return [node for node in cluster.nodes if node.node_id != VICTIM]


def online(cluster: ProcessCluster) -> tuple[str, str]:
    return "-b", ",".join(f"localhost:{node.port}" for node in living(cluster))


def test_blame_names_the_request_and_the_fencing(bereaved: ProcessCluster) -> None:
    first, *_, last = blame(*online(bereaved))
    assert first["cause"].startswith("create_topics by client ottla-cli through broker ")
    assert first["what"].startswith("created on ")
    assert VICTIM in first["in sync"]
    assert last["cause"] == f"broker {VICTIM} is fenced: its connection ended and it did not come back"
    assert f"out of sync: {VICTIM}" in last["what"]
    assert VICTIM not in last["in sync"]


def test_every_controller_and_every_directory_tells_the_same(bereaved: ProcessCluster) -> None:
    told = blame(*online(bereaved))
    for node in living(bereaved):
        for source in (
            ("--bootstrap-controller", f"localhost:{node.controller_port}"),
            ("-d", str(node.home / "data")),
        ):
            wait_for(lambda source=source: blame(*source) == told, f"{source} to have the last of it, too")  # type: ignore[misc]  # bound now
    assert blame("-d", str(bereaved.node(VICTIM).home / "data")) == told[:1], "it died before its own fencing"


def test_the_cluster_as_it_was_before_the_death_is_still_there(bereaved: ProcessCluster) -> None:
    created = blame(*online(bereaved))[0]["offset"]
    source = online(bereaved)
    ends = [json.loads(line) for line in ottla("metadata", "dump", "-o", "json", *source).stdout.splitlines()]
    whole = next(row["last_offset"] for row in ends if row["offset"] <= created <= row["last_offset"])
    brokers = [printed("at", str(at), *source)["cluster"]["brokers"] for at in (whole, ends[-1]["last_offset"])]
    assert [[each[str(VICTIM)]["fenced"] for each in brokers]] == [[False, True]]
    changes = printed("diff", str(whole), "latest", *source)
    assert ("broker", str(VICTIM)) in [(each["kind"], each["name"]) for each in changes]


def test_reading_leaves_no_observer_behind(bereaved: ProcessCluster) -> None:
    blame(*online(bereaved))
    described = ottla("quorum", "describe", *online(bereaved), "-o", "json")
    assert {row["role"] for row in json.loads(described.stdout)} == {"leader", "follower"}


def test_features_are_described_and_changed(bereaved: ProcessCluster) -> None:
    source = online(bereaved)

    def finalized() -> int:
        rows = json.loads(ottla("features", "describe", *source, "-o", "json").stdout)
        return next(int(row["finalized"]) for row in rows if row["feature"] == "metadata.version")

    assert finalized() == 30
    refused = ottla("features", "upgrade", *source, "--feature", "metadata.version=31")
    assert refused.returncode == 1
    assert refused.stderr == (
        "ottla: metadata.version: INVALID_UPDATE_VERSION: metadata.version has the levels 25 to 30, not 31\n"
    )
    assert ottla("features", "downgrade", *source, "--release-version", "4.2", "--dry-run").returncode == 0
    assert finalized() == 30
    done = ottla("features", "downgrade", *source, "--release-version", "4.2")
    assert (done.returncode, done.stdout) == (0, "metadata.version is at level 29\n")
    wait_for(lambda: finalized() == 29, "the brokers to know")
    assert ottla("features", "upgrade", *source, "-f", "metadata.version=30").returncode == 0
    wait_for(lambda: finalized() == 30, "the brokers to know")


def test_a_dead_controller_is_named_in_one_line(bereaved: ProcessCluster) -> None:
    result = ottla("metadata", "dump", "--bootstrap-controller", f"localhost:{bereaved.node(VICTIM).controller_port}")
    assert result.returncode == 1
    assert "no controller answers there" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_history_begins_with_the_snapshot_once_the_log_was_compacted() -> None:
    small = {"metadata.log.max.record.bytes.between.snapshots": "1500", "metadata.max.retention.bytes": "1"}
    with ProcessCluster(nodes=1, settings=small) as cluster:
        source = ("-b", cluster.bootstrap_servers)
        names = (f"topic-{number}" for number in range(100))
        while not list(cluster.node(1).home.glob("data/__cluster_metadata-0/*.log.deleted")):
            created = ottla("topics", "create", next(names), "--partitions", "20", *source)
            assert created.returncode == 0, created.stderr
        for where in (source, ("-d", str(cluster.node(1).home / "data"))):
            before = -1
            while True:  # a snapshot may be taken, and the log before it go, between one question and the next
                first = printed("blame", "topic-0/0", *where)[0]
                begins = first["offset"]
                if begins == before:
                    break
                before = begins
                at, refused = (
                    ottla("metadata", "at", str(each), *where, "-o", "json") for each in (begins, begins - 1)
                )
            assert first["what"] == "so it was in the snapshot; what came before is gone"
            assert "topic-0" in json.loads(at.stdout)["topics"]
            assert refused.returncode == 1
            assert f"the log has {begins} to " in refused.stderr
            assert f"a snapshot ends at {begins}; what was before is gone" in refused.stderr
