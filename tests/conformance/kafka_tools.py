"""Kafka's own command line tools in one JVM (tests/peers/kafka/Tools.java), and what they say in words that two brokers have in common."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ottla.testing.processes import wait_for

KAFKA = str(Path(__file__).parents[1] / "peers" / "kafka" / "kafka")
SOURCE = str(Path(KAFKA).with_name("Tools.java"))
CLASSES = {
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactional-message-copier": "org.apache.kafka.tools.TransactionalMessageCopier",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
}
WHERE_COMES_LAST = ("cluster",)
PATIENT = "controller.quorum.fetch.timeout.ms=30000\ncontroller.quorum.election.timeout.ms=5000\nbroker.session.timeout.ms=60000\n"
"""Settings of Apache Kafka's nodes: two on a busy machine may lose their controller for a minute otherwise, and a tool says so."""
_ASKED_FOR_S = 180.0
"""A tool that finds no controller gives up by itself after 60 s, and is to be asked again."""
_OF_ONE_RUN = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"(localhost|127\.0\.0\.1):\d+"), "BROKER"),
    (re.compile(r"(?<=consumer-readers-)\d+"), "N"),  # the JVM counts its clients
    (re.compile(r'"time":"[^"]*"|\b1[78]\d{11}\b(\s+\d+(?=\s+ledger|\s*$))?|^\d{4}-\d\d-\d\d [\d:,]+'), "TIME"),
    (re.compile(r"(?<=__consumer_offsets:\d:)[1-9]\d*"), "N"),  # how many records of groups there are
    (re.compile(r'(?<="topicId":")[^"]*|(?<=TopicId: )\S+|(?<=Cluster ID: )\S+|(?<=ClusterId:)\s+\S+'), "ID"),
    (re.compile(r'"directoryId": "[^"]*", '), ""),  # of a voter whom the settings name Kafka tells none
    (re.compile(r"^1\s+\S{22}\s+\d+(?=\s+0\s)|(?<=HighWatermark:)\s+\d+|\d+ ms ago|(?<=adminclient-)\d+"), "N"),
    (re.compile(r'(?<="logDir":")[^"]*|/tmp/\S+|^1\s+(localhost|127\.0\.0\.1)\s+\d+\s+\S+(?=\s+unfenced)'), "PLACE"),
)

_PASSES = re.compile(r"TIME WARN .*\(org\.apache\.kafka\.(clients|common)\.[\w.$]+\)$")
"""What the clients inside a tool warn of and try again: metadata without a topic that was made just now, a coordinator that loads, a connection that is
not there yet. How often depends on how fast this JVM is, cold or warm from the tests before. The tools' own warnings, and all errors, count."""


def compiled(program: str, home: Path) -> str:
    """The class path of a program of ours beside Kafka's classes; it is compiled into ``home``."""
    subprocess.run([KAFKA, "install"], check=True, timeout=600)
    library = Path(os.environ.get("PEERS_HOME", Path.home() / ".cache" / "peers")) / "kafka-lib"
    source = Path(KAFKA).with_name(f"{program}.java")
    subprocess.run(["javac", "-d", str(home), "-cp", f"{library}/*", str(source)], check=True, timeout=120)
    return f"{home}:{library}:{library}/*"


class Said:
    """What a tool printed, and its exit code; None while it runs."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.out: str = told["out"]
        self.err: str = told["err"]
        self.code: int | None = told["code"]

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def in_common(self) -> list[str]:
        """All lines that are about the broker, sorted."""
        lines = [*self.out.splitlines(), *self.err.splitlines(), f"exit code {self.code}"]
        told = (in_common(line) for line in lines if line.strip() and not line.startswith("\tat "))
        return sorted(line for line in told if not _PASSES.match(line))


def in_common(line: str) -> str:
    """Without what differs from one run to the next."""
    for pattern, word in _OF_ONE_RUN:
        line = pattern.sub(word, line)
    return " ".join(line.split())


class KafkaTools:
    """``with KafkaTools() as tools``: ``tools.run("consumer-groups", "--list", ...)``."""

    def __enter__(self) -> Self:
        subprocess.run([KAFKA, "install"], check=True, timeout=600)
        command = [KAFKA, "run", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", SOURCE]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def _ask(self, **asked: object) -> dict[str, Any]:
        asking, answers = self._process.stdin, self._process.stdout
        assert asking is not None
        assert answers is not None
        asking.write(json.dumps(asked) + "\n")
        asking.flush()
        line = answers.readline()
        assert line, "the JVM with Kafka's tools has ended"
        told: dict[str, Any] = json.loads(line)
        return told

    def run(self, tool: str, *words: str) -> Said:
        return Said(self._ask(run=CLASSES[tool], words=words))

    def start(self, tool: str, *words: str) -> "Running":
        return Running(self, self._ask(start=CLASSES[tool], words=words)["number"])

    def said(self, number: int) -> Said:
        return Said(self._ask(said=number))

    def stop(self, number: int) -> Said:
        return Said(self._ask(stop=number))


class Running:
    """A tool at work beside others."""

    def __init__(self, tools: KafkaTools, number: int) -> None:
        self._tools = tools
        self._number = number

    @property
    def said(self) -> Said:
        return self._tools.said(self._number)

    def wait_for(self, words: str, count: int = 1) -> None:
        """Until it has printed them so many times."""

        def is_said() -> bool:
            said = self.said
            assert said.code is None or said.out.count(words) >= count, said.out + said.err
            return said.out.count(words) >= count

        wait_for(is_said, f"{words!r}", timeout_s=_ASKED_FOR_S)

    def stop(self) -> Said:
        """As Ctrl-C does."""
        return self._tools.stop(self._number)


Told = dict[str, list[tuple[str, list[str]]]]
"""By chapter: what was asked, and what was said to it."""


class Broker:
    """One that tools are asked about."""

    def __init__(self, tools: KafkaTools, bootstrap: str, home: Path, option: str = "--bootstrap-server") -> None:
        self.tools, self.bootstrap, self.home = tools, bootstrap, home
        self.where = (option, bootstrap)
        self.directories: list[str] = []
        """The log directories of broker 1, where it has several."""
        self.answers: list[tuple[str, list[str]]] = []

    def ask(self, tool: str, words: str) -> None:
        asked = words.split()
        said = self.tools.run(tool, *((*asked, *self.where) if tool in WHERE_COMES_LAST else (*self.where, *asked)))
        self.answers.append((f"{tool} {words}", said.in_common))

    def ask_until(self, tool: str, words: str, *all_of: str) -> None:
        """Until the tool says it: that answer is for the record. (The next might come from a broker that has not heard yet.)"""
        self._ask_until(tool, words, lambda said: all(what in said.out for what in all_of), f"{tool} to say {all_of}")

    def ask_until_gone(self, tool: str, words: str, *none_of: str) -> None:
        """Until the tool names none of them: a broker hears of a deletion a moment after it was answered, Kafka's too."""
        gone = f"{tool} to say none of {none_of}"
        self._ask_until(tool, words, lambda said: not any(what in said.out for what in none_of), gone)

    def _ask_until(self, tool: str, words: str, is_it: Callable[[Said], bool], what: str) -> None:
        answers: list[Said] = []

        def asked() -> bool:
            answers.append(self.tools.run(tool, *self.where, *words.split()))
            return is_it(answers[-1])

        try:
            wait_for(asked, what, _ASKED_FOR_S)
        except TimeoutError as error:
            lines = "\n".join(f"  {line}" for line in (*answers[-1].out.splitlines(), *answers[-1].err.splitlines()))
            raise TimeoutError(f"{error}; the last answer was\n{lines}\nand before that\n{self.answers}") from None
        self.answers.append((f"{tool} {words}", answers[-1].in_common))

    def wait_until_all_say(self, tool: str, words: str, what: str) -> None:
        """Each broker by itself: the next question goes to any of them."""
        option, servers = self.where
        for server in servers.split(","):
            asked = partial(self.tools.run, tool, option, server, *words.split())
            wait_for(lambda asked=asked: what in asked().out, f"{server} to say {what}", _ASKED_FOR_S)  # type: ignore[misc]  # bound now

    def play(self, chapters: Sequence[Callable[["Broker"], None]]) -> Told:
        """One after the other: they may be about the same things."""
        told: Told = {}
        for chapter in chapters:
            chapter(self)
            told[chapter.__name__], self.answers = self.answers, []
        return told
