"""A boot: ranks are started, come, say what they are, are found to fit together, and get their devices."""

import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.errors import RanksFailed
from .channel import Channel
from .driving import POLL_S, Member, heard, listening
from .listener import Listener, is_loopback
from .messages import to_controller
from .placement import Placement


class Boot:
    """One boot of so many ranks.

    Args:
        placement: starts them.
        size: how many.
        kind: of the devices that they are to own: `cpu`, `cuda` or `xpu`.
        address: that they reach this process on; empty is any.
        seconds: until all must be ready.
        asked: whether somebody asked for that kind of device.
    """

    def __init__(
        self, placement: Placement, size: int, kind: str, address: str, seconds: float, *, asked: bool = True
    ) -> None:
        self.members: dict[int, Member] = {}
        self._placement, self._size, self._kind, self._address = placement, size, kind, address
        self._seconds, self._asked = seconds, asked
        self._until_s = time.monotonic() + seconds

    def run(self, store_port: int) -> None:
        """Start the ranks, and wait until they are ready; `members` has those that came, also after a failure.

        Args:
            store_port: of the store in which worlds meet.

        Raises:
            RanksFailed: they did not come, or do not fit together.
            RanksSkipped: a host has fewer devices than ranks.
            BadInput: the launcher cannot be used.
        """
        listener = Listener(self._address)
        came: dict[int, tuple[Channel, Any]] = {}
        try:
            self._placement.start(self._size, to_controller(listener.endpoint))
            listener.gather(
                range(self._size),
                self._size,
                came,
                lambda missing: self._check(missing, listener.refused),
                f": was it started by another MPI's or Slurm's {self._placement.name} than its libraries belong to? "
                "Then every process is a world of its own",
            )
        finally:
            self.members = {rank: _member(channel, hello) for rank, (channel, hello) in came.items()}
            listener.close()
        join = {"kind": "join", "device": self._kind, "path": sys.path, "folder": str(Path.cwd())}
        for member in self.members.values():
            member.channel.send(join)
        self._settle_in(store_port)

    def _check(self, missing: Sequence[int], refused: int = 0) -> None:
        """Give up where the launcher has, or the time is over."""
        trouble = self._placement.trouble()
        names = f"rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))} of {self._size}"
        if trouble:
            cause, _, words = trouble.partition("\n")
            start = f"{cause} ({self._placement.name}, started on {socket.gethostname()}); {names} did not come"
            raise RanksFailed(f"{start}\n{words}".rstrip())
        if time.monotonic() > self._until_s:
            strangers = f"; {refused} connections did not know the key" if refused else ""
            tails = "\n".join(filter(None, (self._placement.tail(rank) for rank in missing)))
            late = f"{names} did not come within {self._seconds:g} s ({self._placement.name}{strangers})"
            raise RanksFailed(f"{late}\n{tails}".rstrip())

    def _settle_in(self, store_port: int) -> None:
        """Check that the ranks fit together, give each its device, and wait until all are ready."""
        from .facts import assign, check, check_products, threads, versions

        told = self._each("facts")
        facts = [told[rank]["facts"] for rank in sorted(told)]
        check(facts, versions(self._kind))
        devices = assign(facts) if self._kind != "cpu" else {}
        shares = threads(facts)
        for rank, member in self.members.items():
            member.facts = replace(told[rank]["facts"], threads=shares[rank])
            boot = {"kind": "boot", "device": devices.get(rank), "threads": shares[rank], "store": store_port}
            member.channel.send(boot | self._network())
        products = {}
        for rank, message in sorted(self._each("ready").items()):
            member = self.members[rank]
            member.environment = message["environment"]
            if message["unwanted"] and not self._asked:
                raise RanksFailed(f"rank {rank} on {member.host}: {message['unwanted']}")
            products[rank] = (member.host, message["environment"].device.product)
        check_products(products)

    def _network(self) -> dict[str, Any]:
        """Whether ranks must reach other nodes, and by which of its addresses those reach this one."""
        ends = [member.channel.addresses for member in self.members.values()]
        outward = next((own for own, peer in ends if not is_loopback(peer)), "")
        return {"several_hosts": len({one.host for one in self.members.values()}) > 1, "outward": outward}

    def _each(self, kind: str) -> dict[int, Any]:
        """One message of a kind from every rank."""
        found: dict[int, Any] = {}
        with listening(self.members.values()) as selector:
            while len(found) < len(self.members):
                for key, _ in selector.select(POLL_S):
                    for message in heard(key.data):
                        if message["kind"] == "gone":
                            raise RanksFailed(self._lost(key.data))
                        if message["kind"] == kind:
                            found[key.data.rank] = message
                self._check([rank for rank in self.members if rank not in found])
        return found

    def _lost(self, member: Member) -> str:
        fate = self._placement.fate(member.rank) or "its connection ended"
        return (
            f"rank {member.rank} (pid {member.pid} on {member.host}) was lost during its boot: {fate}\n"
            f"{self._placement.tail(member.rank)}".rstrip()
        )


def _member(channel: Channel, hello: dict[str, Any]) -> Member:
    return Member(hello["rank"], channel, hello["host"], hello["pid"], hello["stacks"], hello["space"], hello["ticks"])
