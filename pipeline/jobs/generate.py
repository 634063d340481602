"""``ottla spark generate``: a vehicle fleet's telemetry, into topics or segment files. Needs no Spark."""

from dataclasses import dataclass
from typing import Any

import click

from ottla.cli.failures import CommandError
from ottla.cli.output import bootstrap_option, output_option
from ottla.pipeline.jobs.fleet_words import KINDS, fleet_numbers, fleet_words
from ottla.pipeline.jobs.numbers import FiniteRange


@dataclass(frozen=True)
class GenerateOptions:
    fleet: dict[str, Any]
    kinds: tuple[str, ...]
    prefix: str
    partitions: int
    compression: str
    bootstrap: str
    replicas: int | None
    rate: float | None
    append: bool
    segments: str | None
    output: str


@click.command()
@bootstrap_option
@fleet_words
@click.option(
    "--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="Only this; again for more.  [default: all three]"
)
@click.option(
    "--partitions",
    type=click.IntRange(1),
    default=6,
    show_default=True,
    help="Of topics that are not there yet, and of segment files.",
)
@click.option("--replication-factor", "replicas", type=click.IntRange(1), help="Likewise.  [default: the cluster's]")
@click.option("--rate", type=FiniteRange(0, min_open=True), help="Records a second.  [default: as fast as it goes]")
@click.option(
    "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="lz4", show_default=True
)
@click.option("--append", is_flag=True, help="Write to topics that hold records already, too.")
@click.option(
    "--segments", metavar="DIR", help="No cluster: write a broker's segment files to DIR/PREFIX_V-0 and so on."
)
@output_option
def generate(**words: Any) -> None:
    """Make a vehicle fleet's telemetry: the same records for the same words, each with its vehicle (vin) and number (seq).

    `ottla spark check` with the same words tells what of it was lost, doubled or reordered.
    """
    from ottla.pipeline.jobs import missing

    options = GenerateOptions(fleet=fleet_numbers(words), **(words | {"kinds": words["kinds"] or KINDS}))
    if options.segments and (options.rate or options.append):
        raise click.UsageError("--rate and --append are of topics, not of --segments")
    missing.require("numpy", "pyarrow")
    from ottla.pipeline.jobs.generate_run import run
    from ottla.pipeline.wire.errors import ClientError

    try:
        run(options)
    except ClientError as error:
        raise CommandError(str(error)) from None
