"""``ottla metrics``: what a node tells of itself."""

import json
import socket
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.failures import CommandError
from ottla.cli.output import Row, output_option, show

if TYPE_CHECKING:
    from ottla.runtime.settings.endpoints import Endpoint

TIMEOUT_S = 10.0
COLUMNS = ("metric", "labels", "value")


@click.command()
@click.argument("words", nargs=-1)
@click.option(
    "--listener",
    "-l",
    default="localhost:11092",
    envvar="OTTLA_METRICS_LISTENER",
    show_default=True,
    help="The node's ottla.metrics.listener, host:port; `ottla up` prints them.",
)
@output_option
def metrics(words: tuple[str, ...], listener: str, output: str) -> None:
    """Print a node's metrics: all, or those with one of WORDS in their names.

    docs/metrics.md says what each of them means; so does the help in the JSON.
    """
    from ottla.runtime.settings.endpoints import parse_endpoint

    endpoint = parse_endpoint(listener, "--listener")
    try:
        told = json.loads(_get(endpoint, "/metrics.json"))
    except ValueError as error:
        raise CommandError(f"the answer of {endpoint} broke off: is its node stopping? Call this again") from error
    families = _chosen(told, words)
    show([row for family in families for row in _rows(family)], COLUMNS, output)


def _chosen(families: list[dict[str, Any]], words: tuple[str, ...]) -> list[dict[str, Any]]:
    chosen = [each for each in families if not words or any(word.lower() in each["name"] for word in words)]
    if not chosen:
        raise CommandError(f"no metric has {' or '.join(words)} in its name; without a word all are printed")
    return chosen


def _rows(family: dict[str, Any]) -> list[Row]:
    """One a sample. JSON gets the kind and the help, too."""
    return [
        {
            "metric": family["name"],
            "labels": [f"{name}={value}" for name, value in sample["labels"].items()],
            "value": _number(sample["value"]),
            "kind": family["kind"],
            "help": family["help"],
        }
        for sample in family["samples"]
    ]


def _number(value: float) -> float:
    return int(value) if value == int(value) else value


def _get(endpoint: "Endpoint", path: str) -> bytes:
    """The page. Raises CommandError. By hand: http.client takes longer to import than all the rest of the command."""
    try:
        with socket.create_connection(endpoint, TIMEOUT_S) as connection:
            connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {endpoint}\r\n\r\n".encode())
            answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "this is no name of a host"
        raise CommandError(
            f"nobody tells metrics at {endpoint} ({reason or error}): give --listener the node's ottla.metrics.listener"
        ) from error
    head, _, body = answer.partition(b"\r\n\r\n")
    if head.split(b" ")[1:2] != [b"200"]:
        first = head.partition(b"\r\n")[0].decode("latin-1")
        raise CommandError(
            f"{endpoint} is no metrics listener, or cannot answer: {first or 'it closed the connection'}"
        )
    return body
