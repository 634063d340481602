"""One node in this process for all tests of the pipeline's client; each takes topics of its own."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.pipeline.wire.cluster import Cluster as Client
from ottla.pipeline.wire.settings import client_settings
from ottla.testing.cluster import Cluster

_numbers = count(1)
MakeTopic = Callable[..., str]


@pytest.fixture(scope="session")
def single() -> Iterator[Cluster]:
    # A producer asks for the metadata of its topics again and again, which would make anew what a test deletes.
    with Cluster(nodes=1, settings={"auto.create.topics.enable": "false"}) as running:
        yield running


@pytest.fixture
def client(single: Cluster) -> Iterator[Client]:
    with Client(client_settings({"bootstrap.servers": single.bootstrap_servers})) as found:
        yield found


@pytest.fixture
def make_topic(single: Cluster) -> MakeTopic:
    """``make_topic(partitions, {config})`` makes a topic of its own and returns its name."""
    admin = AdminClient({"bootstrap.servers": single.bootstrap_servers})

    def make(partitions: int = 1, config: dict[str, str] | None = None) -> str:
        name = f"pipeline-{next(_numbers)}"
        for made in admin.create_topics([NewTopic(name, partitions, 1, config=config or {})]).values():
            made.result()
        return name

    return make
