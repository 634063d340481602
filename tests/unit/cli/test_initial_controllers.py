"""`storage format`: who the quorum's first voters are, and what is refused."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ottla.cli.formatting import format_directories
from ottla.cli.initial_controllers import InitialControllers
from ottla.cli.quorum_requests import described_controller
from ottla.cli.storage import format_command
from ottla.log.directories.checkpoints import MetaProperties
from ottla.quorum.initial_voters import INITIAL_VOTERS, InitialVotersError, read_initial_voters
from ottla.quorum.raft.voters import Endpoint, ReplicaKey
from ottla.runtime.identifiers import id_from_text, id_to_text
from ottla.runtime.real_disk import RealDisk
from ottla.runtime.settings.definitions import SettingError
from ottla.runtime.settings.endpoints import Listener
from ottla.runtime.settings.server import ServerConfig

CLUSTER = id_to_text(bytes(range(16)))
ONE, TWO = (id_to_text(bytes([number]) * 16) for number in (1, 2))
TWO_CONTROLLERS = f"1@localhost:9193:{ONE},2@[::1]:9193:{TWO}"

JOINING = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9193",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9193",
}


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    return written(tmp_path)


def written(tmp_path: Path, **changes: str) -> Path:
    texts = JOINING | {"log.dirs": str(tmp_path / "data")}
    texts |= {name.replace("_", "."): text for name, text in changes.items()}
    path = tmp_path / "server.properties"
    path.write_text("\n".join(f"{name}={text}" for name, text in texts.items() if text), encoding="utf-8")
    return path


def formatted(properties: Path, controllers: InitialControllers) -> str:
    return format_directories(properties, CLUSTER, ignore_formatted=False, controllers=controllers)[0]


def test_a_standalone_controller_is_the_only_voter(properties: Path) -> None:
    directory = formatted(properties, InitialControllers(standalone=True))
    meta, voters = MetaProperties.read(RealDisk(), directory), read_initial_voters(RealDisk(), directory)

    assert meta is not None
    assert voters is not None
    assert voters.get(1) == (ReplicaKey(1, meta.directory_id), Endpoint("localhost", 9193))
    assert len(voters) == 1


def test_initial_controllers_have_the_directories_that_are_listed(properties: Path) -> None:
    directory = formatted(properties, InitialControllers(listed=TWO_CONTROLLERS))
    meta, voters = MetaProperties.read(RealDisk(), directory), read_initial_voters(RealDisk(), directory)

    assert meta is not None
    assert voters is not None
    assert meta.directory_id == id_from_text(ONE)
    assert voters.get(2) == (ReplicaKey(2, id_from_text(TWO)), Endpoint("::1", 9193))


def test_a_controller_that_joins_knows_no_voters(properties: Path) -> None:
    directory = formatted(properties, InitialControllers(none=True))

    assert read_initial_voters(RealDisk(), directory) is None


@pytest.mark.parametrize(
    ("controllers", "changes", "words"),
    [
        (InitialControllers(), {}, "give --standalone"),
        (InitialControllers(standalone=True, none=True), {}, "give one of"),
        (InitialControllers(standalone=True), {"process_roles": "broker"}, "is no controller"),
        (InitialControllers(none=True), {"controller_quorum_voters": "1@localhost:9193"}, "names the voters already"),
        (InitialControllers(listed=f"2@localhost:9193:{TWO}"), {}, "does not name this node 1"),
        (InitialControllers(listed=f"1@elsewhere:9193:{ONE}"), {}, "it does on localhost:9193"),
        (InitialControllers(listed="1@localhost:9193"), {}, "--initial-controllers"),
        (InitialControllers(listed=f"\u00b9@localhost:9193:{ONE}"), {}, "--initial-controllers"),
        (InitialControllers(listed=f"1@localhost:9193:{ONE},1@localhost:9193:{TWO}"), {}, "occurs twice"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_written(
    tmp_path: Path, controllers: InitialControllers, changes: dict[str, str], words: str
) -> None:
    properties = written(tmp_path, **changes)
    with pytest.raises(click.UsageError, match=words):
        formatted(properties, controllers)

    assert not (tmp_path / "data").exists()


def test_a_static_controller_and_a_broker_need_no_option(tmp_path: Path) -> None:
    formatted(written(tmp_path, controller_quorum_voters="1@localhost:9193"), InitialControllers())
    formatted(written(tmp_path, process_roles="broker", log_dirs=str(tmp_path / "other")), InitialControllers())

    assert list(tmp_path.rglob(INITIAL_VOTERS)) == []


def test_the_command_takes_kafkas_options(properties: Path) -> None:
    done = CliRunner().invoke(format_command, ["-c", str(properties), "-t", CLUSTER, "-s"])

    assert done.exit_code == 0
    assert done.output.startswith("formatted ")


def test_a_damaged_file_of_voters_is_named(properties: Path) -> None:
    directory = formatted(properties, InitialControllers(standalone=True))
    (Path(directory) / INITIAL_VOTERS).write_text("[{]", encoding="utf-8")
    with pytest.raises(InitialVotersError, match=r"initial-controllers\.json cannot be read"):
        read_initial_voters(RealDisk(), directory)


# --- what add-controller reads of a new controller --------------------------------------------------------------------


def test_a_formatted_controller_says_who_it_is(properties: Path) -> None:
    formatted(properties, InitialControllers(listed=TWO_CONTROLLERS))
    node = described_controller(properties)

    assert (node.node_id, node.directory_id, node.cluster_id) == (1, id_from_text(ONE), CLUSTER)
    assert node.listener == Listener("CONTROLLER", "localhost", 9193)


def test_a_controller_is_reached_where_it_advertises(tmp_path: Path) -> None:
    config = ServerConfig.load(written(tmp_path, advertised_listeners="PLAINTEXT://a:1,CONTROLLER://b:2"), {})

    assert config.controller_endpoint == ("b", 2)
    assert [each.name for each in config.advertised_listeners] == ["PLAINTEXT"]


def test_static_voters_say_where_a_controller_is_reached(tmp_path: Path) -> None:
    config = ServerConfig.load(written(tmp_path, controller_quorum_voters="1@known:9193"), {})

    assert config.controller_endpoint == ("known", 9193)


def test_a_node_without_any_word_of_the_quorum_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"controller\.quorum\.bootstrap\.servers"):
        ServerConfig.load(written(tmp_path, controller_quorum_bootstrap_servers=""), {})
