"""What a metric is, and the registry of a node's metrics: values and generators, without a clock, a loop or a library.

docs/metrics.md has the reasons. A *look* is what the metrics of one group are read from; it is made anew for every scrape, by a
generator that yields where others may have their turn.
"""

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

SERIES_MAX = 1_000
"""Of one metric: whatever its labels are, a scrape stays of a size that a server of metrics takes."""

S = TypeVar("S")
Labels = tuple[str, ...]


class Spread(NamedTuple):
    """One reading of a summary: how many there were, and percentiles by what the label ``quantile`` calls them."""

    number: float
    percentiles: Mapping[str, float]


Reading = float | Mapping[Labels, float | Spread] | None
"""A number, or one for each combination of label values; None when there is nothing to tell at the moment."""
Look = Callable[[], Generator[None, None, S]]

_logger = logging.getLogger(__name__)


class Kind(StrEnum):
    """As Prometheus calls them."""

    GAUGE = "gauge"
    COUNTER = "counter"
    SUMMARY = "summary"


class Metric(msgspec.Struct, Generic[S], frozen=True):
    """A declaration: ``read`` takes the reading from the group's look. Names of counters end in ``_total``; the last label of a summary
    is ``quantile``."""

    name: str
    kind: Kind
    help: str
    read: Callable[[S], Reading]
    labels: Labels = ()


class Family(NamedTuple):
    """A metric as it was read: each sample is the values of its labels, and the number. ``counts``: a summary's, by its other labels."""

    name: str
    kind: Kind
    help: str
    labels: Labels
    samples: list[tuple[Labels, float]]
    counts: Sequence[tuple[Labels, float]] = ()


def gauge(name: str, help: str, read: Callable[[S], Reading], *labels: str) -> Metric[S]:
    """What goes up and down."""
    return Metric(name, Kind.GAUGE, help, read, labels)


def counter(name: str, help: str, read: Callable[[S], Reading], *labels: str) -> Metric[S]:
    """What has been counted since the process began."""
    return Metric(name, Kind.COUNTER, help, read, labels)


def summary(name: str, help: str, read: Callable[[S], Mapping[Labels, float | Spread]], *labels: str) -> Metric[S]:
    """How the values of something spread lately, and how many there have been since the process began."""
    return Metric(name, Kind.SUMMARY, help, read, (*labels, "quantile"))


def at_once(look: Callable[[], S]) -> Look[S]:
    """The look of a group that is so cheap that nobody need have a turn in between."""

    def looked() -> Generator[None, None, S]:
        return look()
        yield

    return looked


class Registry:
    """The metrics of one node. An area that cannot be read costs its own metrics and no others."""

    def __init__(self) -> None:
        self.failures = 0
        self.dropped = 0
        """Series that the last scrape left out."""
        self._groups: list[tuple[Sequence[Metric[Any]], Look[Any]]] = []

    def add(self, metrics: Sequence[Metric[S]], look: Look[S]) -> None:
        """From now on these are read from what ``look`` returns."""
        self._groups.append((metrics, look))

    def gather(self) -> Generator[None, None, list[Family]]:
        """Reads everything; at each yield others may have their turn. Returns the families in the order of declaration."""
        dropped = 0
        families: list[Family] = []
        for metrics, look in list(self._groups):
            looked = yield from self._look(look)
            if looked is _FAILED:
                continue
            for metric in metrics:
                family, left_out = self._read(metric, looked)
                families.append(family)
                dropped += left_out
        self.dropped = dropped
        return families + [self._read(metric, self)[0] for metric in REGISTRY_METRICS]

    def _look(self, look: Look[Any]) -> Generator[None, None, Any]:
        try:
            return (yield from look())
        except Exception:  # noqa: BLE001 - logged in `_failed`; the other areas are told all the same
            self._failed(getattr(look, "__qualname__", "a look"))
            return _FAILED

    def _read(self, metric: Metric[Any], looked: object) -> tuple[Family, int]:
        """The family, and how many series of it were too many."""
        try:
            reading = metric.read(looked)
        except Exception:  # noqa: BLE001 - as above
            self._failed(metric.name)
            reading = None
        samples, counts = _samples(reading), _counts(reading)
        family = Family(metric.name, metric.kind, metric.help, metric.labels, samples[:SERIES_MAX], counts[:SERIES_MAX])
        return family, len(samples) - len(family.samples)

    def _failed(self, what: str) -> None:
        self.failures += 1
        if (
            self.failures & (self.failures - 1) == 0
        ):  # a mistake of ours that every scrape repeats must not fill the log
            _logger.exception("%s could not be read for the metrics (failure %d)", what, self.failures)


_FAILED = object()


def _samples(reading: Reading) -> list[tuple[Labels, float]]:
    if reading is None:
        return []
    if not isinstance(reading, Mapping):
        return [((), reading)]
    samples: list[tuple[Labels, float]] = []
    for labels, value in reading.items():
        if isinstance(value, Spread):
            samples += [((*labels, quantile), each) for quantile, each in value.percentiles.items()]
        else:
            samples.append((labels, value))
    return samples


def _counts(reading: Reading) -> list[tuple[Labels, float]]:
    if not isinstance(reading, Mapping):
        return []
    return [(labels, value.number) for labels, value in reading.items() if isinstance(value, Spread)]


def gather_now(registry: Registry) -> list[Family]:
    """Everything in one go: for tests, and where nobody waits for a turn."""
    gathering = registry.gather()
    while True:
        try:
            next(gathering)
        except StopIteration as done:
            families: list[Family] = done.value
            return families


REGISTRY_METRICS: tuple[Metric[Registry], ...] = (
    counter("ottla_metrics_failures_total", "Metrics or areas that could not be read.", lambda r: r.failures),
    gauge("ottla_metrics_series_dropped", f"Series over {SERIES_MAX} of one metric, left out.", lambda r: r.dropped),
)
