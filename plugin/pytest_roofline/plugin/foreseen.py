"""How long a run will take, for its header: as long as each test took here the last time, or what is known of it."""

from collections.abc import Iterable
from typing import Any

from ..baselines.comparators import BaselineComparator
from .holding import call_key, setup_key
from .planned import Planned
from .session import RooflineSession

# In pytest's cache: seconds of each test beside its budget, by the device that was measured.
TOOK = "roofline/took"
# Where nothing is known: making and checking buffers, warm-up. Measured on a CPU sweep; an estimate for a person.
BESIDE_S = 1.5
# A further process starts, imports torch and collects: four took 13.6 s and one 3.8 s, on two cores.
PROCESS_S = 3.0


def seconds_each(session: RooflineSession, tests: Iterable[Planned]) -> dict[str, float]:
    """About how long each of these tests will take in one process, by its name."""
    took = _known(session).get(_here(session), {})
    seconds = {}
    for plan in tests:
        beside_s = took.get(plan.item.nodeid, BESIDE_S if plan.marks.setup is None else plan.marks.setup)
        seconds[plan.item.nodeid] = max(0.0, _budget_s(session, plan) + beside_s)
    return seconds


def seconds_of_all(session: RooflineSession, alone_s: float) -> float:
    """About how long tests will take that take so long in one process, in as many as record them."""
    comparator = session.under_test.comparator
    records = isinstance(comparator, BaselineComparator) and not comparator.entries.paths
    further = session.options.recording - 1 if records else 0
    return alone_s + further * (alone_s + PROCESS_S)


def remember(session: RooflineSession) -> None:
    """Keep how long the tests of this run took, for the headers of later ones; not of those that did not end well."""
    cache, beside = _cache(session), {}
    for test_id, plan in session.planned.items():
        call = plan.item.stash.get(call_key, None)
        if call is not None and call.excinfo is None:
            took_s = plan.item.stash.get(setup_key, 0.0) + call.duration
            beside[test_id] = round(took_s - _budget_s(session, plan), 3)
    if cache is not None and beside and session.round is None:
        known = _known(session)
        known[_here(session)] = known.get(_here(session), {}) | beside
        cache.set(TOOK, known)


def _budget_s(session: RooflineSession, plan: Planned) -> float:
    return plan.marks.budget or session.options.budget_s


def _here(session: RooflineSession) -> str:
    """The device, and the cores beside it, which make and check what it computes."""
    environment = session.under_test.environment
    return f"{environment.device.product}, {environment.host.cpu_model}, {environment.host.usable_cores} cores"


def _known(session: RooflineSession) -> dict[str, dict[str, float]]:
    """What earlier runs remember; a cache that something else wrote holds nothing."""
    cache = _cache(session)
    found = cache.get(TOOK, {}) if cache is not None else {}
    if not isinstance(found, dict):
        return {}
    known = {}
    for name, tests in found.items():
        if isinstance(tests, dict):
            known[name] = {one: value for one, value in tests.items() if isinstance(value, int | float)}
    return known


def _cache(session: RooflineSession) -> Any:
    """pytest's cache; None where it is switched off."""
    return getattr(session.config, "cache", None)
