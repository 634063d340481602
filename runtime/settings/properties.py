"""Reads ``server.properties`` and the ``KAFKA_*`` environment of Kafka's image into one mapping of text."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path

from ottla.runtime.settings.definitions import SettingError, server_settings
from ottla.runtime.settings.retired import instead
from ottla.runtime.settings.security import missing_promise

# Variables of Kafka's image that are no settings (docker/README of Apache Kafka).
_NOT_SETTINGS = (
    "KAFKA_OPTS",
    "KAFKA_HEAP_OPTS",
    "KAFKA_JMX_OPTS",
    "KAFKA_LOG4J_",
    "KAFKA_JMX_",
    "KAFKA_GC_",
    "KAFKA_JVM_",
    "KAFKA_VERSION",
    "KAFKA_HOME",
)
# What Kubernetes tells each container of a service whose name begins with "kafka": KAFKA_PORT holds an address there.
_SERVICE_LINK = re.compile(
    r"KAFKA_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?)"
)
_ADDRESS = re.compile(r"(tcp|udp|sctp)://.*")


def text_of(path: Path) -> str:
    """What the file says. Raises SettingError where it is not UTF-8; OSError passes through."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise SettingError(f"{path}, line {line}: not UTF-8: save it as that") from error


def parse_properties(text: str, source: str) -> dict[str, str]:
    """As `read_properties`. Raises SettingError that names each line that is none."""
    found, wrong = read_properties(text, source)
    if wrong:
        raise SettingError("\n".join(wrong))
    return found


def read_properties(text: str, source: str) -> tuple[dict[str, str], list[str]]:
    """Java properties as people write them: ``name=value`` lines, ``#`` and ``!`` comments, a backslash joins lines. A comment is
    never joined with the line behind it, which may be a setting.

    Also what to say of each line that is none.
    """
    found: dict[str, str] = {}
    wrong: list[str] = []
    pending = ""
    lines = text.splitlines()
    for number, raw in enumerate(lines, 1):
        if not pending and raw.lstrip().startswith(("#", "!")):
            continue
        line = pending + raw.strip()
        pending = ""
        if line.endswith("\\"):
            line = line[:-1]
            pending = line if number < len(lines) else ""
        if line and not pending:
            name, separator, value = line.partition("=")
            if separator:
                found[name.strip()] = value.strip()
            else:
                wrong.append(f"{source}, line {number}: expected name=value, found {raw.strip()!r}")
    return found, wrong


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """``KAFKA_LOG_DIRS=/x`` sets ``log.dirs``: one underscore is a dot, two an underscore, three a dash."""
    found = {}
    for name in sorted(environment):
        if name.startswith("KAFKA_") and not name.startswith(_NOT_SETTINGS) and not _is_link(name, environment[name]):
            words = name[len("KAFKA_") :].lower().replace("___", "-").replace("__", "\0").replace("_", ".")
            found[words.replace("\0", "_")] = environment[name]
    return found


def _is_link(name: str, text: str) -> bool:
    return bool(_SERVICE_LINK.fullmatch(name) or (name.endswith("_PORT") and _ADDRESS.fullmatch(text)))


def unknown_settings(names: Iterable[str], source: str) -> list[str]:
    """A line for each name nobody knows, with what to write instead or the nearest one that exists."""
    known = server_settings()
    return [
        f"{source}: {_about(name)}"
        for name in names
        if name not in known and not name.startswith("listener.name.") and missing_promise(name) is None
    ]


def _about(name: str) -> str:
    retired = instead(name)
    if retired is not None:
        return f"{name} is a setting of older Kafka: {retired}"
    near = get_close_matches(name, server_settings(), 1)
    return f"unknown setting {name}" + (f"; did you mean {near[0]}?" if near else "")
