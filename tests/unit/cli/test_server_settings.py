"""`ottla server start` with settings that cannot be: a line for each, and nothing is opened."""

import sys
from pathlib import Path

import pytest

from ottla.cli.main import main

PROPERTIES = """\
node.id=1
process.roles=broker,controller
listeners=SASL_SSL://localhost:9092,CONTROLLER://localhost:9192
controller.listener.names=CONTROLLER
controller.quorum.voters=1@localhost:9192
authorizer.class.name=x.Authorizer
"""


def test_a_node_that_cannot_keep_its_promises_says_all_of_them_and_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(PROPERTIES + f"log.dirs={tmp_path}/data\nottla.log.file={tmp_path}/log\n")
    monkeypatch.setattr(sys, "argv", ["ottla", "server", "start", "--config", str(properties)])

    with pytest.raises(SystemExit) as caught:
        main()

    assert caught.value.code == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("=")[0] for line in lines] == ["ottla: authorizer.class.name", "ottla: listeners"]
    assert list(tmp_path.iterdir()) == [properties]
