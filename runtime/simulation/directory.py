"""Directories and the journal of their changes: an entry survives a power cut once its directory was synced."""

from random import Random
from typing import NamedTuple, Union

from ottla.runtime.simulation.inode import Inode


class Directory:
    """``entries`` as the program sees them, ``durable`` as a power cut would leave them."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.durable: dict[str, Entry] = {}


Entry = Union[Inode, Directory]  # noqa: UP007 - evaluated, and the names refer to each other


class Assignment(NamedTuple):
    """``name`` in ``directory`` becomes ``entry``; None removes it."""

    directory: Directory
    name: str
    entry: Entry | None

    def apply_to(self, entries: dict[str, Entry]) -> None:
        if self.entry is None:
            entries.pop(self.name, None)
        else:
            entries[self.name] = self.entry


Change = tuple[Assignment, ...]  # together or not at all: one or, for a rename, two


class Journal:
    """Changes of entries since they were last made durable, in order. A power cut keeps some first part of them."""

    def __init__(self) -> None:
        self._changes: list[Change] = []

    def change(self, *assignments: Assignment) -> None:
        for assignment in assignments:
            assignment.apply_to(assignment.directory.entries)
        self._changes.append(assignments)

    def commit(self, directory: Directory) -> None:
        """Makes the directory's changes durable, and of others what they depend on (a rename between two)."""
        touched, kept, committed = {directory}, list[Change](), list[Change]()
        for change in reversed(self._changes):
            if change[0].directory in touched or change[-1].directory in touched:
                touched.update((change[0].directory, change[-1].directory))
                committed.append(change)
            else:
                kept.append(change)
        self._make_durable(committed[::-1])
        self._changes = kept[::-1]

    def commit_all(self) -> None:
        self._make_durable(self._changes)
        self._changes = []

    def power_loss(self, rng: Random) -> None:
        survivors = rng.choice((0, len(self._changes), rng.randint(0, len(self._changes))))
        self._make_durable(self._changes[:survivors])
        self._changes = []

    @staticmethod
    def _make_durable(changes: list[Change]) -> None:
        for change in changes:
            for assignment in change:
                assignment.apply_to(assignment.directory.durable)
