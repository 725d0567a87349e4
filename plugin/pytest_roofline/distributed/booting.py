"""A boot: ranks are started, come, say what they are, are found to fit together, and get their devices."""

import socket
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.errors import RanksFailed, RanksSkipped
from .channel import Channel, Listener, listen, new_key
from .interfaces import is_loopback
from .members import POLL_S, Member, listening
from .messages import ADDRESS_VARIABLE, CONNECT_S, CONNECT_VARIABLE, KEY_VARIABLE, address_text, own_addresses
from .placement import Placement

# So many ranks that did not come so often in a row are not tried again.
MOST_FAILED_BOOTS = 2
# For the first word of a rank that has connected.
HELLO_S = 10.0


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
        key = new_key()
        listener = listen(self._address, key)
        try:
            where = address_text(own_addresses(self._address), listener.port)
            variables = {
                ADDRESS_VARIABLE: where,
                KEY_VARIABLE: key.hex(),
                CONNECT_VARIABLE: f"{max(CONNECT_S, self._seconds):g}",
            }
            self._placement.start(self._size, variables)
            self._gather(listener)
        finally:
            listener.close()
        self._settle_in(store_port)

    def _gather(self, listener: Listener) -> None:
        """Wait until every rank has said who it is."""
        while len(self.members) < self._size:
            channel = listener.accept(POLL_S)
            if channel is not None:
                self._take_in(channel)
            else:
                self._check([rank for rank in range(self._size) if rank not in self.members], listener.refused)

    def _take_in(self, channel: Channel) -> None:
        try:
            hello = channel.receive(HELLO_S)
        except (EOFError, TimeoutError):
            # It is gone again; what started it, or the end of the time, will tell why.
            channel.close()
            return
        rank, size = hello["rank"], hello["size"]
        if size != self._size or rank in self.members or not 0 <= rank < self._size:
            channel.close()
            raise RanksFailed(
                f"a rank on {hello['host']} says that it is rank {rank} of {size}; expected ranks 0 to "
                f"{self._size - 1} of {self._size}, once each: was it started by another MPI's or Slurm's "
                f"{self._placement.name} than its libraries belong to? Then every process is a world of its own"
            )
        self.members[rank] = Member(
            rank, channel, hello["host"], hello["pid"], hello["stacks"], hello["space"], hello["ticks"]
        )
        channel.send({"kind": "join", "device": self._kind, "path": sys.path, "folder": str(Path.cwd())})

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
            member.environment, member.backends = message["environment"], message["backends"]
            if message["unwanted"] and not self._asked:
                raise RanksFailed(f"rank {rank} on {member.host}: {message['unwanted']}")
            products[rank] = (member.host, message["environment"].device.product)
        check_products(products)

    def _network(self) -> dict[str, Any]:
        """Whether ranks must reach other nodes, and by which of its addresses those reach this one."""
        ends = [member.channel for member in self.members.values()]
        outward = next((end.own_address for end in ends if not is_loopback(end.peer_address)), "")
        return {"several_hosts": len({one.host for one in self.members.values()}) > 1, "outward": outward}

    def _each(self, kind: str) -> dict[int, Any]:
        """One message of a kind from every rank."""
        found: dict[int, Any] = {}
        with listening(self.members.values()) as selector:
            while len(found) < len(self.members):
                for key, _ in selector.select(POLL_S):
                    rank = key.data
                    try:
                        messages = self.members[rank].channel.poll()
                    except EOFError:
                        raise RanksFailed(self._lost(rank)) from None
                    for message in messages:
                        if message["kind"] == kind:
                            found[rank] = message
                self._check([rank for rank in self.members if rank not in found])
        return found

    def _lost(self, rank: int) -> str:
        member = self.members[rank]
        fate = self._placement.fate(rank) or "its connection ended"
        return (
            f"rank {rank} (pid {member.pid} on {member.host}) was lost during its boot: {fate}\n"
            f"{self._placement.tail(rank)}".rstrip()
        )


class Boots:
    """What became of the boots of a pool, by their numbers of ranks: what cannot be is not tried again and again."""

    def __init__(self) -> None:
        self._failed: dict[int, list[str]] = defaultdict(list)
        self._skipped: dict[int, str] = {}

    def check(self, size: int) -> None:
        """Whether a boot of so many ranks is worth a try.

        Raises:
            RanksFailed: too many in a row have failed.
            RanksSkipped: there were not devices for so many.
        """
        if size in self._skipped:
            raise RanksSkipped(self._skipped[size])
        failed = self._failed[size]
        if len(failed) >= MOST_FAILED_BOOTS:
            raise RanksFailed(f"{failed[-1]}\n(not tried again after {MOST_FAILED_BOOTS} failed boots)")

    def note(self, size: int, error: BaseException | None) -> None:
        """How a boot of so many ranks has ended; None is well."""
        if error is None:
            self._failed[size].clear()
        elif isinstance(error, RanksSkipped):
            self._skipped[size] = str(error)
        elif isinstance(error, RanksFailed):
            self._failed[size].append(str(error))
