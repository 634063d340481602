"""pytest fixtures: ``ottla_cluster`` (three nodes for the session) and ``ottla_cluster_factory``."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster


@pytest.fixture(scope="session")
def ottla_cluster() -> "Iterator[Cluster]":
    """A three-node cluster shared by the tests of the session."""
    from ottla.testing.cluster import Cluster

    with Cluster(nodes=3) as cluster:
        yield cluster


@pytest.fixture
def ottla_cluster_factory() -> "Iterator[Callable[..., Cluster]]":
    """``ottla_cluster_factory(nodes=1, settings={...})`` starts a cluster that ends with the test."""
    from ottla.testing.cluster import Cluster

    with ExitStack() as stack:

        def start(**arguments: Any) -> Cluster:
            return stack.enter_context(Cluster(**arguments))

        yield start
