"""Every setting does what is written of it, is refused, or is said to change nothing: none is taken and ignored."""

from pathlib import Path

import pytest

import ottla
from ottla.runtime.settings import documentation
from ottla.runtime.settings.definitions import Setting, group_settings, server_settings, topic_settings
from ottla.runtime.settings.idle import why_idle
from ottla.runtime.settings.security import missing_promise

RESOURCES = (*topic_settings().values(), *group_settings().values())
IN_PARTS = ("offsets.topic.", "transaction.state.log.", "group.consumer.m")
"""Names that are put together where they are read."""


@pytest.fixture(scope="module")
def sources() -> str:
    root = Path(ottla.__file__ or "").parent
    found = [path for area in ("broker", "quorum", "log", "runtime", "cli") for path in (root / area).rglob("*.py")]
    return "".join(each.read_text(encoding="utf-8") for each in found if each.name not in ("idle.py", "dynamic.py"))


@pytest.mark.parametrize("name", list(server_settings()))
def test_a_setting_is_read_or_refused_or_said_to_change_nothing(name: str, sources: str) -> None:
    is_default = name in {each.broker_name for each in RESOURCES}
    is_read = f'"{name}"' in sources or is_default or name.startswith(IN_PARTS)
    assert is_read or why_idle(name) is not None or missing_promise(name) is not None


@pytest.mark.parametrize("name", list(server_settings()))
def test_of_each_setting_of_a_node_it_is_written_what_it_does(name: str) -> None:
    words = documentation.server_words(name)
    assert words.endswith(".")
    assert "\t" not in words


@pytest.mark.parametrize("setting", RESOURCES, ids=lambda setting: setting.name)
def test_of_each_setting_of_topics_and_groups_too(setting: Setting) -> None:
    assert documentation.resource_words(setting.name).endswith(".")


def test_nothing_is_written_of_what_is_no_setting() -> None:
    names = {*server_settings(), *(each.name for each in RESOURCES)}
    assert set(documentation._written()) <= names
    assert documentation.words_or_none("no.such.setting") is None


def test_a_default_says_whose() -> None:
    assert documentation.server_words("log.retention.ms").startswith("The default of retention.ms: how long")
