"""Waiting for a quiet machine, and the processes and devices that keep it busy."""

import time
from collections.abc import Callable

from ..core.units import printable
from .blocks.conditions import MOST_OTHERS_BUSY
from .devices import cpu
from .devices.base import Device, SiblingDevice
from .sizing.peers import UNKNOWN, Peers, host_number

# Management libraries average over a second at most. After so long, the work of this process is no longer in it.
FORGOTTEN_S = 1.2
# Seconds between two looks, and between two messages to the user.
PAUSE_S, REMARK_EVERY_S = 2.0, 30.0


def busy_at(device: Device) -> str:
    """Return the sentence on who keeps a device busy; empty if nobody does.

    On a CPU the cores are watched for a second.
    """
    if device.facts().type == "cpu":
        return cpu.neighbours_now()
    share = device.counters().others_busy or 0.0
    if share <= MOST_OTHERS_BUSY:
        return ""
    return f"other processes keep {printable(device.name)} busy for {share:.0%} of the time"


def wait_until_quiet(look: Callable[[], str], patience_s: float, say: Callable[[str], None]) -> str:
    """Wait until nobody else works. Return who still does if that takes too long; else empty.

    Args:
        look: returns a text on who keeps the machine busy; empty if nobody does.
        patience_s: the most seconds to wait.
        say: called with a message at the first look, and then every half minute.
    """
    until_s, silent_until_s = time.monotonic() + patience_s, time.monotonic()
    while busy := look():
        now_s = time.monotonic()
        if now_s >= until_s:
            return busy
        if now_s >= silent_until_s:
            silent_until_s = now_s + REMARK_EVERY_S
            say(f"waiting for a quiet machine, for at most {until_s - now_s:.0f} s: {busy}")
        time.sleep(min(PAUSE_S, until_s - now_s))
    return ""


def siblings_of(device: Device) -> tuple[str, ...]:
    """Return the names of all visible devices like this one, its own among them.

    Empty for a kind of which there is only one.
    """
    return device.siblings() if isinstance(device, SiblingDevice) else ()


def busy_text(device: Device) -> str:
    """Return a text on which sibling devices are at work.

    Empty if none is, or if that is unknown. If some are, it looks once more after a pause.
    """
    if not isinstance(device, SiblingDevice) or not _busy(device):
        return ""
    # The first look may have seen work of this process itself.
    time.sleep(FORGOTTEN_S)
    shares = _busy(device)
    return ", ".join(f"{name} was {share * 100:.0f} % busy" for name, share in shares.items())


def _busy(device: SiblingDevice) -> dict[str, float]:
    """Return the share of time that each busy sibling works, by its name."""
    return {
        name: share for name, share in device.busy_siblings().items() if share > MOST_OTHERS_BUSY
    }


class CoreWatch:
    """A watch of the processors, from its making until `disturbance` is called.

    With `on_processors` false, another device is measured, and busy processors do not matter. Every rank must make a
    watch and call `disturbance`, since the ranks exchange numbers there.
    """

    def __init__(self, peers: Peers, *, on_processors: bool) -> None:
        """Begin to watch the cores, if the ranks (`peers`, with this one) measure on processors."""
        self._peers = peers
        self._on_processors = on_processors
        self._watch = cpu.Neighbours()
        self._began_s, self._own_s = time.perf_counter(), time.process_time()

    def disturbance(self) -> str:
        """Return why busy processors make the times useless; empty if they do not.

        It is the same on every rank.
        """
        worked_s, lasted_s = time.process_time() - self._own_s, time.perf_counter() - self._began_s
        own_cores = worked_s / max(lasted_s, 1e-9)
        cores_taken = self._watch.cores_taken() if self._on_processors else None
        if self._peers.size == 1:
            return cpu.too_busy(cores_taken)
        rows = self._peers.gather(
            (UNKNOWN if cores_taken is None else cores_taken, own_cores, host_number(self._peers))
        )
        return cpu.too_busy(
            most_cores_taken([(taken, worked, host) for taken, worked, host in rows])
        )


def most_cores_taken(rows: list[tuple[float, float, float]]) -> float | None:
    """Return the cores that processes other than the ranks kept busy, on the busiest host.

    A row of each rank holds the cores that all other processes kept busy (negative is unknown), the cores that the rank
    itself kept busy, and the number of its host. None if all hosts are unknown.
    """
    # To one rank the other ranks of its host are other processes, so their cores are subtracted.
    outside_cores = [
        cores_taken
        - sum(
            other_cores
            for other_rank, (_, other_cores, other_host) in enumerate(rows)
            if other_rank != rank and other_host == host
        )
        for rank, (cores_taken, _, host) in enumerate(rows)
        if cores_taken >= 0
    ]
    return max(0.0, *outside_cores) if outside_cores else None
