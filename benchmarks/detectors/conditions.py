"""Suites whose two sides are apart by more than their processes: other devices, other sessions."""

import datetime
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pytest_roofline.judging.spread import Group, priors

from .drawing import Plan, gather, generator, judged
from .suites import Case, Floats, Suite, exchangeable
from .tally import Tallies, merge

BASELINE = 15
OTHER_DEVICES = 20
# Nothing here is ever PASSED early, so that a test costs all its looks; half a suite keeps that payable.
DEVICE_TESTS = 100
SESSION_TESTS = 100
SPREAD = 0.01
PAIRED_SLOWDOWN, PAIRED_TOLERANCE = 0.04, 0.03
NOTHING: Floats = np.empty(0)
FIRST_DAY = datetime.date(2026, 1, 5)


class Condition(Protocol):
    """A way for the two sides to be apart."""

    @property
    def name(self) -> str:
        """In a table."""

    @property
    def tolerances(self) -> tuple[float, ...]:
        """Those that it is judged at whatever else is asked for; empty is as asked."""

    @property
    def slowdowns(self) -> tuple[float, ...]:
        """Beside unchanged code."""

    @property
    def suites_a_draw(self) -> int:
        """That share a baseline."""

    def suites(self, rng: np.random.Generator, looks: int) -> Iterator[Suite]:
        """The suites of one draw."""


@dataclass(frozen=True, slots=True)
class OtherDevices:
    """The baseline is of one device, the run of another; twenty others meet the same baseline.

    Args:
        spread: σ_g, between devices.
        shared: whether a device is faster or slower by the same factor in every test; else in each by another.
    """

    spread: float
    shared: bool
    tolerances: tuple[float, ...] = ()
    slowdowns: tuple[float, ...] = ()
    suites_a_draw: int = OTHER_DEVICES

    @property
    def name(self) -> str:
        """`another device, σ_g 4 %, one factor for all tests`."""
        how = "one factor for all tests" if self.shared else "a factor for each test"
        return f"another device, σ_g {100 * self.spread:g} %, {how}"

    def suites(self, rng: np.random.Generator, looks: int) -> Iterator[Suite]:
        """The same baseline against each of the others."""
        held = self._device(rng) + SPREAD * rng.standard_normal((DEVICE_TESTS, BASELINE))
        baselines = [(group_of(row, "GPU-0"),) for row in held]
        for number in range(1, OTHER_DEVICES + 1):
            new = self._device(rng) + SPREAD * rng.standard_normal((DEVICE_TESTS, looks))
            cases = [case_of(base, row, f"GPU-{number}") for base, row in zip(baselines, new, strict=True)]
            yield Suite.of(cases, exchangeable(priors()["device"]))

    def _device(self, rng: np.random.Generator) -> Floats:
        """[tests, 1]: by how much one device is off, in log seconds."""
        size = (1, 1) if self.shared else (DEVICE_TESTS, 1)
        return np.broadcast_to(self.spread * rng.standard_normal(size), (DEVICE_TESTS, 1))


@dataclass(frozen=True, slots=True)
class SameDevice:
    """The baseline holds this device and another one, which lies σ_g away and must not matter."""

    process: float
    tolerances: tuple[float, ...] = (PAIRED_TOLERANCE,)
    slowdowns: tuple[float, ...] = (PAIRED_SLOWDOWN,)
    suites_a_draw: int = 1

    @property
    def name(self) -> str:
        """`same device, σ_p 1 %`."""
        return f"same device, σ_p {100 * self.process:g} %"

    def suites(self, rng: np.random.Generator, looks: int) -> Iterator[Suite]:
        """One."""
        size = (DEVICE_TESTS, 2 * BASELINE + looks)
        logs = self.process * rng.standard_normal(size)
        other = priors()["device"].device * rng.standard_normal((DEVICE_TESTS, 1))
        cases = [
            case_of(
                (group_of(row[:BASELINE], "GPU-0"), group_of(row[BASELINE : 2 * BASELINE] + off, "GPU-1")),
                row[2 * BASELINE :],
                "GPU-0",
            )
            for row, off in zip(logs, other, strict=True)
        ]
        yield Suite.of(cases, exchangeable(priors()["device"]))


@dataclass(frozen=True, slots=True)
class OtherSession:
    """Sessions differ, and the run is one that the baseline does not hold.

    Args:
        spread: σ_s, between sessions, in each test another offset.
        sessions: of the baseline, each on a day of its own.
        processes: of each of them.
    """

    spread: float
    sessions: int
    processes: int
    tolerances: tuple[float, ...] = ()
    slowdowns: tuple[float, ...] = (0.03, 0.05, 0.10)
    suites_a_draw: int = 1

    @property
    def name(self) -> str:
        """`baseline of 3 × 5, σ_s 1 %`."""
        return f"baseline of {self.sessions} × {self.processes}, σ_s {100 * self.spread:g} %"

    def suites(self, rng: np.random.Generator, looks: int) -> Iterator[Suite]:
        """One, judged with the prior as it stands: its floor on σ_s included."""
        offsets = self.spread * rng.standard_normal((SESSION_TESTS, self.sessions + 1, 1))
        held = offsets[:, :-1] + SPREAD * rng.standard_normal((SESSION_TESTS, self.sessions, self.processes))
        new = offsets[:, -1] + SPREAD * rng.standard_normal((SESSION_TESTS, looks))
        cases = [case_of(self._baseline(rows), row, "") for rows, row in zip(held, new, strict=True)]
        yield Suite.of(cases, priors()["device"])

    def _baseline(self, rows: Floats) -> tuple[Group, ...]:
        days = [FIRST_DAY + datetime.timedelta(days=number) for number in range(self.sessions)]
        return tuple(group_of(row, "", f"{day}T03:00:00Z") for row, day in zip(rows, days, strict=True))


def group_of(logs: Floats, device: str, started: str = "") -> Group:
    """A session with these log-medians, around one second."""
    return Group(tuple(np.exp(logs).tolist()), device, started)


def case_of(baseline: tuple[Group, ...], new_logs: Floats, device: str) -> Case:
    """A test of which only medians are known."""
    return Case(baseline, tuple(np.exp(new_logs).tolist()), NOTHING, NOTHING, device)


DEVICES: tuple[Condition, ...] = (
    OtherDevices(0.0, shared=False),
    OtherDevices(0.02, shared=False),
    OtherDevices(0.02, shared=True),
    OtherDevices(0.04, shared=False),
    OtherDevices(0.04, shared=True),
)
PAIRED: tuple[Condition, ...] = tuple(SameDevice(spread) for spread in (0.003, 0.01, 0.02))
SESSIONS: tuple[Condition, ...] = tuple(
    OtherSession(spread, *shape) for spread in (0.005, 0.01, 0.02) for shape in ((3, 5), (14, 1))
)


def draw_condition(condition: Condition, plan: Plan) -> Tallies:
    """The counts of this plugin's rule."""
    suites = plan.draws // 2 if condition.slowdowns else plan.draws
    draws = max(1, suites // condition.suites_a_draw)
    return gather(functools.partial(_one_draw, condition, plan), range(draws), plan.jobs)


def _one_draw(condition: Condition, plan: Plan, number: int) -> Tallies:
    tallies: Tallies = {}
    for suite in condition.suites(generator(plan.seed, condition.name, number), plan.looks):
        for tolerance in condition.tolerances or plan.tolerances:
            slowdowns = condition.slowdowns if number < plan.slowed else ()
            merge(tallies, judged(suite, tolerance, plan.looks, slowdowns))
    return tallies
