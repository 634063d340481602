import subprocess
import sys

FAULTS = """
import resource, sys
from ottla.runtime import launch
if sys.argv[1] == "tuned" and not launch.tune_allocator():
    sys.exit("the C library refuses")
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):  # responses of 1 MB are built, sent and freed
    [bytearray(b"x") * (1 << 20) for _ in range(20)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(mode: str) -> int:
    done = subprocess.run([sys.executable, "-c", FAULTS, mode], check=True, capture_output=True, text=True)
    return int(done.stdout)


def test_large_buffers_are_not_faulted_in_again_and_again() -> None:
    assert faults("plain") > 80_000  # 400 buffers of 256 pages, most of them new
    assert faults("tuned") < 12_000  # the first 20 buffers, and what Python itself touches


def test_run_runs_on_uvloop() -> None:
    script = """
import asyncio
from ottla.runtime import launch
async def main(): print(type(asyncio.get_running_loop()).__module__)
launch.run(main)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "uvloop"
