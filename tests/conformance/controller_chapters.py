"""What Kafka's tools ask of controllers (``--bootstrap-controller``), combined with brokers or on nodes of their own."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.conformance.admin_chapters import OUR_WORDS
from tests.conformance.kafka_tools import Broker, KafkaTools

SETTINGS = (
    "--describe --entity-type brokers --entity-name 1",
    "--alter --entity-type brokers --entity-name 1 --add-config log.cleaner.threads=2",
    "--alter --entity-type brokers --entity-default --add-config log.retention.ms=90000000",
    "--describe --entity-type brokers --entity-default",
    "--alter --entity-type brokers --entity-name 1 --delete-config log.cleaner.threads",
    "--alter --entity-type brokers --entity-default --delete-config log.retention.ms",
    "--describe --entity-type brokers",
    "--alter --entity-type brokers --entity-name 9 --add-config log.cleaner.threads=2",
    "--alter --entity-type broker-loggers --entity-name 1 --add-config no.such.Logger=INFO",
    "--alter --entity-type broker-loggers --entity-name 1 --add-config root=LOUD",
    "--alter --entity-type broker-loggers --entity-name 1 --delete-config root",
    "--alter --entity-type broker-loggers --entity-name 1 --add-config root=WARN",
    "--alter --entity-type topics --entity-name nowhere --add-config retention.ms=1",
    "--describe --entity-type topics",
    "--describe --entity-type topics --entity-name nowhere",
)
HEARD = {SETTINGS[3]: "log.retention.ms=90000000"}
FORGOTTEN = {SETTINGS[6]: ("log.retention.ms=90000000", "log.cleaner.threads=2")}
"""A change is answered when it is committed; the image that is described has it a moment later, Kafka's too."""
REPLICA = re.compile(r"^(N|\d+ \S{22} \d+) \d+ .* (Leader|Follower|Observer)$")
_LEADER = re.compile(
    r"(?<=LeaderId: )\d+|(?<=LeaderEpoch: )\d+|(?<=MaxFollowerLag: )\d+|(?<=MaxFollowerLagTimeMs: )-?\d+"
)
_PLACE = re.compile(r"(localhost|127\.0\.0\.1) \d+")
_REASON = re.compile(r"^(Could not (upgrade|downgrade|disable) \S+( to \d+)?\. ).*")
"""What follows is said in our words."""
_VOTER = re.compile(r"(?<=ontroller )\d+|(?<=controller id )\d+|(?<=directory id )\S{22}\.?")


class Controllers(Broker):
    """Those that tools are asked about."""

    def __init__(self, tools: KafkaTools, bootstrap: str, home: Path, properties: Sequence[Path] = ()) -> None:
        """``properties``: the server.properties of nodes 1, 2 and so on."""
        super().__init__(tools, bootstrap, home, "--bootstrap-controller")
        self.properties = properties

    def follower(self) -> tuple[str, str]:
        """Node id and directory id of a voter that does not lead."""
        rows = [line.split() for line in self.replication().splitlines()]
        return next((row[0], row[1]) for row in rows if row and row[-1] == "Follower")

    def wait_for_a_follower(self) -> None:
        """Before what is said is for the record."""
        self.ask_until("metadata-quorum", "describe --replication", "Follower")
        self.answers.clear()

    def replication(self) -> str:
        return self.tools.run("metadata-quorum", *self.where, "describe", "--replication").out


def told(lines: list[str]) -> list[str]:
    """What both are to have in common."""
    kept = []
    for line in lines:
        if line.startswith("ottla."):
            continue
        for pattern, words in (
            (REPLICA, r"a \2"),
            (_LEADER, "N"),
            (_PLACE, "PLACE"),
            (_REASON, r"\1..."),
            (_VOTER, "N"),
            (OUR_WORDS, r"\1..."),
        ):
            line = pattern.sub(words, line)
        kept.append(line)
    return sorted(kept)


def of_the_quorum(controllers: Broker) -> None:
    for words in ("describe --status", "describe --replication", "describe --replication --human-readable"):
        controllers.ask("metadata-quorum", words)


def of_the_cluster(controllers: Broker) -> None:
    for words in ("cluster-id", "list-endpoints", "list-endpoints --include-fenced-brokers", "unregister --id 77"):
        controllers.ask("cluster", words)


def of_settings(controllers: Broker) -> None:
    # Kafka sets this one by itself where leaders are elected out of the eligible (KIP-966).
    controllers.ask("configs", "--alter --entity-type brokers --entity-default --add-config min.insync.replicas=1")
    for words in SETTINGS:
        if words in HEARD:
            controllers.ask_until("configs", words, HEARD[words])
        elif words in FORGOTTEN:
            controllers.ask_until_gone("configs", words, *FORGOTTEN[words])
        else:
            controllers.ask("configs", words)


def of_features(controllers: Broker) -> None:
    for words in (
        "upgrade --feature group.version=1",
        "upgrade --feature group.version=9",
        "upgrade --feature no.such.version=1",
        "downgrade --feature group.version=0 --dry-run",
        "disable --feature group.version --dry-run",
        "downgrade --feature kraft.version=0",
    ):
        controllers.ask("features", words)
    # Refused until each voter has told the leader what it supports, which Kafka's do once a fetch timeout.
    controllers.ask_until(
        "features", "upgrade --feature kraft.version=1 --dry-run", "kraft.version can be upgraded to 1"
    )


def of_voters(controllers: Broker) -> None:
    """The voters of a static quorum come to stand in the log; one leaves, and comes back."""
    assert isinstance(controllers, Controllers)
    controllers.ask_until("features", "upgrade --feature kraft.version=1", "kraft.version was upgraded to 1")
    controllers.ask_until("metadata-quorum", "describe --status", "directoryId")
    node, directory = controllers.follower()
    removal = f"remove-controller --controller-id {node} --controller-directory-id {directory}"
    controllers.ask("metadata-quorum", f"{removal} --dry-run")
    controllers.ask("metadata-quorum", removal)
    controllers.ask("metadata-quorum", removal)
    controllers.ask_until("metadata-quorum", "describe --replication", "Observer")
    addition = f"--command-config {controllers.properties[int(node) - 1]} add-controller"
    controllers.ask("metadata-quorum", addition)
    controllers.ask_until("metadata-quorum", "describe --replication", "Follower")
    controllers.ask("metadata-quorum", addition)


CHAPTERS: tuple[Callable[[Broker], None], ...] = (of_the_quorum, of_the_cluster, of_settings, of_features)
CHAPTERS_OF_DEDICATED = (*CHAPTERS, of_voters)
