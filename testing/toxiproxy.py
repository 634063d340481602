"""Toxiproxy: its server's HTTP API, and clusters whose every inbound connection passes through it."""

import json
import urllib.error
import urllib.request
from typing import Any

from ottla.testing.processes import ProcessCluster, free_port_block


class Toxiproxy:
    """The server's HTTP API, as far as the tests use it."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310 - our own server, over HTTP
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - as above
            text = answer.read()
        return json.loads(text) if text else None

    def is_up(self) -> bool:
        try:
            self.call("GET", "/version")
        except (urllib.error.URLError, OSError):
            return False
        return True

    def proxy(self, name: str, listen: int, upstream: int) -> None:
        body = {"name": name, "listen": f"127.0.0.1:{listen}", "upstream": f"127.0.0.1:{upstream}", "enabled": True}
        self.call("POST", "/proxies", body)

    def cut(self, name: str) -> None:
        """Closes the proxy's connections and refuses new ones."""
        self.call("POST", f"/proxies/{name}", {"enabled": False})

    def heal(self, name: str) -> None:
        self.call("POST", f"/proxies/{name}", {"enabled": True})

    def add(self, name: str, kind: str, toxic: str, attributes: dict[str, int]) -> None:
        body = {"name": toxic, "type": kind, "stream": "downstream", "toxicity": 1.0, "attributes": attributes}
        self.call("POST", f"/proxies/{name}/toxics", body)

    def remove(self, name: str, toxic: str) -> None:
        self.call("DELETE", f"/proxies/{name}/toxics/{toxic}")


class ProxiedCluster(ProcessCluster):
    """Three nodes that know one another, and are known to clients, only by their proxies' ports."""

    def __init__(self, toxiproxy: Toxiproxy, settings: dict[str, str] | None = None) -> None:
        super().__init__(nodes=3, settings=settings)
        self.toxiproxy = toxiproxy
        base = free_port_block(8)
        self.client_ports = [base + at for at in range(3)]
        voters = ",".join(f"{node.node_id}@localhost:{base + 3 + at}" for at, node in enumerate(self.nodes))
        for at, node in enumerate(self.nodes):
            toxiproxy.proxy(self.client_proxy(node.node_id), self.client_ports[at], node.port)
            toxiproxy.proxy(self.controller_proxy(node.node_id), base + 3 + at, node.controller_port)
            text = node.properties.read_text(encoding="utf-8")
            lines = [
                f"advertised.listeners=PLAINTEXT://localhost:{self.client_ports[at]}" if line.startswith("advertised.listeners") else
                f"controller.quorum.voters={voters}" if line.startswith("controller.quorum.voters") else line
                for line in text.splitlines()
            ]  # fmt: skip
            node.properties.write_text("\n".join(lines) + "\n", encoding="utf-8")

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"localhost:{port}" for port in self.client_ports)

    def client_proxy(self, node_id: int) -> str:
        return f"client-{self.client_ports[0]}-{node_id}"

    def controller_proxy(self, node_id: int) -> str:
        return f"controller-{self.client_ports[0]}-{node_id}"
