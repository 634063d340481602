"""python -m ottla.testing.chaos.matrix [--seed N] [--beside 3] [--faults a,b] [--directory DIR]: every fault meets every workload.

Each run is a process of its own; some run beside each other. The result is a table here and a page in the directory.
"""

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ottla.testing.chaos.page import page
from ottla.testing.chaos.plan import Plan, whole
from ottla.testing.chaos.result import FAILED, WELL, Cell, Result
from ottla.testing.chaos.run import TOXIPROXY
from ottla.testing.chaos.table import BY_NAME
from ottla.testing.chaos.workloads import WORKLOADS

RUN_S = 900.0
"""A run that takes longer hangs."""
_END_S = 60.0
_FILE_WIDTH = 160
"""Of the table, where no terminal says how wide it is: names stay whole."""
_SIGNS = {WELL: "[green]✓[/]", FAILED: "[bold red]✗[/]", "unknown": "[yellow]?[/]"}


def today() -> int:
    """The seed of a day, so that every day has others."""
    return int(time.strftime("%Y%m%d", time.gmtime()))


def play(plan: Plan, directory: Path, toxiproxy: Path = TOXIPROXY) -> Result:
    """In a process of its own, whose words are in a file beside the run's directory."""
    home = directory / f"{plan.fault}-{plan.seed}"
    words = home.with_suffix(".log")
    command = [sys.executable, "-m", *plan.command.split()[2:], "--directory", str(home), "--toxiproxy", str(toxiproxy)]
    began = time.monotonic()
    with words.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        _under_way.append(process)
        try:
            code = process.wait(RUN_S)
            trouble = f"the run ended with {code} and left no result"
        except subprocess.TimeoutExpired:
            _end(process)
            trouble = f"the run took more than {RUN_S:.0f} s"
        _under_way.remove(process)
    if (home / "result.json").exists():
        return Result.read(home / "result.json")
    took = round(time.monotonic() - began, 1)
    where = f"{trouble}: see {words}"
    return Result(plan.fault, plan.seed, plan.shape, plan.seconds, plan.command, str(home), trouble=where, took_s=took)


_under_way: list["subprocess.Popen[bytes]"] = []
_ending = threading.Event()


def end_all(*_: object) -> None:
    """Of this process: those that are under way are asked to end, with their nodes, and none is begun any more."""
    _ending.set()
    for process in list(_under_way):
        process.terminate()
    for process in list(_under_way):
        process.wait()
    os._exit(130)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """It is asked to, so that it ends its nodes."""
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Matrix:
    """Runs, as they come in."""

    def __init__(self, plans: Sequence[Plan], directory: Path, beside: int, toxiproxy: Path) -> None:
        self._plans = plans
        self._directory = directory
        self._beside = beside
        self._toxiproxy = toxiproxy
        self._console = Console(highlight=False)
        self._lock = threading.Lock()
        self._done = 0
        self.results: list[Result] = []

    def play(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(self._beside) as pool:
            self.results = list(pool.map(self._one, self._plans))

    def _one(self, plan: Plan) -> Result:
        if _ending.is_set():
            raise SystemExit
        result = play(plan, self._directory, self._toxiproxy)
        with self._lock:
            self._done += 1
            sign = _SIGNS[WELL if result.is_well else FAILED]
            self._console.print(f"{self._done:3}/{len(self._plans)} {sign} {plan.fault} ({result.took_s:.0f} s)")
            if not result.is_well:
                for line in complaints(result):
                    self._console.print(f"      {escape(line)}", soft_wrap=True)
        return result


def complaints(result: Result) -> list[str]:
    """What failed, and how to have it again."""
    lines = [result.trouble] if result.trouble else []
    for cell in result.cells:
        lines += [f"{cell.workload}: {finding}" for finding in cell.findings]
    return [*lines, f"files: {result.directory}", f"again: {result.command}"]


def table(results: Sequence[Result]) -> Table:
    workloads = list(dict.fromkeys(cell.workload for result in results for cell in result.cells))
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("fault", *workloads, "s"):
        shown.add_column(name, justify="left" if name == "fault" else "right" if name == "s" else "center")
    for result in results:
        by_name = {cell.workload: cell for cell in result.cells}
        cells = [_sign(result, by_name.get(name)) for name in workloads]
        shown.add_row(escape(result.fault), *cells, f"{result.took_s:.0f}")
    return shown


def _sign(result: Result, cell: Cell | None) -> str:
    if cell is None:
        return _SIGNS[FAILED] if result.trouble else ""
    sign = _SIGNS[FAILED if result.trouble else cell.verdict]
    return f"{sign} {len(cell.permitted)} permitted" if cell.permitted else sign


def summary(results: Sequence[Result], took_s: float) -> str:
    cells = sum(len(result.cells) for result in results)
    well = sum(cell.verdict == WELL and not result.trouble for result in results for cell in result.cells)
    operations = sum(cell.operations for result in results for cell in result.cells)
    return (
        f"{len(results)} faults, {cells} cells, {well} of them well, {operations:,} operations judged, {took_s / 60:.0f} min; "
        f"seed {results[0].seed if results else 0}, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ottla.testing.chaos.matrix", description="The chaos matrix.")
    parser.add_argument("--seed", type=int, default=today(), help="the day's otherwise")
    parser.add_argument("--beside", type=int, default=max(3, os.cpu_count() or 3), help="runs beside each other")
    parser.add_argument("--faults", default="", help="these only")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--directory", type=Path, default=Path(".cache/chaos"))
    parser.add_argument("--toxiproxy", type=Path, default=TOXIPROXY)
    asked = parser.parse_args()
    chosen = [name for name in asked.faults.split(",") if name]
    if unknown := [name for name in chosen if name not in BY_NAME]:
        parser.error(f"no fault {', '.join(unknown)}: --list of ottla.testing.chaos.run shows them")
    plans = [plan for plan in whole(asked.workloads.split(","), asked.seed) if not chosen or plan.fault in chosen]
    directory = (asked.directory / time.strftime("%Y%m%d-%H%M%S", time.gmtime())).resolve()
    began = time.monotonic()
    matrix = Matrix(plans, directory, asked.beside, asked.toxiproxy.resolve())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end_all)
    matrix.play()
    results, took_s = matrix.results, time.monotonic() - began
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _FILE_WIDTH)
    console.print(table(results))
    told = summary(results, took_s)
    console.print(told)
    index = directory / "index.html"
    index.write_text(page(results, "Ottla under faults", told, directory), encoding="utf-8")
    console.print(f"page: {index}", soft_wrap=True)
    return 0 if all(result.is_well for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
