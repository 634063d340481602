"""What Kafka's tools for replicas and leaders are asked, of two brokers."""

import json
from collections.abc import Callable, Sequence

from confluent_kafka import Producer

from ottla.testing.processes import wait_for
from tests.conformance.kafka_tools import Broker, in_common

TOPIC, PAIR, PLACED = "moved", "pair", "placed"
RECORDS = 150  # of 20 kB
SLOWLY = "--throttle 10000"
PATIENCE_S = 240
"""Apache Kafka's follower once let a produce wait a minute beside a busy machine."""


def reassign(broker: Broker, *commands: str) -> None:
    for words in commands:
        broker.ask("reassign-partitions", words)


def elect(broker: Broker, *commands: str) -> None:
    for words in commands:
        broker.ask("leader-election", words)


def plan(broker: Broker, name: str, *moves: tuple[str, int, list[int]], places: Sequence[str] | None = None) -> str:
    """The option that names the file. ``places``: the directories of the replicas."""
    path = broker.home / f"{name}.json"
    partitions: list[dict[str, object]] = [
        {"topic": topic, "partition": index, "replicas": replicas} | ({} if places is None else {"log_dirs": places})
        for topic, index, replicas in moves
    ]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}), encoding="utf-8")
    return f"--reassignment-json-file {path}"


def of_moves(broker: Broker) -> None:
    broker.ask("topics", f"--create --topic {TOPIC} --replica-assignment 1")
    broker.ask("topics", f"--create --topic {PAIR} --replica-assignment 1:2,2:1")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 1})
    for _ in range(RECORDS):
        producer.produce(TOPIC, b"x" * 20_000, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    reassign(broker, "--list")
    away = plan(broker, "away", (TOPIC, 0, [2]))
    reassign(broker, f"{away} --execute")
    broker.ask_until("reassign-partitions", f"{away} --verify", "is completed")
    broker.ask("topics", f"--describe --topic {TOPIC}")
    order = plan(broker, "order", (PAIR, 0, [2, 1]), (PAIR, 1, [2, 1]))
    reassign(broker, f"{order} --execute")
    completed = ("partition pair-0 is completed", "partition pair-1 is completed")
    broker.ask_until("reassign-partitions", f"{order} --verify", *completed)
    broker.wait_until_all_say("topics", f"--describe --topic {PAIR}", "Replicas: 2,1")
    reassign(broker, "--list")
    broker.ask("topics", f"--describe --topic {PAIR}")


def of_slow_moves(broker: Broker) -> None:
    back = plan(broker, "back", (TOPIC, 0, [1]))
    reassign(broker, f"{back} --execute {SLOWLY}")
    broker.ask_until("reassign-partitions", "--list", "adding: 1")
    broker.wait_until_all_say("topics", f"--describe --topic {TOPIC}", "Replicas: 1,2")
    throttled = ("leader.replication.throttled.replicas=", "follower.replication.throttled.replicas=")
    broker.ask_until("configs", f"--describe --entity-type topics --entity-name {TOPIC}", *throttled)
    reassign(broker, f"{back} --verify --preserve-throttles", f"{back} --verify", f"{back} --execute")
    reassign(broker, f"{back} --execute --additional {SLOWLY}")
    broker.ask("topics", f"--describe --topic {TOPIC}")
    reassign(broker, f"{back} --cancel --preserve-throttles", f"{back} --cancel", "--list")
    broker.ask_until("reassign-partitions", f"{back} --verify", "Clearing topic-level throttles")
    broker.ask("topics", f"--describe --topic {TOPIC}")
    reassign(broker, f"{back} --execute --throttle 100000000")
    broker.ask_until("reassign-partitions", f"{back} --verify", "is completed")
    broker.ask_until_gone("configs", f"--describe --entity-type topics --entity-name {TOPIC}", "throttled.replicas=")


def of_plans_that_cannot_be(broker: Broker) -> None:
    impossible: dict[str, list[tuple[str, int, list[int]]]] = {
        "unknown-broker": [(TOPIC, 0, [7])],
        "unknown-topic": [("nowhere", 0, [1])],
        "unknown-partition": [(TOPIC, 9, [1])],
        "twice": [(TOPIC, 0, [1]), (TOPIC, 0, [2])],
        "broker-twice": [(TOPIC, 0, [1, 1])],
        "no-replicas": [(TOPIC, 0, [])],
        "nothing": [],
    }
    for name, moves in impossible.items():
        option = plan(broker, name, *moves)
        reassign(broker, f"{option} --execute")
        if name != "unknown-broker":  # the tool asks that one, for a minute
            reassign(broker, f"{option} --verify", f"{option} --cancel")
    more = plan(broker, "more", (TOPIC, 0, [1, 2]))
    reassign(broker, f"{more} --execute --disallow-replication-factor-change")
    topics = broker.home / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "nowhere"}]}), encoding="utf-8")
    reassign(
        broker,
        f"--topics-to-move-json-file {topics} --broker-list 1,2 --generate --disable-rack-aware",
        "--execute",
        "",
    )


def of_elections(broker: Broker) -> None:
    elect(broker, f"--election-type preferred --topic {PAIR} --partition 0")
    elect(
        broker,
        f"--election-type preferred --topic {PAIR} --partition 0",
        "--election-type preferred --all-topic-partitions",
    )
    broker.ask("topics", f"--describe --topic {PAIR}")
    elect(
        broker,
        f"--election-type unclean --topic {TOPIC} --partition 0",
        "--election-type unclean --all-topic-partitions",
    )
    elect(
        broker,
        "--election-type preferred --topic nowhere --partition 0",
        f"--election-type preferred --topic {TOPIC} --partition 9",
    )
    elect(broker, f"--election-type unclean --topic {TOPIC} --partition 9")
    both = broker.home / "both.json"
    places = [{"topic": PAIR, "partition": each} for each in (0, 9)]
    both.write_text(json.dumps({"partitions": places}), encoding="utf-8")
    elect(
        broker,
        f"--election-type preferred --path-to-json-file {both}",
        f"--election-type unclean --path-to-json-file {both}",
    )
    elect(broker, "--election-type preferred", f"--topic {PAIR} --partition 0")


def of_verified_replicas(broker: Broker) -> None:
    """The tool goes on for ever; what it says the first times counts."""
    where = f"--broker-list {broker.bootstrap.split(',')[0]} --report-interval-ms 200 --topics-include"
    verifying = broker.tools.start("replica-verification", *f"{where} {PAIR}|{TOPIC}".split(), "--time", "-2")
    wait_for(lambda: "max lag is" in verifying.said.out, "a report", timeout_s=180)
    told = {in_common(line) for line in verifying.stop().out.splitlines()}
    broker.answers.append(("replica-verification", sorted(told)))
    for words in (f"{where} nowhere", f"{where} *(", "--topics-include x"):
        said = broker.tools.run("replica-verification", *words.split())
        broker.answers.append((words.removeprefix(where), said.in_common))


def of_directories(broker: Broker) -> None:
    """A replica moves from one log directory of its broker to the other."""
    broker.ask("topics", f"--create --topic {PLACED} --replica-assignment 1:2")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS):
        producer.produce(PLACED, str(number), partition=0)
    assert producer.flush(PATIENCE_S) == 0
    there = directory_of(broker)
    other = next(each for each in broker.directories if each != there)
    for name, places in {
        "other": [other, "any"], "same": [other, "any"], "nowhere": ["/tmp/nowhere", "any"], "too-few": [other], "relative": ["more", "any"],
    }.items():  # fmt: skip
        option = plan(broker, f"directory-{name}", (PLACED, 0, [1, 2]), places=places)
        reassign(broker, f"{option} --execute --replica-alter-log-dirs-throttle 100000000")
        if name in ("other", "same"):
            broker.ask_until("reassign-partitions", f"{option} --verify", "placed-0-1 completed successfully")
            assert directory_of(broker) == other
        else:
            reassign(broker, f"{option} --verify")


def directory_of(broker: Broker) -> str:
    """Where broker 1 has its replica."""
    lines = broker.tools.run(
        "log-dirs", *broker.where, "--describe", "--broker-list", "1", "--topic-list", PLACED
    ).lines
    told = json.loads(next(line for line in lines if line.startswith("{")))
    return next(str(each["logDir"]) for each in told["brokers"][0]["logDirs"] if each["partitions"])


CHAPTERS: tuple[Callable[[Broker], None], ...] = (
    of_moves,
    of_slow_moves,
    of_plans_that_cannot_be,
    of_elections,
    of_verified_replicas,
    of_directories,
)
