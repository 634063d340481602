"""What the handlers of a broker may reach, made of the parts that a test has."""

from dataclasses import fields
from typing import Any

from ottla.broker.context import BrokerContext
from ottla.runtime.settings.server import ServerConfig


class Absent:
    """A part that the test did not give: nobody may use it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        raise AssertionError(f"this broker has no {self._name}, of which {attribute} is asked")


def broker_context(config: ServerConfig, **parts: Any) -> BrokerContext:
    """``parts``: the fields of `BrokerContext`, real or in their place."""
    context: dict[str, Any] = {each.name: Absent(each.name) for each in fields(BrokerContext)}
    context |= {"config": config, "node_id": config.node_id, "cluster_id": "the-cluster", **parts}
    return BrokerContext(**context)
