"""A row of the fault table."""

from dataclasses import dataclass, field

from ottla.testing.chaos.acts import Act


@dataclass(frozen=True)
class Fault:
    """``about`` in a line; ``family`` groups rows. ``shapes`` it suits. ``settings`` of every node in its runs; ``library``: what the
    nodes' processes are loaded with (``disk``, ``clock``). ``unclean``: losses are permitted where unclean elections were."""

    name: str
    family: str
    about: str
    act: Act
    shapes: tuple[str, ...] = ("combined", "separate")
    settings: dict[str, str] = field(default_factory=dict)
    library: str = ""
    unclean: bool = False
    workloads: tuple[str, ...] = ()
    """Those it suits; all, if it names none."""
    seconds: tuple[float, float] = (4.0, 8.0)
    """How long it lasts, drawn between these."""
