"""The golden cases: a file of tests, which device there is, and what a user types.

A step that is a dict says which device there is and how fast, as `Desk.script` takes it; a pair is a file that is
written, by name and text; a function prepares the desk; any other is a command.
`{against}` stands for five saved sessions of the same suite, `{reported}` for the options that write every file.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from ..plugin.conftest import NOISY, ONE, SUITE, Desk
from .suites import CARDS, KERNEL, NUMBERS, OUT_OF_MEMORY, PEAK, RANKS, SIBLINGS, UNEVEN

REPORTED = "--roofline-report=out --junitxml=junit.xml --roofline-save=run"
DAYS = "day1,day2,day3,day4,day5"
FILES = (
    "out/results.csv",
    "out/run.json",
    "out/summary.md",
    "junit.xml",
    ".roofline/runs/run.jsonl",
)


@dataclass(frozen=True)
class Case:
    """One story.

    Args:
        steps: commands, files, devices.
        suite: the file of tests.
        days: how long sessions of the suite took that were saved before, one a day; none by default.
        alone: whether pytest runs in a process of its own, for ranks are processes as well.
        keeps: patterns of the files that are stored beside what the commands print.
        features: those that the commands need, of what can be taken out.
    """

    steps: tuple[str | dict | tuple[str, str] | Callable[[Desk], None], ...]
    suite: str = ONE.format(marks="")
    days: tuple[float, ...] = ()
    keeps: tuple[str, ...] = FILES
    alone: bool = False
    features: tuple[str, ...] = ()


SOUND = {
    "index": 0, "power_limit_w": 700.0, "power_default_w": 700.0, "pcie_generation": 5, "pcie_generation_rated": 5,
    "pcie_width": 16, "pcie_width_rated": 16, "links": 18, "ecc": True, "ecc_errors": 0, "remap_pending": False,
    "remap_failed": False, "throttle_known": True, "active": [],
}  # fmt: skip

THRESHOLD = {
    "benchmark": "one", "kind": "threshold", "metric": "traffic_GBps", "value": 2500, "unit": "GB/s",
    "convention": "traffic, 1e9", "source": "the maker", "confidence": "high",
}  # fmt: skip
PUBLISHED = (
    "baselines/h100.json",
    json.dumps({"schema": 1, "family": "h100", "entries": [THRESHOLD]}),
)

# Beside a threshold that a result misses: what only stands there, what cannot be, and a floor that is met.
FLOOR = {
    "benchmark": "one", "kind": "floor", "metric": "traffic_GBps", "value": 0.55, "unit": "share",
    "source": "the buyer; the maker", "figures": 2,
}  # fmt: skip
REFERENCES = [
    THRESHOLD | {"value": 1500},
    FLOOR,
    THRESHOLD | {"kind": "reference", "source": "near"},
    THRESHOLD | {"kind": "reference", "source": "range", "value": [2600, 2700]},
    THRESHOLD
    | {"kind": "reference", "source": "odd", "value": 9e6, "implausible": "not synchronised"},
    THRESHOLD | {"kind": "reference", "source": "small", "value": "out of memory"},
    THRESHOLD | {"source": "other", "value": 3000, "confidence": "low", "note": "another engine"},
]

FIGURES = {
    "shared_bytes": 114688, "registers": 198, "stack_bytes": 0, "spill_stores": 0, "spill_loads": 0,
    "matrix_instructions": 24, "instructions": 900, "HGMMA": 24,
}  # fmt: skip

# What no run begins with, each answered with a sentence.
REFUSED = (
    *(
        f"tolerance={text}"
        for text in ("0", "-1", "nan", "inf", "5", "abc", "", "80%", "201%!", "!")
    ),
    *(
        "tier=bogus",
        "budget=0",
        "budget=-1",
        "budget=nan",
        "budget=soon",
        "device=bogus",
        "device=cuda:x",
        "device=",
    ),
    *("save=../x", "save=a/b", "save=/x", "save=.hidden", "save=", "save=a\nb"),
    *("against=", "against=nowhere/x.json", "dir=", "dir=C:\\runs"),
    *(f"rounds={text}" for text in ("0", "x", "1001", "-1", "1.5", "", "²")),
    *(f"time={text}" for text in ("0", "soon", "-5m", "nan", "inf", "")),
    *(
        f"fail-on={text}"
        for text in ("slow", "", ",", "invalid", "+invalid,degraded", "regressed,slow,fast")
    ),
    *(
        "expect=",
        "expect=nowhere.json",
        "expect=.",
        "drill=0",
        "drill=-10%",
        "drill=lots",
        "drill=10",
    ),
    *(f"min-percent={text}" for text in ("0", "-1", "102.1", "nan", "inf", "a lot", "", "0.8")),
)
SETTINGS = (
    "roofline_rounds = many", "roofline_time = soon", "roofline_fail_on = invalid", "roofline_expect = nowhere.json",
    "roofline_min_percent = 0.8", "roofline_ci = loud",
)  # fmt: skip
MARKERS = (
    "colour='blue'", "tolerence=0.1", "0.05", "tolerance=0", "tolerance=-0.1", "tolerance=float('nan')",
    "tolerance='5 of 100'", "tolerance=True", "budget=0", "cache='cold'", "cache=[]", "ranks=0", "ranks=1.5", "gate=1",
    "gate='yes'", "tier='huge'", "needs='gpu'", "tier=None", "gate=None",
)  # fmt: skip


def siblings(desk):
    """Five cards, the last of which is slow, in place of the desk's one device."""
    text = desk.conftest
    desk.pytester.makeconftest(text[: text.index("@pytest.hookimpl")] + CARDS)
    (desk.path / "cards.json").write_text("[[1.0], [1.002], [0.998], [1.001], [1.3]]")


RUNS = {
    "pass": Case(
        ("pytest -v {against} {reported}", "roofline explain run 1GiB"), SUITE, days=NOISY
    ),
    "regression": Case(
        (
            {"slow": {"test_copy[1GiB]": 1.3}},
            "pytest -v {against} {reported}",
            "roofline explain run 1GiB",
            "roofline explain run 1GiB --json",
            f"roofline compare {DAYS} run",
            f"roofline compare {DAYS} run --json",
        ),
        SUITE,
        days=NOISY,
    ),
    "improvement": Case(
        (
            {"slow": 0.8},
            "pytest {against} {reported} --roofline-rounds=1",
            f"roofline compare {DAYS} run",
        ),
        days=NOISY,
    ),
    "inconclusive": Case(
        ({"slow": 1.06}, "pytest {against} {reported} --roofline-rounds=1", "roofline explain run"),
        days=NOISY,
    ),
    "invalid": Case(
        (
            {"others_busy": 0.5},
            "pytest {against} {reported} --roofline-rounds=1",
            "roofline explain run",
        ),
        days=NOISY,
    ),
    "no_baseline": Case(("pytest {reported}", "roofline explain run")),
    "nothing_compared": Case(("pytest --roofline-ci",)),
    "record": Case(
        (
            "pytest --roofline-record --roofline-rounds=5 --roofline-save=first",
            "pytest --roofline-ci",
            {"slow": 1.3},
            "pytest --roofline-record --roofline-rounds=5 --roofline-save=slower",
        )
    ),
    "degraded": Case(
        (
            {"slow": 1.3, "gpu": SOUND | {"power_limit_w": 400.0}},
            "pytest {against} {reported} --roofline-rounds=1",
        ),
        days=NOISY,
    ),
    "uneven": Case(("pytest {reported}",), UNEVEN),
    "out_of_memory": Case(("pytest -v {reported}", "roofline explain run"), OUT_OF_MEMORY),
    "limit": Case((PUBLISHED, "pytest {reported}", "roofline explain run")),
    "floor": Case(
        ({"slow": 1.3}, "pytest {reported} --roofline-min-percent=55", "roofline explain run")
    ),
    "peak_memory": Case(
        (
            ("gib.txt", "1"),
            "pytest -q --roofline-save=before",
            ("gib.txt", "1.5"),
            "pytest {reported} --roofline-against=before --roofline-rounds=1",
            "roofline compare before run",
        ),
        PEAK,
    ),
    "drill": Case(("pytest --roofline-drill=30% --roofline-min-percent=55",), SUITE, keeps=()),
    "shadow": Case(
        (
            {"slow": 1.5},
            "pytest {reported} --roofline-ci=shadow --roofline-rounds=1 --roofline-min-percent=55",
        )
    ),
    "rounds_fail": Case(
        (
            {"slow": {"test_copy[64MiB]": [1.3, "crash"], "test_copy[1GiB]": [1.3, "fail"]}},
            "pytest {against} {reported}",
        ),
        SUITE,
        days=NOISY,
    ),
    "kernel": Case(
        (
            ("figures.json", json.dumps(FIGURES)),
            "pytest -q --roofline-save=before",
            "roofline baseline propose before -o proposal.json",
            "roofline baseline approve proposal.json",
            (
                "figures.json",
                json.dumps(FIGURES | {"registers": 255, "spill_stores": 12, "instructions": 960}),
            ),
            "pytest {reported}",
            "roofline explain run",
            "roofline compare before run",
            "roofline compare before run --json",
            ("figures.json", json.dumps(FIGURES | {"registers": 168})),
            "pytest -q",
        ),
        KERNEL,
        keeps=(*FILES, "baselines/*.json"),
        features=("kernel_gate",),
    ),
    "numbers": Case(("pytest {reported}",), NUMBERS, features=("observe",)),
    "siblings": Case(
        (siblings, "pytest {reported} --roofline-rounds=1", "roofline explain run"), SIBLINGS
    ),
    "ranks": Case(
        (
            ("conftest.py", ""),
            "pytest -v -p no:hypothesispytest --roofline-device=cpu --roofline-budget=0.5 --junitxml=junit.xml",
        ),
        RANKS,
        keeps=("junit.xml",),
        alone=True,
        features=("ranks",),
    ),
    "github": Case(
        (
            {"slow": 1.5},
            "GITHUB_ACTIONS=true GITHUB_STEP_SUMMARY=step.md pytest -q --roofline-rounds=1 --roofline-min-percent=55",
        ),
        keeps=("step.md",),
    ),
    "plain": Case(("pytest", "pytest --roofline-tolerance=x"), "def test_plain(): pass\n"),
    "published": Case(
        (
            (
                "baselines/h100.json",
                json.dumps({"schema": 1, "family": "h100", "entries": REFERENCES}),
            ),
            "pytest -q",
            "pytest -v --roofline-save=run",
            "roofline explain run",
            "roofline baseline show",
            "roofline baseline show one --json",
            "roofline baseline check",
            "roofline compare baselines/h100.json run",
            {"slow": 1.3},
            "pytest -q --roofline-save=slow",
            "roofline explain slow",
        ),
        keeps=(),
    ),
    "refused_options": Case(tuple(f"pytest '--roofline-{option}'" for option in REFUSED), keeps=()),
    "refused_settings": Case(
        tuple(
            step
            for line in SETTINGS
            for step in (("pytest.ini", f"[pytest]\n{line}\n"), "pytest -q # " + line)
        ),
        keeps=(),
    ),
    "refused_markers": Case(
        tuple(
            step
            for marks in MARKERS
            for step in (
                ("test_suite.py", ONE.format(marks=f"@pytest.mark.roofline({marks})")),
                "pytest -q # " + marks,
            )
        ),
        keeps=(),
    ),
}
