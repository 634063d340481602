"""python -m ottla.testing.chaos.run --fault NAME [--workloads a,b] [--seed N] [--directory DIR]: one run, and what became of it.

--list shows the fault table.
"""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from ottla.testing.chaos.plan import Plan, suited
from ottla.testing.chaos.result import Result
from ottla.testing.chaos.runner import run
from ottla.testing.chaos.table import BY_NAME, FAULTS
from ottla.testing.chaos.workloads import WORKLOADS

TOXIPROXY = Path(".cache/tools/toxiproxy-server")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ottla.testing.chaos.run", description="One run of the chaos matrix."
    )
    parser.add_argument("--list", action="store_true", help="the fault table")
    parser.add_argument("--fault", choices=list(BY_NAME), metavar="NAME")
    parser.add_argument("--workloads", default="", help=f"of {', '.join(WORKLOADS)}; all that suit the fault otherwise")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="where the run's files go; a new one otherwise")
    parser.add_argument("--toxiproxy", type=Path, default=TOXIPROXY, help="the server's program")
    asked = parser.parse_args()
    if asked.list:
        for fault in FAULTS:
            sys.stdout.write(f"{fault.family:<10} {fault.name:<34} {fault.about}\n")
        return 0
    if asked.fault is None:
        parser.error("--fault NAME, or --list")
    workloads = [each for each in asked.workloads.split(",") if each] or suited(BY_NAME[asked.fault], list(WORKLOADS))
    unknown = [name for name in workloads if name not in WORKLOADS]
    if unknown:
        parser.error(f"no workload {', '.join(unknown)}: there are {', '.join(WORKLOADS)}")
    signal.signal(signal.SIGTERM, _end)
    directory = asked.directory or Path(tempfile.mkdtemp(prefix="ottla-chaos-")) / "run"
    plan = Plan(asked.fault, tuple(workloads), asked.seed)
    result = run(plan, WORKLOADS, asked.toxiproxy, directory)
    tell(result)
    return 0 if result.is_well else 1


def _end(number: int, _: object) -> None:
    """So that nodes and proxies end with the run."""
    raise SystemExit(128 + number)


def tell(result: Result) -> None:
    write = sys.stdout.write
    write(
        f"{result.fault}, seed {result.seed}, {result.shape}, {result.seconds} s of fault, {result.took_s} s in all\n"
    )
    write("  " + ", ".join(f"{what} {seconds:.0f} s" for what, seconds in result.phases.items()) + "\n")
    for line in result.story:
        write(f"  {line}\n")
    for cell in result.cells:
        write(f"  {cell.workload}: {cell.verdict}, {cell.operations:,} operations\n")
        for finding in cell.findings:
            write(f"    {finding}\n")
        for finding in cell.permitted:
            write(f"    permitted: {finding}\n")
    if result.trouble:
        write(f"  FAILED: {result.trouble}\n")
    if not result.is_well:
        write(f"  everything of it is in {result.directory}\n  again: {result.command}\n")


if __name__ == "__main__":
    sys.exit(main())
