"""What each setting does here, in words: for DescribeConfigs and for docs/all-settings.md."""

from functools import cache
from importlib.resources import files

from ottla.runtime.settings.definitions import group_settings, server_settings, topic_settings
from ottla.runtime.settings.idle import why_idle, why_idle_of_resource
from ottla.runtime.settings.security import missing_promise


def server_words(name: str) -> str:
    """Of a setting of a node. Raises KeyError where nobody has written what it does."""
    idle, missing = why_idle(name), missing_promise(name)
    if idle is not None:
        return f"Changes nothing here: {idle}."
    if missing is not None and name not in _written():
        return f"Refused: {missing}."
    default_of = _defaults().get(name)
    if default_of is None:
        return _written()[name]
    words = _written()[default_of]
    return words if default_of == name else f"The default of {default_of}: {words[0].lower()}{words[1:]}"


def resource_words(name: str) -> str:
    """Of a topic's or a group's own setting. Raises KeyError."""
    idle = why_idle_of_resource(name)
    return f"Changes nothing here: {idle}." if idle is not None else _written()[name]


def words_or_none(name: str) -> str | None:
    """Of a setting of a topic, a group or a node; None for what is none."""
    if name in topic_settings() or name in group_settings():
        return resource_words(name)
    return server_words(name) if name in server_settings() else None


@cache
def _defaults() -> dict[str, str]:
    """Settings of a node that are the default of one of topics or groups, with that one."""
    resources = (*topic_settings().values(), *group_settings().values())
    return {each.broker_name: each.name for each in resources if each.broker_name}


@cache
def _written() -> dict[str, str]:
    text = (files(__package__) / "documentation.tsv").read_text(encoding="utf-8")
    rows = (line.partition("\t") for line in text.splitlines() if not line.startswith("#"))
    return {name: words for name, _, words in rows}
