"""``ottla features``: what every node of the cluster reads, and what it uses of that; as Kafka's kafka-features."""

import click

from ottla.cli.output import output_option, show
from ottla.cli.where import Where, where_options

METADATA_VERSION = "metadata.version"
# KIP-1022: what `--release-version` stands for. Levels of metadata.version by Kafka's release.
RELEASES = {"4.0": 25, "4.1": 27, "4.2": 29, "4.3": 30}

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3

feature_option = click.option(
    "--feature", "-f", "features", multiple=True, metavar="NAME=LEVEL", help="A feature and its level; again for more."
)
release_option = click.option(
    "--release-version", "release", type=click.Choice(list(RELEASES)), help="The levels of a release of Kafka."
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Only say whether it could be done.")


@click.group()
def features() -> None:
    """Show and change the finalized feature levels."""


@features.command()
@where_options
@output_option
def describe(where: Where, output: str) -> None:
    """Show each feature: the levels that the asked broker reads, and the one that the cluster uses."""
    from ottla.cli.feature_requests import feature_rows

    rows = feature_rows(where)
    show(rows, ["feature", "supported from", "supported to", "finalized", "as of offset"], output)


@features.command()
@where_options
@feature_option
@release_option
@dry_run_option
def upgrade(where: Where, features: tuple[str, ...], release: str | None, dry_run: bool) -> None:
    """Raise levels. Every node must read the new ones: upgrade the nodes first."""
    _update(where, _levels(features, release), UPGRADE, dry_run)


@features.command()
@where_options
@feature_option
@release_option
@dry_run_option
@click.option("--unsafe", is_flag=True, help="Also where that loses metadata.")
def downgrade(where: Where, features: tuple[str, ...], release: str | None, dry_run: bool, unsafe: bool) -> None:
    """Lower levels, so that older nodes may join again."""
    _update(where, _levels(features, release), UNSAFE_DOWNGRADE if unsafe else SAFE_DOWNGRADE, dry_run)


@features.command()
@where_options
@click.option("--feature", "-f", "names", multiple=True, required=True, metavar="NAME", help="Again for more.")
@dry_run_option
@click.option("--unsafe", is_flag=True, help="Also where that loses metadata.")
def disable(where: Where, names: tuple[str, ...], dry_run: bool, unsafe: bool) -> None:
    """Use features no longer."""
    _update(where, dict.fromkeys(names, 0), UNSAFE_DOWNGRADE if unsafe else SAFE_DOWNGRADE, dry_run)


def _levels(features: tuple[str, ...], release: str | None) -> dict[str, int]:
    levels = {METADATA_VERSION: RELEASES[release]} if release else {}
    for text in features:
        name, _, level = text.partition("=")
        if not name or not (level.isascii() and level.isdigit()):
            raise click.UsageError(f"--feature {text}: write NAME=LEVEL, as in {METADATA_VERSION}=30")
        levels[name] = int(level)
    if not levels:
        raise click.UsageError("give --feature NAME=LEVEL or --release-version")
    return levels


def _update(where: Where, levels: dict[str, int], kind: int, dry_run: bool) -> None:
    from ottla.cli.feature_requests import update_features

    update_features(where, levels, kind, dry_run=dry_run)
    for name, level in levels.items():
        done = "could be" if dry_run else "is"
        click.echo(f"{name} {done} at level {level}" if level else f"{name} {done} disabled")
