"""``ottla groups``: list, describe and delete consumer groups, and set how far they have read."""

import click

from ottla.cli.output import bootstrap_option, output_option, show


@click.group()
def groups() -> None:
    """List, describe and delete consumer groups, and reset their offsets."""


@groups.command("list")
@bootstrap_option
@output_option
def list_command(bootstrap: str, output: str) -> None:
    """List the groups."""
    from ottla.cli.group_requests import group_rows

    show(group_rows(bootstrap), ["group", "state", "protocol type", "type", "coordinator"], output)


@groups.command()
@click.argument("names", nargs=-1, required=True)
@bootstrap_option
@output_option
def describe(names: tuple[str, ...], bootstrap: str, output: str) -> None:
    """Show how far groups NAMES have read each partition, who reads it, and how many records are left."""
    from ottla.cli.group_requests import offset_rows

    rows = [row for name in names for row in offset_rows(bootstrap, name)]
    columns = ["group", "state", "topic", "partition", "committed", "end", "lag", "member", "client", "host"]
    show(rows, columns, output)


@groups.command()
@click.argument("names", nargs=-1, required=True)
@bootstrap_option
def delete(names: tuple[str, ...], bootstrap: str) -> None:
    """Delete groups NAMES, which have no members, and their offsets."""
    from ottla.cli.group_requests import delete_group

    for name in names:
        delete_group(bootstrap, name)
        click.echo(f"deleted {name}")


@groups.command("reset-offsets")
@click.argument("name")
@bootstrap_option
@click.option("--topic", "topics", multiple=True, help="Only this topic; again for more. Default: all it has read.")
@click.option("--to-earliest", is_flag=True, help="To each partition's first record.")
@click.option("--to-latest", is_flag=True, help="Behind each partition's last record.")
@click.option("--to-offset", type=click.IntRange(0), help="To this offset, or the nearest that there is.")
@click.option("--shift-by", type=int, help="By so many records, back if negative.")
@click.option("--dry-run", is_flag=True, help="Only show what would be committed.")
@output_option
def reset_offsets(
    name: str,
    bootstrap: str,
    topics: tuple[str, ...],
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    shift_by: int | None,
    dry_run: bool,
    output: str,
) -> None:
    """Set how far group NAME, which has no members, has read."""
    if sum((to_earliest, to_latest, to_offset is not None, shift_by is not None)) != 1:
        raise click.UsageError("write one of --to-earliest, --to-latest, --to-offset and --shift-by")
    from ottla.cli.group_requests import Target, reset_rows

    target = Target(to_earliest, to_latest, to_offset, shift_by)
    rows = reset_rows(bootstrap, name, topics, target, dry_run=dry_run)
    show(rows, ["group", "topic", "partition", "committed", "new"], output)
