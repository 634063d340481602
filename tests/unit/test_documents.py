"""What the documents point at is there."""

import re
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
AREAS = (
    "broker",
    "cli",
    "deploy",
    "docs",
    "examples",
    "log",
    "pipeline",
    "proto",
    "quorum",
    "runtime",
    "testing",
    "tests",
    "tools",
)
CODE = re.compile(r"`(?:\.\./)?([\w./-]+/[\w.-]+\.(?:py|proto|md|toml|yml|yaml))`")
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)")
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
NOT_OURS = ("pyspark/", "_manifests/")
PLACEHOLDER = "NAME"


@pytest.fixture(scope="module")
def files() -> list[str]:
    """With a slash before, so that whoever names the end of a path names whole parts of it."""
    found = chain.from_iterable((ROOT / area).rglob("*.*") for area in AREAS)
    return [f"/{path.relative_to(ROOT)}" for path in found]


def words(document: Path) -> str:
    return FENCED.sub("", document.read_text())


def anchors(document: Path) -> set[str]:
    """Of its headings, as pages show them."""
    headings = re.findall(r"^#+ (.*)$", words(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_a_document_names_are_there(document: Path, files: list[str]) -> None:
    named = {
        path for path in CODE.findall(words(document)) if not path.startswith(NOT_OURS) and PLACEHOLDER not in path
    }
    assert [path for path in sorted(named) if not any(each.endswith(f"/{path}") for each in files)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_of_a_document_lead_somewhere(document: Path) -> None:
    for path, anchor in LINK.findall(words(document)):
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


def test_the_readme_names_every_document() -> None:
    text = (ROOT / "README.md").read_text()
    assert [path.name for path in DOCUMENTS[1:] if f"docs/{path.name}" not in text] == []
