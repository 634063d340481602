"""Test processes beside one another are not given the same ports."""

import os
import subprocess
import sys

from ottla.testing.ports import free_port_block, free_ports

OTHER = """
import os
os.getpid = lambda: {pid}  # looks from the same port on
from ottla.testing.ports import free_port_block
print(free_port_block(3, (0, 1000)))
"""


def test_ports_are_all_different() -> None:
    assert len(dict.fromkeys(free_ports(30))) == 30


def test_a_block_that_another_process_was_given_is_not_given_again_though_nobody_listens_yet() -> None:
    mine = free_port_block(3, (0, 1000))
    program = OTHER.format(pid=os.getpid())
    theirs = int(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
    assert abs(theirs - mine) >= 3
