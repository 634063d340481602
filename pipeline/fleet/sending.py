"""When each record of a fleet is sent, and which are sent between two moments.

A vehicle's records happen at even distances over the span. What happens while it is out of reach is sent when it is back: late, in a burst, and
still in order, so the numbers of what a vehicle sends between two moments follow one another, and are found without making the others.

Moments are microseconds since the span began.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ottla.pipeline.fleet.fleet import ALERT_EVERY, PERIODS, Fleet
from ottla.pipeline.fleet.numbers import Floats, Integers

TELEMETRY, ALERTS, CONNECTIVITY = KINDS = ("V", "alerts", "connectivity")
RECORDS_A_SLICE = 131_072


class Rows(NamedTuple):
    """Records in the order in which they are sent."""

    vehicle: Integers
    number: Integers
    happened_us: Integers
    sent_us: Integers


def numbers_of(fleet: Fleet, kind: str) -> Integers:
    """How many records of a kind each vehicle sends in all."""
    if kind == TELEMETRY:
        return fleet.counts
    alerts: Integers = (fleet.counts + fleet.alert_phase) // ALERT_EVERY
    return alerts if kind == ALERTS else 2 * fleet.outages[PERIODS].astype(np.int64)


def slices(fleet: Fleet, records: int = RECORDS_A_SLICE) -> Iterator[tuple[int, int]]:
    """The span in pieces of about so many records; none crosses the border of a period."""
    pieces = max(1, -(-fleet.records // (PERIODS * max(records, fleet.vehicles // 2))))
    for period in range(PERIODS):
        begin = period * fleet.period_us
        end = begin + fleet.period_us if period < PERIODS - 1 else fleet.span_ms * 1000
        borders = [begin + (end - begin) * piece // pieces for piece in range(pieces + 1)]
        yield from pairwise(borders)


def sent_between(fleet: Fleet, kind: str, since_us: int, until_us: int, vehicles: Integers) -> Rows:
    """What the vehicles (ascending) send of a kind from one moment to before another, both of one period, as ``slices`` are."""
    if kind == CONNECTIVITY:
        return _in_order(_connectivity(fleet, since_us, until_us, vehicles))
    period = _period(fleet, since_us)
    first, last = (_sent_before(fleet, period, moment, vehicles) for moment in (since_us, until_us))
    if kind == ALERTS:
        phase = fleet.alert_phase[vehicles]
        which, number = _spread((first + phase) // ALERT_EVERY, (last + phase) // ALERT_EVERY)
        at = (number + 1) * ALERT_EVERY - phase[which] - 1
    else:
        which, number = _spread(first, last)
        at = number
    happened = _happened(fleet, vehicles[which], at)
    gone, back = (moments[which] for moments in fleet.outage(period, vehicles))
    sent = np.where((gone <= happened) & (happened < back), back, happened)
    return _in_order(Rows(vehicles[which], number, happened, sent))


def _connectivity(fleet: Fleet, since_us: int, until_us: int, vehicles: Integers) -> Rows:
    """Two records an outage: even numbers say that it began, odd ones that it ended."""
    period = _period(fleet, since_us)
    gone, back = fleet.outage(period, vehicles)
    before = 2 * fleet.outages[period][vehicles].astype(np.int64)
    moments = np.stack([gone, back], 1)
    here = (moments >= since_us) & (moments < until_us) & (gone < back)[:, None]
    which, ends = np.nonzero(here)
    at = moments[which, ends]
    return Rows(vehicles[which], before[which] + ends, at, at)


def _period(fleet: Fleet, moment_us: int) -> int:
    return min(moment_us // fleet.period_us, PERIODS - 1)


def _sent_before(fleet: Fleet, period: int, moment_us: int, vehicles: Integers) -> Integers:
    """How many records of each vehicle were sent before a moment in a period, or at its end."""
    gone, back = fleet.outage(period, vehicles)
    until = np.where((gone < moment_us) & (moment_us <= back), gone, moment_us)
    return _happened_before(fleet, until, vehicles)


def _happened_before(fleet: Fleet, moment_us: Integers, vehicles: Integers) -> Integers:
    """How many records happened: the inverse of ``_happened``. Division rounds, so begin below and let that one say how far it is."""
    counts, phase, distance = fleet.counts[vehicles], fleet.phase[vehicles], fleet.distance_us[vehicles]
    number = np.maximum((moment_us / distance - phase).astype(np.int64) - 1, 0)
    for _ in range(3):
        number += _at(number, phase, distance) < moment_us
    return np.minimum(number, counts)


def _happened(fleet: Fleet, vehicles: Integers, number: Integers) -> Integers:
    """When the records happened: at even distances, from a moment of the vehicle's own on."""
    return _at(number, fleet.phase[vehicles], fleet.distance_us[vehicles])


def _at(number: Integers, phase: Floats, distance_us: Floats) -> Integers:
    moment: Integers = ((number + phase) * distance_us).astype(np.int64)
    return moment


def _spread(first: Integers, last: Integers) -> tuple[Integers, Integers]:
    """For each row its numbers from ``first`` to before ``last``: (row, number) of each."""
    many = last - first
    which = np.repeat(np.arange(len(many)), many)
    number = np.arange(len(which)) - np.repeat(np.cumsum(many) - many - first, many)
    return which, number


def _in_order(rows: Rows) -> Rows:
    """By when they are sent; at one moment by vehicle and number, as they come. Sorting numbers beats sorting places: both go into one."""
    if not len(rows.sent_us):
        return rows
    bits = len(rows.sent_us).bit_length()
    first = int(rows.sent_us.min())
    assert (int(rows.sent_us.max()) - first).bit_length() + bits < 63
    order = np.sort((rows.sent_us - first << bits) | np.arange(len(rows.sent_us))) & ((1 << bits) - 1)
    return Rows(*(column[order] for column in rows))
