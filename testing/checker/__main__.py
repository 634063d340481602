"""python -m ottla.testing.checker HISTORY [-o json]: 0 nothing is wrong, 1 something is, 2 it could not be judged."""

from pathlib import Path

import click

from ottla.testing.checker.history import HistoryError
from ottla.testing.checker.judging import check_file
from ottla.testing.checker.report import NOT_KNOWN


@click.command()
@click.argument("history", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_context
def main(context: click.Context, history: Path, output: str) -> None:
    """Judge a history of operations: what was lost, doubled, reordered, stale. Exit code 0: nothing; 1: something; 2: not known."""
    try:
        report = check_file(history)
    except (HistoryError, OSError) as error:
        click.echo(f"{history}: {error}", err=True)
        context.exit(NOT_KNOWN)
    click.echo(report.as_json() if output == "json" else str(report), nl=output == "json")
    context.exit(report.exit_code)


if __name__ == "__main__":
    main()
