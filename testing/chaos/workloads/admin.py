"""Topics that are made, changed, deleted and described: what the controller confirms is so for all who ask it afterwards.

What a topic is known by is one setting, `retention.ms`, which is set to another number each time.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from ottla.testing.chaos.workloads.clients import Counted, cause, impatient
from ottla.testing.chaos.workloads.workload import Actor, Workload
from ottla.testing.checker import Admin, Outcome, now

ADMINISTRATORS = 3
NAMES = 6
PAUSE_S = 0.05
WAIT_S = 5.0
FINALLY_S = 20.0
SETTING = "retention.ms"
FIRST = 10**11
"""Years, so that nothing is too old."""
CERTAIN = {
    KafkaError.TOPIC_ALREADY_EXISTS: "exists",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "absent",
}


class AdminChurn(Workload):
    name = "admin"
    description = "topics made, altered, deleted, described by several at once: linearizable at the controller"

    def __init__(self) -> None:
        super().__init__()
        self.values = count(FIRST)

    def topic_names(self) -> list[str]:
        """None that is there from the beginning, and goes on."""
        return []

    def names(self) -> list[str]:
        return [f"{self.name}-{self.site.seed}-{number}" for number in range(NAMES)]

    def actors(self) -> Sequence[Callable[[], Actor]]:
        return [partial(Administrator, self, f"m{number}") for number in range(ADMINISTRATORS)]

    def read_finally(self) -> None:
        """At rest every broker knows all: that is what the last of them says."""
        requests = Requests("final", self.site.bootstrap_servers, self.history)
        for name in self.names():
            until = time.monotonic() + FINALLY_S
            while requests.describe(name, local=False).outcome is not Outcome.OK and time.monotonic() < until:
                time.sleep(PAUSE_S)


class Administrator:
    def __init__(self, workload: AdminChurn, name: str) -> None:
        self._workload = workload
        self._rng = workload.rng(name)
        self._requests = Requests(name, workload.site.bootstrap_servers, workload.history)

    def step(self) -> None:
        name = self._rng.choice(self._workload.names())
        value = str(next(self._workload.values))
        match self._rng.choice(["create", "create", "alter", "alter", "delete", "describe", "describe"]):
            case "create":
                self._requests.create(name, value)
            case "alter":
                self._requests.alter(name, value)
            case "delete":
                self._requests.delete(name)
            case _:
                self._requests.describe(name, local=True)
        time.sleep(PAUSE_S)

    def close(self) -> None:
        pass


class Requests:
    """Each is asked once; what came of it is noted."""

    def __init__(self, name: str, bootstrap: str, history: Counted) -> None:
        self._name, self._history = name, history
        self._admin = AdminClient(impatient(bootstrap))

    def create(self, topic: str, value: str) -> None:
        new = NewTopic(topic, 1, 3, config={SETTING: value})
        asked = Admin(action="create", topic=topic, value=value)
        self._do(asked, lambda: self._admin.create_topics([new], request_timeout=WAIT_S)[topic].result(2 * WAIT_S))

    def delete(self, topic: str) -> None:
        asked = Admin(action="delete", topic=topic)
        self._do(asked, lambda: self._admin.delete_topics([topic], request_timeout=WAIT_S)[topic].result(2 * WAIT_S))

    def alter(self, topic: str, value: str) -> None:
        entry = ConfigEntry(SETTING, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])

        def call() -> None:
            [future] = self._admin.incremental_alter_configs([resource], request_timeout=WAIT_S).values()
            future.result(2 * WAIT_S)

        self._do(Admin(action="alter", topic=topic, value=value), call)

    def describe(self, topic: str, *, local: bool) -> Admin:
        asked = Admin(action="describe", topic=topic, local=local)
        resource = ConfigResource(ResourceType.TOPIC, topic)

        def call() -> None:
            [future] = self._admin.describe_configs([resource], request_timeout=WAIT_S).values()
            asked.value = future.result(2 * WAIT_S)[SETTING].value

        return self._do(asked, call)

    def _do(self, asked: Admin, call: Callable[[], object]) -> Admin:
        asked.process, asked.begin = self._name, now()
        try:
            call()
            asked.outcome = Outcome.OK
        except KafkaException as error:
            self._failed(asked, cause(error))
        except TimeoutError as error:
            asked.error = str(error)
        if asked.outcome is not Outcome.UNKNOWN:
            asked.end = now()
        self._history.write(asked)
        return asked

    @staticmethod
    def _failed(asked: Admin, error: KafkaError) -> None:
        """What a name's being there or not answers is an answer. Other errors may have come after it was done."""
        asked.error = error.str()
        result = CERTAIN.get(error.code())
        if result is not None:
            asked.result, asked.outcome = result, Outcome.OK
        elif asked.action == "describe":
            asked.outcome = Outcome.FAIL
