"""Levels of loggers are told and changed while a node runs (KIP-412)."""

import logging
from collections.abc import Iterator

import pytest

from ottla.broker.handlers.broker_loggers import level_name
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.handlers.conftest import Site
from tests.unit.broker.handlers.test_configs import changes, describe, results, told

LOGGER = 8
NAME = "ottla.test_broker_loggers"
SET, DELETE, APPEND = 0, 1, 2


@pytest.fixture(autouse=True)
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger(NAME)
    yield found
    found.setLevel(logging.NOTSET)


def level(site: Site) -> str:
    entry = told(describe(site, LOGGER, "1"))[NAME]
    assert entry.config_source == 6
    return str(entry.value)


def ask(site: Site, name: str, operation: int, value: str | None, *, node: str = "1") -> int:
    site.send(changes((LOGGER, node, [(name, operation, value)])), 1)
    ((_, _, code),) = results(site, "IncrementalAlterConfigsResponse", 1)
    return code


def test_a_level_is_set_told_and_taken_back(site: Site, logger: logging.Logger) -> None:
    before = level(site)
    assert ask(site, NAME, SET, "ERROR") == ErrorCode.NONE
    assert (logger.level, level(site)) == (logging.ERROR, "ERROR")
    assert ask(site, NAME, DELETE, None) == ErrorCode.NONE
    assert (logger.level, level(site)) == (logging.NOTSET, before)
    assert site.controller.requests == []


def test_other_libraries_loggers_are_not_shown_but_the_root_is(site: Site) -> None:
    logging.getLogger("somebody.else")
    names = told(describe(site, LOGGER, "1"))
    assert {"root", "ottla", NAME} <= set(names)
    assert "somebody.else" not in names


@pytest.mark.parametrize(
    ("name", "operation", "value", "node", "code"),
    [
        (NAME, SET, "LOUD", "1", ErrorCode.INVALID_CONFIG),
        (NAME, SET, None, "1", ErrorCode.INVALID_CONFIG),
        ("ottla.nobody", SET, "INFO", "1", ErrorCode.INVALID_CONFIG),
        (NAME, APPEND, "INFO", "1", ErrorCode.INVALID_REQUEST),
        ("root", DELETE, None, "1", ErrorCode.INVALID_REQUEST),
        (NAME, SET, "INFO", "2", ErrorCode.INVALID_REQUEST),
        (NAME, SET, "INFO", "", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_is_refused(
    site: Site, logger: logging.Logger, name: str, operation: int, value: str | None, node: str, code: ErrorCode
) -> None:
    assert ask(site, name, operation, value, node=node) == code
    assert logger.level == logging.NOTSET


def test_all_changes_of_a_request_are_made_or_none(site: Site, logger: logging.Logger) -> None:
    site.send(changes((LOGGER, "1", [(NAME, SET, "ERROR"), ("ottla.nobody", SET, "INFO")])), 1)
    assert results(site, "IncrementalAlterConfigsResponse", 1) == [(LOGGER, "1", ErrorCode.INVALID_CONFIG)]
    assert logger.level == logging.NOTSET


def test_another_brokers_loggers_are_not_told_here(site: Site) -> None:
    assert describe(site, LOGGER, "2").error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("level", "name"), [(0, "TRACE"), (10, "DEBUG"), (15, "INFO"), (30, "WARN"), (60, "FATAL")])
def test_levels_have_kafkas_names(level: int, name: str) -> None:
    assert level_name(level) == name


def test_loggers_that_are_named_twice_keep_their_levels(site: Site, logger: logging.Logger) -> None:
    once: list[tuple[str, int, str | None]] = [(NAME, SET, "ERROR")]
    site.send(changes((LOGGER, "1", once), (LOGGER, "1", once)), 1)
    assert results(site, "IncrementalAlterConfigsResponse", 1) == [(LOGGER, "1", ErrorCode.INVALID_REQUEST)]
    assert logger.level == logging.NOTSET
