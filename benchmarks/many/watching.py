"""Rules that watch nights for a step, and what each reports of a set of tests."""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec

import numpy as np

from pytest_roofline.core.errors import BadInput
from pytest_roofline.many.recent import recent_steps
from pytest_roofline.many.steps import SeriesChange, examine
from pytest_roofline.stats.spread import priors

from .nights import Drawn

LEAST = 0.02
NEW, BEFORE, BEYOND = 3, 14, 0.05
WHOLE, BOTH = "`roofline history`, whole series alone", "`roofline history`, both passes"
MEDIANS = "median of the last 3 v the 14 before > 5 %"
OTAVA = "Apache Otava"
RULES = (WHOLE, BOTH, MEDIANS, OTAVA)
INSTALL = "pip install --no-deps --target FOLDER apache-otava==0.8.0"


@dataclass(frozen=True, slots=True)
class Report:
    """A step of one test, and its first night."""

    test: int
    night: int
    slower: bool


def otava_version() -> str:
    """Return the version of Apache Otava.

    Raises:
        BadInput: it is not installed.
    """
    if find_spec("otava") is None:
        raise BadInput(
            f"Apache Otava is not installed; type {INSTALL}, then run this with PYTHONPATH=FOLDER"
        )
    return version("apache-otava")


def watch(drawn: Drawn, tests: Iterable[int]) -> dict[str, list[Report]]:
    """Return what each rule reports; Otava and the medians, which look at each test alone, of these tests only."""
    series = drawn.series()
    changes = examine(series, priors(), LEAST)
    steps = recent_steps(series, changes, LEAST)
    tests = list(tests)
    return {
        WHOLE: _reports(changes),
        BOTH: _reports([*changes, *steps]),
        MEDIANS: medians(drawn, tests),
        OTAVA: otava(drawn, tests),
    }


def _reports(changes: Iterable[SeriesChange]) -> list[Report]:
    return [
        Report(change.series.test, change.after if change.kind == "step" else 0, change.size > 0)
        for change in changes
    ]


def medians(drawn: Drawn, tests: Iterable[int]) -> list[Report]:
    """Compare the median of the last nights with that of those before, as one does by hand."""
    seconds = np.exp(drawn.logs)
    new, before = seconds[:, -NEW:], seconds[:, -NEW - BEFORE : -NEW]
    change = np.median(new, axis=1) / np.median(before, axis=1) - 1
    night = seconds.shape[1] - NEW
    return [
        Report(test, night, bool(change[test] > 0)) for test in tests if abs(change[test]) > BEYOND
    ]


def otava(drawn: Drawn, tests: Iterable[int]) -> list[Report]:
    """Run Apache Otava's own analysis with the defaults of its command."""
    from otava.analysis import compute_change_points
    from otava.series import AnalysisOptions

    options = AnalysisOptions()
    reports = []
    for test in tests:
        points, _ = compute_change_points(
            np.exp(drawn.logs[test]).tolist(),
            window_len=options.window_len,
            max_pvalue=options.max_pvalue,
            min_magnitude=options.min_magnitude,
        )
        reports += [
            Report(test, int(point.index), bool(point.stats.mean_2 > point.stats.mean_1))
            for point in points
        ]
    return reports
