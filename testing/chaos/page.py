"""The matrix as one HTML page that needs nothing besides itself."""

from collections.abc import Sequence
from html import escape
from os.path import relpath
from pathlib import Path

from ottla.testing.chaos.result import FAILED, WELL, Cell, Result
from ottla.testing.chaos.table import BY_NAME

_STYLE = """
:root { color-scheme: light dark; --ground: #fcfcfb; --ink: #1d1f21; --quiet: #6b7075; --line: #e3e4e2; --raised: #f3f4f2;
  --well: #1a7f4b; --well-ground: #e2f3e9; --failed: #b3261e; --failed-ground: #fbe4e2; --open: #8a5a00; --open-ground: #fbf0d9; }
@media (prefers-color-scheme: dark) { :root { --ground: #17191b; --ink: #e6e7e8; --quiet: #9aa0a6; --line: #2e3134; --raised: #1f2224;
  --well: #6fd19c; --well-ground: #16301f; --failed: #ff9a92; --failed-ground: #3d1a18; --open: #f0c36b; --open-ground: #37290f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 78rem; padding: 2rem 1.25rem 6rem; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2.5rem 0 .5rem; }
.quiet, small { color: var(--quiet); } .scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; padding: .3rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
thead th { position: sticky; top: 0; background: var(--ground); }
tbody th a { color: inherit; text-decoration: none; } tbody th a:hover { text-decoration: underline; }
td { padding: 2px; border-bottom: 1px solid var(--line); }
td a { display: block; padding: .15rem .6rem; border-radius: 4px; text-align: center; text-decoration: none; font-size: .85rem; }
.well { color: var(--well); background: var(--well-ground); } .failed { color: var(--failed); background: var(--failed-ground); font-weight: 600; }
.unknown { color: var(--open); background: var(--open-ground); } td.about { padding-left: .8rem; color: var(--quiet); font-size: .85rem; }
tr.family th { padding-top: 1.1rem; color: var(--quiet); font-weight: 500; }
article { border-top: 1px solid var(--line); padding: 1rem 0; } article h3 { margin: 0; font-size: 1rem; }
article:target { background: var(--raised); } pre { margin: .5rem 0; padding: .6rem .8rem; background: var(--raised); border-radius: 6px;
  overflow-x: auto; font: 12.5px/1.5 ui-monospace, monospace; white-space: pre-wrap; } li { margin: .2rem 0; }
"""

_WORDS = {WELL: "well", FAILED: "failed", "unknown": "open"}


def page(results: Sequence[Result], title: str, summary: str, directory: Path) -> str:
    """``directory``: where the page will lie; links to histories and logs begin there."""
    workloads = list(dict.fromkeys(cell.workload for result in results for cell in result.cells))
    rows = "".join(_rows(results, workloads))
    details = "".join(_details(result, directory) for result in results)
    head = "".join(f"<th>{escape(name)}</th>" for name in workloads)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>"
        f'<h1>{escape(title)}</h1><p class="quiet">{escape(summary)}</p>'
        f'<div class="scroll"><table><thead><tr><th>fault</th>{head}<th></th></tr></thead><tbody>{rows}</tbody></table></div>'
        f"<h2>Runs</h2>{details}</html>\n"
    )


def _rows(results: Sequence[Result], workloads: Sequence[str]) -> list[str]:
    rows, family = [], ""
    for result in results:
        fault = BY_NAME[result.fault]
        if fault.family != family:
            family = fault.family
            rows.append(f'<tr class="family"><th colspan="{len(workloads) + 2}">{escape(family)}</th></tr>')
        by_name = {cell.workload: cell for cell in result.cells}
        cells = "".join(_cell(result, by_name.get(name)) for name in workloads)
        if not workloads:
            cells = _cell(result, None)
        rows.append(
            f'<tr><th><a href="#{_anchor(result)}">{escape(result.fault)}</a></th>{cells}'
            f'<td class="about">{escape(fault.about)}</td></tr>'
        )
    return rows


def _cell(result: Result, cell: Cell | None) -> str:
    if cell is None:
        kind, text = (FAILED, "no run") if result.trouble else ("", "")
        return f'<td><a class="{kind}" href="#{_anchor(result)}">{text}</a></td>' if kind else "<td></td>"
    kind = FAILED if result.trouble else cell.verdict
    text = f"{cell.operations:,}" if kind == WELL else _WORDS[kind]
    if cell.permitted:
        text += f" · {len(cell.permitted)} permitted"
    return f'<td><a class="{kind}" href="#{_anchor(result)}-{escape(cell.workload)}">{text}</a></td>'


def _anchor(result: Result) -> str:
    return f"{result.fault}-{result.seed}"


def _details(result: Result, directory: Path) -> str:
    trouble = f'<p class="failed">{escape(result.trouble)}</p>' if result.trouble else ""
    place = escape(relpath(result.directory, directory))
    return (
        f'<article id="{_anchor(result)}"><h3>{escape(result.fault)}</h3>'
        f"<small>seed {result.seed} · {escape(result.shape)} · {result.seconds} s of fault · {result.took_s} s in all · "
        f'<a href="{place}">files</a></small>{trouble}'
        f"<pre>{escape(chr(10).join(result.story))}</pre><pre>{escape(result.command)}</pre>"
        f"<ul>{''.join(_told(result, cell, directory) for cell in result.cells)}</ul></article>"
    )


def _told(result: Result, cell: Cell, directory: Path) -> str:
    history = f' · <a href="{escape(relpath(cell.history, directory))}">history</a>' if cell.history else ""
    found = "".join(f"<li>{escape(each)}</li>" for each in cell.findings)
    found += "".join(f"<li>permitted: {escape(each)}</li>" for each in cell.permitted)
    return (
        f'<li id="{_anchor(result)}-{escape(cell.workload)}"><span class="{cell.verdict}">{escape(cell.workload)}: '
        f"{_WORDS[cell.verdict]}</span>, {cell.operations:,} operations{history}{f'<ul>{found}</ul>' if found else ''}</li>"
    )
