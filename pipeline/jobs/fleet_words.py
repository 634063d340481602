"""The words that say which fleet: the same for the job that makes it and the one that checks it."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ottla.pipeline.jobs.numbers import FiniteRange

Command = TypeVar("Command", bound=Callable[..., Any])

KINDS = ("V", "alerts", "connectivity")
_FLEET = {"records", "vehicles", "seed", "skew", "start", "span", "offline", "wrong_clocks"}


def fleet_words(command: Command) -> Command:
    """Adds the options; ``fleet_numbers`` takes them from the words."""
    options = [
        click.option("--records", type=click.IntRange(0), default=1_000_000, show_default=True, help="Telemetry records in all."),
        click.option("--vehicles", type=click.IntRange(1), default=10_000, show_default=True),
        click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Another seed is another fleet."),
        click.option(
            "--skew",
            type=FiniteRange(0, 4),
            default=0.8,
            show_default=True,
            help="Zipf's exponent: the r-th busiest vehicle sends r^-SKEW of what the busiest does.",
        ),
        click.option("--start", default="2026-01-01T00:00", show_default=True, metavar="TIME", help="When the first records are sent, UTC."),
        click.option("--span", default="24h", show_default=True, metavar="DURATION", help="Over how long the records are spread: 30m, 24h, 7d."),
        click.option("--offline", type=FiniteRange(0, 1), default=0.01, show_default=True, help="Vehicles out of reach at some time of each 24th of the span; what they send comes late, in a burst."),
        click.option("--wrong-clocks", type=FiniteRange(0, 1), default=0.02, show_default=True, help="Vehicles whose clocks are up to five minutes off."),
        click.option("--prefix", default="fleet", show_default=True, help="Topics are PREFIX_V, PREFIX_alerts, PREFIX_connectivity."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def fleet_numbers(words: dict[str, Any]) -> dict[str, Any]:
    """Takes the fleet's words away, and gives the numbers of ``ottla.pipeline.fleet.fleet.Fleet``. Raises UsageError."""
    from datetime import UTC, datetime

    from ottla.cli.durations import milliseconds

    told = {name: words.pop(name) for name in _FLEET}
    start, span = told.pop("start"), told.pop("span")
    try:
        moment = datetime.fromisoformat(start)
    except ValueError:
        raise click.UsageError(f"--start {start!r}: write a time such as 2026-01-01T00:00") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return {**told, "start_ms": round(moment.timestamp() * 1000), "span_ms": milliseconds(span, "--span")}
