import asyncio
from pathlib import Path

from ottla.runtime.clock_loop import LoopClock
from ottla.runtime.host import Host


def test_the_real_host_hands_out_what_a_node_needs(tmp_path: Path) -> None:
    host = Host.real()
    assert host.clock.wall_ms() > 1_600_000_000_000
    assert host.rng.random() != Host.real().rng.random()
    store = host.open_store(str(tmp_path / "quorum" / "state"))
    store.write([(b"a", b"1")], durable=True)
    assert store.get(b"a") == b"1"
    store.close()
    assert host.disk.list_directory(str(tmp_path / "quorum")) == ["state", "state-lock"]


def test_a_loop_clock_reads_exact_milliseconds() -> None:
    loop = asyncio.new_event_loop()
    loop.time = lambda: 1.001  # type: ignore[method-assign]  # in the place of the real one
    clock = LoopClock(loop, lambda: 42)
    assert clock.monotonic_ms() == 1001
    assert clock.wall_ms() == 42
    loop.close()
