import subprocess
import sys

import pytest

from ottla.runtime.descriptors import divide


@pytest.mark.parametrize("limit", [64, 200, 256, 1024, 4096, 65_536, 1 << 20])
def test_the_shares_are_all_there_is_and_nobody_gets_nothing(limit: int) -> None:
    shares = divide(limit)
    assert shares.program + shares.peers + shares.logs + shares.clients == limit
    assert min(shares) > 0
    assert shares.clients <= shares.logs


def test_where_there_are_many_nearly_all_are_for_logs_and_clients() -> None:
    shares = divide(65_536)
    assert shares.program + shares.peers < 1000
    assert shares.clients > 32_000


def in_a_process_with(soft: int, hard: int) -> str:
    script = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
from ottla.runtime import descriptors
shares = descriptors.claim()
print(shares.limit, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    assert in_a_process_with(100, 300) == "300 300"


def test_a_limit_that_cannot_be_raised_is_what_there_is() -> None:
    assert in_a_process_with(200, 200) == "200 200"
