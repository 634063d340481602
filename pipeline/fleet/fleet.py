"""A fleet: what is asked for, and what follows from it: how many records each vehicle sends, and when it is out of reach."""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ottla.pipeline.fleet.numbers import Floats, Integers, below, mixed

PERIODS = 24  # the span is divided into these; a vehicle is out of reach at most once in each
VEHICLES_MAX = 10_000_000  # seven digits of the vehicle's name
RECORDS_MAX = 4_000_000_000  # times the weights' sum, below 2**31, fits 63 bits
ALERT_EVERY = 200
PREFIX = b"5FLEET0000"

_OF_RANK, _OF_CLOCK, _OF_REACH, _OF_ALERTS, _OF_PHASE = range(5)


class FleetError(ValueError):
    """A fleet that cannot be; the message says which number is off and what it may be."""


@dataclass(frozen=True)
class Fleet:
    """Two fleets with the same numbers send the same bytes."""

    records: int = 1_000_000
    vehicles: int = 10_000
    seed: int = 1
    skew: float = 0.8  # Zipf: the r-th busiest vehicle sends r**-skew as much as the busiest
    start_ms: int = 1_767_225_600_000  # 2026-01-01T00:00:00Z
    span_ms: int = 86_400_000
    offline: float = 0.01  # how likely a vehicle is out of reach for a part of a period
    wrong_clocks: float = 0.02  # how many vehicles' clocks are wrong
    clock_error_ms: int = 300_000  # by how much at most, either way

    def __post_init__(self) -> None:
        _check("records", self.records, 0, RECORDS_MAX)
        _check("vehicles", self.vehicles, 1, VEHICLES_MAX)
        _check("seed", self.seed, 0, 2**63 - 1)
        _check("skew", self.skew, 0, 4)
        _check("start", self.start_ms, 0, 10**13 - 1 - 86_400_000 * 365)
        _check("span", self.span_ms, PERIODS * 1000, 86_400_000 * 365)
        _check("offline", self.offline, 0, 1)
        _check("wrong clocks", self.wrong_clocks, 0, 1)
        _check("clock error", self.clock_error_ms, 0, min(self.start_ms, 86_400_000))

    @cached_property
    def counts(self) -> Integers:
        """How many records each vehicle sends: the shares of a whole, which they add up to."""
        rank = np.empty(self.vehicles, np.int64)
        rank[np.argsort(self._bits(_OF_RANK), kind="stable")] = np.arange(self.vehicles)
        upto = np.concatenate([[0], np.cumsum(self._weights[rank])])
        counts: Integers = np.diff(upto * self.records // upto[-1])
        return counts

    @cached_property
    def _weights(self) -> Integers:
        """By rank, as integers whose sum is below 2**31."""
        shares = np.arange(1, self.vehicles + 1, dtype=np.float64) ** -self.skew
        weights: Integers = np.maximum(1, np.rint(shares * (2**30 / shares.sum()))).astype(np.int64)
        return weights

    @cached_property
    def clock_error(self) -> Integers:
        """By how many milliseconds each vehicle's clock is ahead."""
        bits = self._bits(_OF_CLOCK)
        error = below(bits, 2 * self.clock_error_ms + 1) - self.clock_error_ms
        return np.where(below(bits, 1_000_000, 32) < round(self.wrong_clocks * 1_000_000), error, 0)

    @cached_property
    def alert_phase(self) -> Integers:
        """After how many more records than ALERT_EVERY each vehicle raised its last alert before the first record."""
        return below(self._bits(_OF_ALERTS), ALERT_EVERY)

    @cached_property
    def distance_us(self) -> Floats:
        """How far apart each vehicle's records are in time."""
        return self.span_ms * 1000.0 / np.maximum(self.counts, 1)

    @cached_property
    def phase(self) -> Floats:
        """When each vehicle's first record happens, in distances; below 0.9, so that the last one is inside of the span whatever is rounded."""
        return below(self._bits(_OF_PHASE), 943_718) / (1 << 20)

    @property
    def period_us(self) -> int:
        return self.span_ms * 1000 // PERIODS

    def outage(self, period: int, vehicles: Integers) -> tuple[Integers, Integers]:
        """From when to when each of the vehicles is out of reach, in microseconds of the span; the same twice: it is not."""
        bits = mixed(self.seed, _OF_REACH, vehicles, np.array([period]))
        begin = period * self.period_us
        first, second = (below(bits, 1 << 20, shift) * self.period_us >> 20 for shift in (0, 20))
        out = below(mixed(self.seed, _OF_REACH, vehicles, np.array([period]), np.array([1])), 1_000_000)
        is_out = out < round(self.offline * 1_000_000)
        since, until = np.minimum(first, second), np.maximum(first, second)
        return begin + since, begin + np.where(is_out, until, since)

    @cached_property
    def outages(self) -> NDArray[np.int32]:
        """How many of its outages were over before each period, by period and vehicle."""
        vehicles = np.arange(self.vehicles)
        rows = [np.zeros(self.vehicles, np.int32)]
        for period in range(PERIODS):
            since, until = self.outage(period, vehicles)
            rows.append(rows[-1] + (since < until))
        return np.stack(rows)

    def _bits(self, purpose: int) -> NDArray[np.uint64]:
        return mixed(self.seed, purpose, np.arange(self.vehicles))

    def words(self) -> dict[str, int | float]:
        """Its numbers by name: what a fleet is written down as."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


def _check(name: str, value: float, least: int, most: int) -> None:
    if not least <= value <= most:
        raise FleetError(f"{name} {value}: {least} to {most}")
