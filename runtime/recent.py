"""Durations of the last minute: how long the longest was, and how they spread. A value; somebody else turns its pages."""

from collections.abc import Iterable, Sequence
from math import frexp, ldexp

PAGES = 4
PAGE_S = 15.0
"""`turn_page` is to be called so often: then what is told is of the last 60 to 75 seconds."""

_STEPS = 32
"""Buckets from one power of two to the next: a percentile is told 1.5 % too high or too low at most."""


class _Page:
    __slots__ = ("counts", "longest_s")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.longest_s = 0.0


class RecentDurations:
    """A histogram with buckets as wide as their values are large, in pages of which the oldest goes. To record costs some 0.25 us."""

    __slots__ = ("_counts", "_now", "_pages")

    def __init__(self) -> None:
        self._pages = [_Page()]
        self._now = self._pages[-1]
        self._counts = self._now.counts

    def record(self, seconds: float, weight: int = 1) -> None:
        """``weight``: for how many this one stands. Less than nothing counts as nothing."""
        if seconds > 0:
            mantissa, exponent = frexp(seconds)  # mantissa in [0.5, 1): which half of the steps, and the power of two
            bucket = exponent * _STEPS + int(mantissa * 2 * _STEPS)
        else:
            bucket, seconds = _ZERO, 0.0
        counts = self._counts
        counts[bucket] = counts.get(bucket, 0) + weight
        if seconds > self._now.longest_s:
            self._now.longest_s = seconds

    def turn_page(self) -> None:
        """Forgets the oldest page when there are `PAGES`, and begins a new one."""
        self._now = _Page()
        self._counts = self._now.counts
        self._pages = [*self._pages[1 - PAGES :], self._now]

    @property
    def longest_s(self) -> float:
        """Exactly; 0 when there was none."""
        return max(page.longest_s for page in self._pages)

    def percentiles(self, quantiles: Sequence[float], others: "Iterable[RecentDurations]" = ()) -> list[float] | None:
        """The duration that each share of all (with those of ``others``) did not exceed, ``quantiles`` rising; None when there was none."""
        merged: dict[int, int] = {}
        longest_s = self.longest_s
        for each in (self, *others):
            longest_s = max(longest_s, each.longest_s)
            for page in each._pages:
                for bucket, count in page.counts.items():
                    merged[bucket] = merged.get(bucket, 0) + count
        if not merged:
            return None
        return [min(found, longest_s) for found in _walk(merged, quantiles)]


_ZERO = -(1 << 20)


def _walk(counts: dict[int, int], quantiles: Sequence[float]) -> list[float]:
    buckets = iter(sorted(counts))
    bucket, total = next(buckets), sum(counts.values())
    below = counts[bucket]
    found = []
    for quantile in quantiles:
        while below < quantile * total:
            bucket = next(buckets)
            below += counts[bucket]
        found.append(_middle_s(bucket))
    return found


def _middle_s(bucket: int) -> float:
    """``bucket`` is exponent * steps + [steps, 2 steps): see `record`."""
    if bucket == _ZERO:
        return 0.0
    exponent, step = divmod(bucket - _STEPS, _STEPS)
    return ldexp((step + _STEPS + 0.5) / (2 * _STEPS), exponent)
