"""What a setting is: its name, type, default and check; the tables beside this file hold Kafka's.

Sources: Kafka 4.3.1's ConfigDef classes. Names under ``ottla.`` are ours.
"""

import re
from functools import cache
from importlib.resources import files
from ipaddress import ip_address
from math import isnan, nan

import msgspec

from ottla.runtime.settings.setting_error import SettingError as SettingError

Value = bool | int | float | str | tuple[str, ...] | None


def value_text(value: Value) -> str | None:
    """A value as Kafka's tools print it."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(dict.fromkeys(value))  # KIP-1161
        case _:
            return str(value)


class Setting(msgspec.Struct, frozen=True):
    """One row of a table. ``type`` is Kafka's word; ``default`` is its text, empty for none; ``check`` a small rule."""

    name: str
    type: str
    default: str
    check: str
    broker_name: str = ""

    def parse(self, text: str) -> Value:
        """The typed value. Raises SettingError with the name, the value and what is allowed."""
        value = _convert(self, text.strip())
        _check(self, value)
        return value

    @property
    def default_value(self) -> Value:
        if self.default == "" and self.type not in ("STRING", "LIST"):
            return None
        return _default(self)


_RESET = re.compile(r"latest|earliest|by_duration:P(?=.)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?")
_INTEGER = re.compile(r"[+-]?\d+")  # in any script, as Java reads them; int() alone takes 1_000
_HOST = re.compile(r"[0-9a-zA-Z._-]+")
_REPLICA = re.compile(r"[0-9]+:[0-9]+")
_BOUNDS = {"INT": 2**31, "LONG": 2**63, "SHORT": 2**15}


@cache  # every start asks for most of them
def _default(setting: Setting) -> Value:
    return _convert(setting, setting.default)


def _convert(setting: Setting, text: str) -> Value:
    match setting.type:
        case "BOOLEAN":
            return _boolean(setting, text)
        case "INT" | "LONG" | "SHORT":
            return _integer(setting, text)
        case "DOUBLE":
            return _number(setting, text)
        case "LIST":
            return tuple(word.strip() for word in text.split(",") if word.strip())
        case _:
            return text


def _boolean(setting: Setting, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise SettingError(f"{setting.name}={text}: write true or false")
    return text.lower() == "true"


def _integer(setting: Setting, text: str) -> int:
    try:
        value = int(text if _INTEGER.fullmatch(text) else "")
    except ValueError:
        raise SettingError(f"{setting.name}={text}: write a whole number") from None
    bound = _BOUNDS[setting.type]
    if not -bound <= value < bound:
        raise SettingError(f"{setting.name}={text}: does not fit {setting.type}")
    return value


def _number(setting: Setting, text: str) -> float:
    try:
        value = nan if "_" in text else float(text)
    except ValueError:
        value = nan
    if isnan(value):
        raise SettingError(f"{setting.name}={text}: write a number")
    return value


def _check(setting: Setting, value: Value) -> None:
    rule, _, words = setting.check.partition(" ")
    if rule == "min" and isinstance(value, int | float) and value < float(words):
        raise SettingError(f"{setting.name}={value}: the least allowed is {words}")
    if rule == "range" and isinstance(value, int | float):
        low, high = (float(word) for word in words.split())
        if not low <= value <= high:
            raise SettingError(f"{setting.name}={value}: allowed is {words.replace(' ', ' to ')}")
    if rule == "counts":
        address_counts(setting.name, str(value))
    if rule == "throttled" and not _names_replicas(value):
        raise SettingError(f"{setting.name}: write * or PARTITION:BROKER,PARTITION:BROKER,...")
    if rule == "reset" and _RESET.fullmatch(str(value)) is None:
        raise SettingError(f"{setting.name}={value}: write latest, earliest or by_duration:PT1H, say")
    if rule in ("in", "anycase"):
        allowed = words.split(",")
        for word in value if isinstance(value, tuple) else (str(value),):
            if (word.lower() if rule == "anycase" else word) not in allowed:
                raise SettingError(f"{setting.name}={word}: allowed is one of {', '.join(allowed)}")


def _names_replicas(value: Value) -> bool:
    """Kafka's ThrottledReplicaListValidator."""
    words = value if isinstance(value, tuple) else ()
    return words[:1] == ("*",) or all(_REPLICA.fullmatch(word) for word in words)


def address_counts(name: str, text: str) -> dict[str, int]:
    """``127.0.0.1:200,fe80::1:50,monitor:5`` by address, written as sockets do, or by a host's name as it is. Raises SettingError."""
    found = {}
    for entry in filter(None, (each.strip() for each in text.split(","))):
        host, separator, count = entry.rpartition(":")
        if not separator or not (count.isascii() and count.isdigit()):
            raise SettingError(f"{name}: {entry!r} is not address:number")
        try:
            host = str(ip_address(host.strip("[]")))
        except ValueError as error:
            if _HOST.fullmatch(host) is None:
                raise SettingError(f"{name}: {host!r} is no address, and no host's name") from error
        found[host] = int(count)
    return found


@cache
def _table(file_name: str) -> dict[str, Setting]:
    text = (files(__package__) / file_name).read_text(encoding="utf-8")
    rows = (line.split("\t") for line in text.splitlines() if not line.startswith("#"))
    return {row[0]: Setting(*row) for row in rows}


def server_settings() -> dict[str, Setting]:
    """Every setting a ``server.properties`` may hold, by name."""
    return _table("server.tsv")


def topic_settings() -> dict[str, Setting]:
    """Every setting a topic may have, by name; ``broker_name`` is the server setting that gives its default."""
    return _table("topic.tsv")


def group_settings() -> dict[str, Setting]:
    """Every setting a group may have, by name; ``broker_name`` is the server setting that gives its default."""
    return _table("group.tsv")
