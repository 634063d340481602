"""What many links are told at once is so on each of them afterwards, or an error."""

import socket
from collections.abc import Iterator

import pytest
from toxiproxy.api import APIConsumer

from ottla.testing.chaos.proxies import DOWN, UP, ProxyError, ProxyServer
from ottla.testing.ports import free_port_block

NAMES = [f"link-{number}" for number in range(20)]
LATENCY = {"latency": 5}


@pytest.fixture
def server(toxiproxy: ProxyServer) -> Iterator[ProxyServer]:
    base = free_port_block(len(NAMES))
    for at, name in enumerate(NAMES):
        toxiproxy.proxy(name, base + at, 1)
    yield toxiproxy
    for name in NAMES:
        toxiproxy.remove(name)


def told() -> dict[str, tuple[bool, list[str]]]:
    """As the server has it, asked past what is tested."""
    known = APIConsumer.get("/proxies").json()
    return {name: (known[name]["enabled"], sorted(each["name"] for each in known[name]["toxics"])) for name in NAMES}


def test_all_of_many_links_are_given_a_toxic_and_no_other(server: ProxyServer) -> None:
    some, rest = NAMES[:15], NAMES[15:]
    server.give(some, "slow-up", "latency", UP, LATENCY)
    server.give(some, "slow-down", "latency", DOWN, LATENCY)
    assert told() == dict.fromkeys(some, (True, ["slow-down", "slow-up"])) | dict.fromkeys(rest, (True, []))
    server.take(some[:5], "slow-up")
    assert told()[some[0]] == (True, ["slow-down"])
    server.heal(some)
    assert told() == dict.fromkeys(NAMES, (True, []))


def test_all_that_are_cut_refuse_and_all_that_heal_do_not(server: ProxyServer) -> None:
    server.cut(NAMES[:10])
    assert [each for each, (enabled, _) in told().items() if not enabled] == sorted(NAMES[:10])
    port = int(APIConsumer.get(f"/proxies/{NAMES[0]}").json()["listen"].rpartition(":")[2])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)
    server.heal(NAMES[:5])
    assert [each for each, (enabled, _) in told().items() if not enabled] == sorted(NAMES[5:10])
    server.heal_all()
    assert told() == dict.fromkeys(NAMES, (True, []))


def test_what_the_server_does_not_do_is_an_error(server: ProxyServer) -> None:
    with pytest.raises(ProxyError):
        server.give(NAMES, "what", "no-such-toxic", UP, {})
    with pytest.raises(ProxyError):
        server.take(NAMES[:1], "never-given")
    with pytest.raises(ProxyError):
        server.cut(["no-such-link"])
