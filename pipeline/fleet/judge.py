"""Whether each record of a fleet is there once and in its place: lost, doubled, out of order, or none of the fleet's.

Records are taken in the order of their partition. One byte is kept for each record of the fleet, so a hundred million of them need 100 MB.
"""

from typing import NamedTuple

import numpy as np

from ottla.pipeline.fleet.fleet import PREFIX, Fleet
from ottla.pipeline.fleet.numbers import Flags, Integers
from ottla.pipeline.fleet.sending import numbers_of

EXAMPLES = 10
_NUMBER_BITS = 33  # no number has more


class Findings(NamedTuple):
    """What is wrong, and up to ten examples of each as ``vin:seq``."""

    records: int
    expected: int
    lost: int
    doubled: int
    reordered: int
    foreign: int
    examples: dict[str, list[str]]

    @property
    def is_whole(self) -> bool:
        return not (self.lost or self.doubled or self.reordered or self.foreign)


class Judge:
    """Takes the records of one kind of a fleet, as many at a time as one likes; those of a vehicle in the order in which they lie."""

    def __init__(self, fleet: Fleet, kind: str) -> None:
        counts = numbers_of(fleet, kind)
        self._counts = counts
        self._starts = np.concatenate([[0], np.cumsum(counts)])
        self._there = np.zeros(int(self._starts[-1]), np.bool_)
        self._last = np.full(len(counts), -1, np.int64)  # the highest number of each vehicle so far
        self._taken = self._foreign = self._reordered = self._doubled = 0
        self._examples: dict[str, list[str]] = {"lost": [], "doubled": [], "reordered": [], "foreign": []}

    def take(self, vehicle: Integers, number: Integers) -> None:
        """Records in their order; a vehicle or a number below zero is one that could not be read."""
        self._taken += len(vehicle)
        known = (vehicle >= 0) & (vehicle < len(self._counts)) & (number >= 0)
        known &= number < self._counts[np.where(known, vehicle, 0)]
        if not known.all():
            self._foreign += int((~known).sum())
            self._show("foreign", vehicle[~known], number[~known])
            vehicle, number = vehicle[known], number[known]
        if len(vehicle):
            again = self._count(vehicle, number)
            self._follow(vehicle, number, again)

    def _count(self, vehicle: Integers, number: Integers) -> Flags:
        """Counts them; for each whether it was there before."""
        place = self._starts[vehicle] + number
        order = np.argsort(place, kind="stable")
        place = place[order]
        again = np.empty(len(place), np.bool_)
        again[order] = ~_firsts(place) | self._there[place]
        if again.any():
            self._doubled += int(again.sum())
            self._show("doubled", vehicle[again], number[again])
        self._there[place] = True
        return again

    def _follow(self, vehicle: Integers, number: Integers, again: Flags) -> None:
        """A record that comes for the first time behind one with a higher number has changed places."""
        vehicle, number = vehicle[~again], number[~again]
        if not len(vehicle):
            return
        order = np.argsort(vehicle, kind="stable")
        vehicle, number = vehicle[order], number[order]
        is_first = _firsts(vehicle)
        # Each vehicle's numbers lie above those of the vehicle before, so one running maximum over all rows is one of each vehicle.
        floor = vehicle << _NUMBER_BITS
        before = np.where(is_first, np.maximum(number, self._last[vehicle]), number)
        highest = np.maximum.accumulate(floor + before) - floor
        late = number < highest
        if late.any():
            self._reordered += int(late.sum())
            self._show("reordered", vehicle[late], number[late])
        is_last = np.append(is_first[1:], True)
        self._last[vehicle[is_last]] = highest[is_last]

    def findings(self) -> Findings:
        missing = np.flatnonzero(~self._there)
        vehicle = np.searchsorted(self._starts, missing[:EXAMPLES], "right") - 1
        self._examples["lost"] = []
        self._show("lost", vehicle, missing[:EXAMPLES] - self._starts[vehicle])
        return Findings(
            self._taken, len(self._there), len(missing), self._doubled, self._reordered, self._foreign, self._examples
        )

    def _show(self, what: str, vehicle: Integers, number: Integers) -> None:
        shown = self._examples[what]
        for which, count in zip(vehicle[: EXAMPLES - len(shown)], number, strict=False):
            shown.append(name_of(int(which), int(count)))


def _firsts(ordered: Integers) -> Flags:
    """Which rows differ from the one before."""
    return np.concatenate([[True], ordered[1:] != ordered[:-1]])


def name_of(vehicle: int, number: int) -> str:
    return f"{PREFIX.decode()}{vehicle:07d}:{number}" if vehicle >= 0 and number >= 0 else "unreadable"
