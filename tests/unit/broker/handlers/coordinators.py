"""Stand-ins of a node's coordinators: everything is theirs but what its name says otherwise of."""

from typing import Any, cast

from ottla.runtime.errors import ErrorCode, KafkaError
from tests.unit.broker.coordinator.groups.group_bench import Bench
from tests.unit.broker.handlers.conftest import Site


class Coordinators:
    """Of groups or of transactional ids; ``bench`` has the shard that answers for all of them."""

    def __init__(self, bench: Any) -> None:
        self.bench = bench
        self.is_loading = False

    def shard_of(self, name: str) -> Any:
        if name == "elsewhere":
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "another broker does")
        if self.is_loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "a moment")
        return self.bench.shard

    def shards(self) -> Any:
        return iter(() if self.is_loading else (self.bench.shard,))

    def has(self, topic: str, index: int) -> bool:
        return bool(self.bench.has(topic, index))


class InternalTopics:
    """They are there."""

    def require(self, name: str, on_ready: Any, timeout_ms: int) -> None:
        on_ready(ErrorCode.NONE)


def coordinated(site: Site) -> Bench:
    """A shard of groups, which is this site's."""
    made = Bench()
    site.broker.groups = cast(Any, Coordinators(made))
    site.broker.internal_topics = cast(Any, InternalTopics())
    return made
