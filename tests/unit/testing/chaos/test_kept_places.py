"""What an unclean election may take is looked for in every partition of the topics, not in one of each."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ottla.testing.chaos.acts.elections import _all_of
from ottla.testing.chaos.roles import Place


def test_every_partition_of_the_topics_is_compared(tmp_path: Path) -> None:
    for name in ("a-1-0", "a-1-1", "b-1-0", "other-0", "a-1-2.0123456789abcdef-delete", "__cluster_metadata-0"):
        (tmp_path / name).mkdir()
    (tmp_path / "meta.properties").touch()
    cluster: Any = SimpleNamespace(data_directories=lambda: {3: (tmp_path,)})
    found = _all_of(cluster, 3, [Place("a-1", 0), Place("b-1", 0)])
    assert sorted(found) == [Place("a-1", 0), Place("a-1", 1), Place("b-1", 0)]
