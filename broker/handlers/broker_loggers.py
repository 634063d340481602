"""The loggers of this node as a resource (KIP-412): which there are, at which level, and how to change that while it runs.

Nothing of it is kept: a restart begins at INFO again, as in Kafka. Levels have Kafka's names; Python has no TRACE of its own.
"""

import logging
from collections.abc import Iterable
from typing import NamedTuple

from ottla.broker.handlers.config_entries import ConfigEntry, Synonym
from ottla.runtime.errors import ErrorCode, KafkaError

BROKER_LOGGER_RESOURCE = 8
DYNAMIC_BROKER_LOGGER = 6
ROOT, OURS = "root", "ottla"
LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
SET, DELETE = 0, 1
_STRING = 2


class LevelChange(NamedTuple):
    """One change of a logger's level; ``operation`` is of IncrementalAlterConfigs."""

    name: str
    operation: int
    value: str | None


def logger_entries(node_id: int, resource: str) -> list[ConfigEntry]:
    """Every logger of the node, with the level that is in force. Raises KafkaError: it is another node."""
    _check_node(node_id, resource)
    return [_entry(name, level_name(_logger(name).getEffectiveLevel())) for name in _names()]


def check_level_changes(node_id: int, resource: str, changes: Iterable[LevelChange]) -> None:
    """Raises KafkaError, and then none of them may be made."""
    _check_node(node_id, resource)
    known = _names()
    for name, operation, value in changes:
        if name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"there is no logger {name}: describe the broker's loggers")
        if operation == DELETE and name == ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the root logger needs a level: set another one")
        if operation not in (SET, DELETE):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a level can be set or deleted only")
        if operation == SET and value not in LEVELS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}={value}: allowed is one of {', '.join(LEVELS)}")


def change_levels(changes: Iterable[LevelChange]) -> None:
    """A logger whose level is deleted has that of the logger above it. They were checked."""
    for name, operation, value in changes:
        _logger(name).setLevel(LEVELS[value] if operation == SET and value else logging.NOTSET)


def level_name(level: int) -> str:
    """The least severe of Kafka's levels that is let through."""
    return next((name for name, lowest in LEVELS.items() if level <= lowest), "FATAL")


def _check_node(node_id: int, resource: str) -> None:
    if resource != str(node_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"this is broker {node_id}: ask broker {resource} for its own loggers"
        )


def _names() -> list[str]:
    known = logging.root.manager.loggerDict
    return [ROOT, *sorted(name for name in (OURS, *known) if name == OURS or name.startswith(f"{OURS}."))]


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _entry(name: str, level: str) -> ConfigEntry:
    synonyms = (Synonym(name, level, DYNAMIC_BROKER_LOGGER),)
    return ConfigEntry(name, level, False, DYNAMIC_BROKER_LOGGER, False, synonyms, _STRING)
