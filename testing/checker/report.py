"""What a history was found to be, for programs and for people."""

import io
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from ottla.testing.checker.findings import Finding, Findings, Judgement
from ottla.testing.checker.operations import Fault, Outcome

FINE, WRONG, NOT_KNOWN = range(3)
WIDTH = 160


class Report:
    """``anomalies`` are failures; ``permitted``: losses that an unclean election permits; ``unknown``: what could not be judged."""

    def __init__(self, found: Judgement, counts: dict[str, dict[str, int]], faults: list[Fault]) -> None:
        self._found = found
        self.counts = counts
        """By kind of operation: how many were ok, fail, unknown."""
        self.faults = faults

    @property
    def anomalies(self) -> list[Finding]:
        """Of each kind and place the first ten."""
        return self._found.anomalies.kept

    @property
    def permitted(self) -> list[Finding]:
        return self._found.permitted.kept

    @property
    def unknown(self) -> list[Finding]:
        return self._found.unknown.kept

    @property
    def operations(self) -> int:
        """That were acknowledged."""
        return sum(each[Outcome.OK] for each in self.counts.values())

    @property
    def valid(self) -> bool:
        """Nothing is wrong, and all was judged."""
        return self.exit_code == FINE

    @property
    def exit_code(self) -> int:
        if self.anomalies:
            return WRONG
        return NOT_KNOWN if self.unknown else FINE

    def as_json(self) -> str:
        found = self._found
        parts = {"anomalies": found.anomalies, "permitted": found.permitted, "unknown": found.unknown}
        told: dict[str, Any] = {"valid": self.valid, "operations": self.counts}
        told |= {name: _as_data(each) for name, each in parts.items()}
        return msgspec.json.format(msgspec.json.encode(told)).decode()

    def __str__(self) -> str:
        out = Console(file=io.StringIO(), width=WIDTH)
        out.print(self._operations())
        for title, findings in (
            ("anomalies", self._found.anomalies),
            ("losses that unclean elections permit", self._found.permitted),
            ("not known", self._found.unknown),
        ):
            if findings.kept:
                out.print(_table(title, findings))
        out.print("nothing is wrong" if self.valid else f"{sum(self._found.anomalies.counts.values())} anomalies")
        assert isinstance(out.file, io.StringIO)
        return out.file.getvalue()

    def _operations(self) -> Table:
        table = Table("operation", *Outcome, title="operations")
        for name, outcomes in self.counts.items():
            table.add_row(name, *(str(outcomes[each]) for each in Outcome))
        return table


def _as_data(findings: Findings) -> dict[str, Any]:
    kept = [{**each._asdict(), "lines": list(each.lines)} for each in findings.kept]
    return {"counts": findings.by_kind(), "findings": kept}


def _table(title: str, findings: Findings) -> Table:
    table = Table("kind", "where", "what", "lines", title=title)
    for each in findings.kept:
        table.add_row(each.kind, each.where, each.sentence, ", ".join(map(str, each.lines)))
    for (kind, where), count in findings.counts.items():
        more = count - sum(1 for each in findings.kept if (each.kind, each.where) == (kind, where))
        if more:
            table.add_row(kind, where, f"and {more} more", "")
    return table
