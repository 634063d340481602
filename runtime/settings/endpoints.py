"""Addresses as settings write them: listeners (``NAME://host:port``) and voters (``id@host:port``)."""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.runtime.settings.setting_error import SettingError


class Endpoint(NamedTuple):
    """Where something listens; ``port`` 0 asks for any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listener(NamedTuple):
    """A named listener, as in ``PLAINTEXT://localhost:9092``."""

    name: str
    host: str
    port: int

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.host, self.port)


def parse_endpoint(text: str, setting: str, default_port: int | None = None) -> Endpoint:
    """``host:port``, ``[::1]:port``; with a ``default_port`` also ``host`` and ``[::1]``. Raises SettingError."""
    if default_port is not None and text and (":" not in text or text.endswith("]")):
        text = f"{text}:{default_port}"
    host, separator, port = text.rpartition(":")
    if not separator or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise SettingError(f"{setting}: {text!r} is not host:port")
    return Endpoint(host.strip("[]"), int(port))


def parse_listeners(texts: tuple[str, ...], setting: str) -> tuple[Listener, ...]:
    found = []
    for text in texts:
        name, separator, address = text.partition("://")
        if not separator:
            raise SettingError(f"{setting}: {text!r} is not NAME://host:port")
        found.append(Listener(name.upper(), *parse_endpoint(address, setting)))
    names = [listener.name for listener in found]
    if len(dict.fromkeys(names)) != len(names):
        raise SettingError(f"{setting}: a listener name stands twice")
    return tuple(found)


def parse_detours(texts: tuple[str, ...], setting: str) -> dict[Endpoint, Endpoint]:
    """``host:port=host:port``: what stands left is reached by what stands right. Raises SettingError."""
    found: dict[Endpoint, Endpoint] = {}
    for text in texts:
        wanted, separator, instead = text.partition("=")
        if not separator:
            raise SettingError(f"{setting}: {text!r} is not host:port=host:port")
        endpoint = parse_endpoint(wanted, setting)
        if endpoint in found:
            raise SettingError(f"{setting}: {endpoint} stands twice")
        found[endpoint] = parse_endpoint(instead, setting)
    return found


def reached_by(detours: Mapping[Endpoint, Endpoint], host: str, port: int) -> Endpoint:
    """Where to connect to for ``host:port``."""
    wanted = Endpoint(host, port)
    return detours.get(wanted, wanted)


def parse_voters(texts: tuple[str, ...]) -> dict[int, Endpoint]:
    """``1@host:9093,2@host:9094`` by node id. Raises SettingError."""
    voters = {}
    for text in texts:
        node, separator, address = text.partition("@")
        if not separator or not (node.isascii() and node.isdigit()):
            raise SettingError(f"controller.quorum.voters: {text!r} is not id@host:port")
        if int(node) in voters:
            raise SettingError(f"controller.quorum.voters: node {node} stands twice")
        voters[int(node)] = parse_endpoint(address, "controller.quorum.voters")
    return voters
