"""Who may come in: how many connections there are, in all and by address."""

from ottla.broker.network.limits import ServerLimits


class Admission:
    """Counts who came and did not go. Pure: it says why somebody may not come in, and the server does the rest."""

    def __init__(self) -> None:
        self.count = 0
        self._per_address: dict[str, int] = {}

    def enter(self, address: str) -> None:
        self.count += 1
        self._per_address[address] = self._per_address.get(address, 0) + 1

    def leave(self, address: str) -> None:
        self.count -= 1
        left = self._per_address[address] - 1
        if left:
            self._per_address[address] = left
        else:
            del self._per_address[address]

    def refusal(self, address: str, listener: str, limits: ServerLimits) -> str | None:
        """Why one more may not come in. The listener between brokers is not bounded by ``max.connections``."""
        if self.count >= limits.connections_max and listener != limits.protected_listener:
            return f"max.connections={limits.connections_max} is reached"
        of_address_max = limits.connections_per_ip_overrides.get(address, limits.connections_per_ip_max)
        if self._per_address.get(address, 0) >= of_address_max:
            return f"max.connections.per.ip={of_address_max} is reached for {address}"
        return None
