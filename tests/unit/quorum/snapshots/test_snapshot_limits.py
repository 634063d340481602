"""Which snapshots may go (KIP-630, metadata.max.retention.*)."""

from ottla.quorum.snapshots.limits import HeldSnapshot, RetentionLimits, expendable

NOBODY_MINDS = RetentionLimits(-1, -1)
HELD = [HeldSnapshot(10, 100, 1_000), HeldSnapshot(20, 200, 2_000), HeldSnapshot(30, 300, 3_000)]
LOG_BYTES = 400  # all: 460


def of_bytes(limit: int) -> int:
    return expendable(HELD, LOG_BYTES, RetentionLimits(max_bytes=limit, max_ms=-1), now_ms=3_000)


def of_age(limit: int, now_ms: int) -> int:
    return expendable(HELD, LOG_BYTES, RetentionLimits(max_bytes=-1, max_ms=limit), now_ms)


def test_without_limits_everything_stays() -> None:
    assert expendable(HELD, LOG_BYTES, NOBODY_MINDS, now_ms=10**15) == 0


def test_what_fits_stays() -> None:
    assert of_bytes(460) == 0


def test_the_oldest_goes_with_the_log_below_the_next() -> None:
    assert of_bytes(459) == 1
    assert of_bytes(460 - 10 - 200) == 1


def test_as_many_go_as_must() -> None:
    assert of_bytes(460 - 10 - 200 - 1) == 2


def test_one_always_stays() -> None:
    assert of_bytes(0) == 2
    assert of_age(0, now_ms=10**15) == 2
    assert expendable(HELD[:1], LOG_BYTES, RetentionLimits(0, 0), now_ms=10**15) == 0
    assert expendable([], LOG_BYTES, RetentionLimits(0, 0), now_ms=10**15) == 0


def test_what_is_too_old_goes() -> None:
    assert of_age(500, now_ms=1_500) == 0
    assert of_age(500, now_ms=1_501) == 1
    assert of_age(500, now_ms=2_501) == 2


def test_a_clock_that_went_back_removes_nothing() -> None:
    assert of_age(500, now_ms=0) == 0
