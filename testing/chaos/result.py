"""What became of a run: a cell for each workload, kept as JSON."""

from pathlib import Path

import msgspec

WELL, FAILED, UNKNOWN = "well", "failed", "unknown"


class Cell(msgspec.Struct):
    """One workload under one fault. ``findings`` is what failed, ``permitted`` what was allowed to be lost."""

    workload: str
    verdict: str
    operations: int = 0
    findings: list[str] = []
    permitted: list[str] = []
    history: str = ""


class Result(msgspec.Struct):
    """``trouble``: why the whole run failed, if it did: the fault did not fire, the cluster did not come to rest."""

    fault: str
    seed: int
    shape: str
    seconds: float
    command: str
    directory: str
    cells: list[Cell] = []
    proofs: list[str] = []
    story: list[str] = []
    trouble: str = ""
    took_s: float = 0.0
    phases: dict[str, float] = {}
    """Seconds of each."""

    @property
    def is_well(self) -> bool:
        return not self.trouble and bool(self.cells) and all(cell.verdict == WELL for cell in self.cells)

    def write(self, path: Path) -> None:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))

    @classmethod
    def read(cls, path: Path) -> "Result":
        return msgspec.json.decode(path.read_bytes(), type=cls)
