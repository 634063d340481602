"""The dimensions there are: each module of this package has one, which it calls ``DIMENSION``."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from pkgutil import iter_modules
from random import Random

from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.length import USUAL, Length

MIXED_ONCE_IN = 10
"""Of the brief runs."""


def _found() -> Iterable[type[Dimension]]:
    for module in sorted(iter_modules(__path__)):
        dimension: type[Dimension] = import_module(f"{__name__}.{module.name}").DIMENSION
        yield dimension


ALL: Mapping[str, type[Dimension]] = {dimension.name: dimension for dimension in _found()}


def dimensions_of(seed: int) -> tuple[str, ...]:
    """Which of them a seed has."""
    return tuple(name for name, dimension in ALL.items() if not _rng(seed, name).randrange(dimension.one_in))


def brief_dimensions_of(seed: int) -> tuple[str, ...]:
    """Which of them a brief run has: one, seldom all."""
    names = [name for name, dimension in ALL.items() if dimension.in_brief]
    rng = _rng(seed, "brief")
    wanted = names if not rng.randrange(MIXED_ONCE_IN) else [rng.choice(names)]
    return tuple(name for name in names if name in wanted)


def made(seed: int, names: Iterable[str], length: Length = USUAL) -> list[Dimension]:
    """The named ones, always in the same order, as that seed would draw them. ValueError for a name that there is not."""
    wanted = list(names)
    unknown = [name for name in wanted if name not in ALL]
    if unknown:
        raise ValueError(f"no dimension {', '.join(unknown)}: there are {', '.join(ALL)}")
    return [_made(seed, dimension, length) for name, dimension in ALL.items() if name in wanted]


def _made(seed: int, dimension: type[Dimension], length: Length) -> Dimension:
    one = dimension(_used(_rng(seed, dimension.name), dimension))
    one.length = length
    return one


def _rng(seed: int, name: str) -> Random:
    return Random(f"{seed}/{name}")


def _used(rng: Random, dimension: type[Dimension]) -> Random:
    """As it is after it was drawn whether the seed has it, also for one that is forced."""
    rng.randrange(dimension.one_in)
    return rng
