"""The statistics to the last digit: numbers over a grid of inputs, stored, so that no change of them goes unseen.

    GOLDEN_RENEW=1 python -m pytest tests/stats/test_figures.py

writes `figures.json` anew; its diff says what changed.
"""

import itertools
import json
import math
import random
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from pytest_roofline.core.verdicts import Group, finite_or_infinite
from pytest_roofline.stats import analyses, shared, spread, stats
from pytest_roofline.stats.analyses import Analyses
from pytest_roofline.stats.spread import priors
from pytest_roofline.stats.stats import difference

from ..golden.stored import renewing

PATH = Path(__file__).with_name("figures.json")
# Sessions of a side: (processes, device, day). Sessions of one hour, of one process, of several devices.
REFERENCES = {
    "one sitting": [(5, "a", 1), (5, "a", 1), (5, "a", 1)],
    "three days": [(5, "a", 1), (5, "a", 2), (5, "a", 3)],
    "single processes": [(1, "a", day) for day in range(1, 7)],
    "unlike sizes": [(2, "a", 1), (7, "a", 2), (1, "a", 4), (3, "a", 5)],
    "three devices": [(3, "b", 1), (4, "b", 2), (3, "c", 3), (2, "d", 4)],
    "one process": [(1, "a", 1)],
}


def sides(name, count, scatter):
    """New processes and a reference, whose sessions and processes lie apart by chance with a seed."""
    chance = random.Random(f"{name} {count} {scatter}")
    groups = [
        Group(
            tuple(1e-3 * math.exp(day_shift + chance.gauss(0, scatter)) for _ in range(size)),
            device,
            f"2026-01-{day:02}T12:00:00Z",
        )
        for size, device, day in REFERENCES[name]
        for day_shift in [chance.gauss(0, 2 * scatter)]
    ]
    new = tuple(1.04e-3 * math.exp(chance.gauss(0, 3 * scatter)) for _ in range(count))
    return [Group(new, "a", "2026-02-01T12:00:00Z")], groups


def differences():
    for name, count, scatter in itertools.product(REFERENCES, (1, 3, 12), (0.002, 0.03)):
        new, reference = sides(name, count, scatter)
        for kind in ("device", "host"):
            found = difference(new, reference, priors()[kind])
            yield (
                f"{name}, {count}, {scatter}, {kind}",
                asdict(found)
                | {
                    "parts": [(part, finite_or_infinite(known)) for part, known in found.parts],
                    "p": stats.p_slower_than(found, 0.01),
                },
            )


def spreads():
    for name, scatter in itertools.product(REFERENCES, (0.002, 0.03)):
        new, reference = sides(name, 4, scatter)
        prior = priors()["device"]
        yield (
            f"{name}, {scatter}",
            {
                "within": spread.within(reference),
                "between": spread.between_sessions(reference),
                "spreads": asdict(stats.spreads_of(new, reference, prior)),
            },
        )
    tests = [
        sides(name, 1, scatter)[1] for name in REFERENCES for scatter in (0.001, 0.003, 0.01, 0.02)
    ]
    yield "lent", asdict(spread.lend(priors()["device"], tests))


def plans():
    for most, slow_only, ended in itertools.product((1, 3, 8, 12), (False, True), (False, True)):
        plan = Analyses(most, slow_only, ended)
        for count in (1, 3, 5, 12):
            yield (
                f"{most} {slow_only} {ended}, {count}",
                [plan.due(count), *plan.levels(count), plan.red_analyses(3)],
            )
    for comparisons in (1, 3, 4, 20, 50):
        yield (
            f"adjusted of {comparisons}",
            analyses.adjusted_p([1e-5, 0.004, 0.03, 0.9], comparisons),
        )
        yield (
            f"at once of {comparisons}",
            [analyses.red_at_once(p, comparisons) for p in (1e-4, 0.0024, 0.0026, 0.05)],
        )


def followings():
    chance = random.Random(7)
    for tests, sessions in ((9, 3), (20, 5), (41, 8)):
        common = [chance.gauss(0, 0.05) for _ in range(sessions + 1)]
        logs = np.array([[one + chance.gauss(0, 0.004) for one in common] for _ in range(tests)])
        share, before, now = shared.shared_shift(logs[:, :-1], logs[:, -1])
        yield f"{tests} tests, {sessions} sessions", [share, *before[:3].ravel(), *now[:5]]
        yield f"others of {tests}", shared.leave_one_out(logs[:, 0]).tolist()[:9]


def rounded(value):
    if isinstance(value, dict):
        # A record says None of degrees of freedom that are infinite.
        known = {"freedom": math.inf} if value.get("freedom", 0) is None else {}
        return {name: rounded(each) for name, each in (value | known).items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    # As many digits as two processors agree on.
    return float(f"{value:.7g}") if isinstance(value, float) else value


@pytest.mark.parametrize(
    "kind", [differences, spreads, plans, followings], ids=lambda kind: kind.__name__
)
def test_every_number_is_as_stored(kind):
    now = json.loads(json.dumps(rounded(dict(kind()))))
    stored = json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {}
    if renewing():
        PATH.write_text(
            json.dumps(stored | {kind.__name__: now}, indent=0, sort_keys=True) + "\n",
            encoding="utf-8",
        )
        return
    assert {
        name: found
        for name, found in now.items()
        if not alike(found, stored[kind.__name__].get(name))
    } == {}
    assert now.keys() == stored[kind.__name__].keys()


def alike(found, expected):
    """Whether two values are the same, numbers but for what two processors make of their last digits."""
    if isinstance(found, dict) and isinstance(expected, dict):
        return found.keys() == expected.keys() and all(
            alike(found[name], expected[name]) for name in found
        )
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(map(alike, found, expected))
    if isinstance(found, float) and isinstance(expected, float):
        return math.isclose(found, expected, rel_tol=1e-5, abs_tol=1e-300) or found == expected
    return found == expected
