"""Waiting until nobody else works on what is to be measured. Also who does."""

import time
from collections.abc import Callable

from ..core.units import printable
from .blocks.conditions import MOST_OTHERS_BUSY
from .devices import cpu
from .devices.base import Device

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
