"""What a workload is told of the run that it is part of."""

from pathlib import Path
from typing import NamedTuple


class Site(NamedTuple):
    """Where a workload works. ``directory`` is the run's, for its history; ``unclean``: unclean elections are on;
    ``data_directories``: of each broker, for who compares replicas, to be read only."""

    bootstrap_servers: str
    broker_ids: tuple[int, ...]
    seed: int
    directory: Path
    unclean: bool
    data_directories: dict[int, tuple[Path, ...]]
