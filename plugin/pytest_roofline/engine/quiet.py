"""Waiting until nobody else works on what is to be measured. Also who does."""

import time
from collections.abc import Callable

from ..core.units import printable
from .blocks.conditions import MOST_OTHERS_BUSY
from .devices import cpu
from .devices.base import Device, SiblingDevice
from .sizing.peers import UNKNOWN, Peers, host_number

# Management libraries average over a second at most: what this process did before is forgotten by then.
FORGOTTEN_S = 1.2
# Looks follow each other by so much, and a person hears so often who is still at work.
PAUSE_S, REMARK_EVERY_S = 2.0, 30.0


def busy_at(device: Device) -> str:
    """Return who keeps a device busy; empty if nobody does. Others use cores, or work on a GPU.

    A second is spent on watching the cores of a CPU.
    """
    if device.facts().type == "cpu":
        return cpu.neighbours_now()
    share = device.counters().others_busy or 0.0
    if share <= MOST_OTHERS_BUSY:
        return ""
    return f"other processes keep {printable(device.name)} busy for {share:.0%} of the time"


class Clock:
    """The time that passes while somebody waits; tests script it."""

    def now_s(self) -> float:
        """Return seconds since any one moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(seconds)


def wait_until_quiet(
    look: Callable[[], str], patience_s: float, say: Callable[[str], None], clock: Clock
) -> str:
    """Wait until nobody is at work any more. Return who still is if that takes too long.

    Args:
        look: returns who keeps the machine busy, in words; empty where nobody does.
        patience_s: after so many seconds nobody waits any longer.
        say: takes who is at work, at the first look and every half minute.
        clock: by which is waited.
    """
    until_s, silent_until_s = clock.now_s() + patience_s, clock.now_s()
    while busy := look():
        now_s = clock.now_s()
        if now_s >= until_s:
            return busy
        if now_s >= silent_until_s:
            silent_until_s = now_s + REMARK_EVERY_S
            say(f"waits for a quiet machine, {until_s - now_s:.0f} s at most: {busy}")
        clock.sleep(min(PAUSE_S, until_s - now_s))
    return ""


def siblings_of(device: Device) -> tuple[str, ...]:
    """Return the names of all visible devices like this one. A kind without siblings has none."""
    return device.siblings() if isinstance(device, SiblingDevice) else ()


def busy_text(device: Device, pause: Callable[[float], object] = time.sleep) -> str:
    """Return which sibling devices are at work, in words. Empty if none is seen, or nobody tells."""
    if not isinstance(device, SiblingDevice) or not _busy(device):
        return ""
    # What is busy once may be what this process just did.
    pause(FORGOTTEN_S)
    shares = _busy(device)
    return ", ".join(f"{name} was {share * 100:.0f} % busy" for name, share in shares.items())


def _busy(device: SiblingDevice) -> dict[str, float]:
    return {
        name: share for name, share in device.busy_siblings().items() if share > MOST_OTHERS_BUSY
    }


class CoreWatch:
    """Watches the processors until `disturbance` is asked. Every rank of the world makes a watch,
    and asks it.

    Where something else is measured, what happens `on_processors` disturbs nobody.
    """

    def __init__(self, peers: Peers, *, on_processors: bool) -> None:
        self._peers = peers
        self._on_processors = on_processors
        self._watch = cpu.Neighbours()
        self._began_s, self._own_s = time.perf_counter(), time.process_time()

    def disturbance(self) -> str:
        """Return why the times tell nothing of the machine. It is the same on every rank; empty if
        they do.
        """
        own_cores = (time.process_time() - self._own_s) / max(
            time.perf_counter() - self._began_s, 1e-9
        )
        cores_taken = self._watch.cores_taken() if self._on_processors else None
        if self._peers.size == 1:
            return cpu.too_busy(cores_taken)
        rows = self._peers.gather(
            (UNKNOWN if cores_taken is None else cores_taken, own_cores, host_number(self._peers))
        )
        return cpu.too_busy(most_cores_taken([(row[0], row[1], row[2]) for row in rows]))


def most_cores_taken(rows: list[tuple[float, float, float]]) -> float | None:
    """Return the cores that processes outside of this world kept busy. It is the most of any host;
    None if no host tells.

    A row of each rank: cores that all others kept busy (negative is unknown), cores that it kept busy, and its host.
    """
    beside = [
        cores_taken
        - sum(
            other_cores
            for other_rank, (_, other_cores, other_host) in enumerate(rows)
            if other_rank != rank and other_host == host
        )
        for rank, (cores_taken, _, host) in enumerate(rows)
        if cores_taken >= 0
    ]
    return max(0.0, *beside) if beside else None
