"""Which configuration is the best, of one problem and of all that share one. Pure functions of what was tried."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from statistics import median

from roofline_kernels.attention.configurations import Configuration, Pass
from tuning.log import Step, Tried
from tuning.problems import Problem

# A shipped configuration may be so much slower than the best before that is said aloud: a share of time.
NEAR = 0.05


@dataclass(frozen=True, slots=True)
class Choice:
    """The shipped configuration beside the best of one problem; seconds are None where it has no sound time."""

    problem: Problem
    shipped: Configuration
    shipped_s: float | None
    best: Configuration | None
    best_s: float | None

    @property
    def distance(self) -> float | None:
        """How much more the best does in the same time than the shipped one does: 0.024 is +2.4 %."""
        return (
            None
            if self.shipped_s is None or self.best_s is None
            else self.shipped_s / self.best_s - 1
        )

    @property
    def far(self) -> bool:
        """Whether the shipped one is not within `NEAR` of the best, or has no time beside one that has."""
        return self.best is not None and (self.distance is None or self.distance > NEAR)


def times(tried: Iterable[Tried], problem: Problem, step: Step) -> dict[Configuration, float]:
    """Median seconds of every candidate of a step, without those that ever failed, in whichever step."""
    seconds: dict[Configuration, list[float]] = {}
    failed = set()
    for one in tried:
        if one.problem != problem or one.step == "compile":
            continue
        if one.trouble or one.seconds is None:
            failed.add(one.configuration)
        elif one.step == step:
            seconds.setdefault(one.configuration, []).append(one.seconds)
    return {
        configuration: median(all_)
        for configuration, all_ in seconds.items()
        if configuration not in failed
    }


def finalists(
    swept: dict[Configuration, float], shipped: Configuration, count: int
) -> list[Configuration]:
    """The fastest `count` of a sweep and the shipped one.

    Whatever is fastest of a hundred was lucky too. So the best are timed again, in turn with the shipped one.
    """
    fastest = sorted(swept, key=lambda configuration: swept[configuration])[:count]
    return list(dict.fromkeys([*fastest, *([shipped] if shipped in swept else [])]))


def choose(tried: Sequence[Tried], problem: Problem, shipped: Configuration) -> Choice:
    """The best of the finals; of the sweep where there were none."""
    known = times(tried, problem, "final") or times(tried, problem, "sweep")
    best = min(known, key=lambda configuration: known[configuration], default=None)
    return Choice(problem, shipped, known.get(shipped), best, None if best is None else known[best])


def compromise(tried: Sequence[Tried], problems: Sequence[Problem]) -> Configuration | None:
    """The one configuration for several problems: least geometric mean of its times over each problem's best.

    Only what has a sound time in all of them is a candidate; None where nothing has.
    """
    found = [
        times(tried, problem, "sweep") | times(tried, problem, "final") for problem in problems
    ]
    common = set.intersection(*map(set, found)) if found else set()
    bests = [min(known.values(), default=0.0) for known in found]

    def cost(configuration: Configuration) -> tuple[float, str]:
        ratios = [known[configuration] / best for known, best in zip(found, bests, strict=True)]
        return sum(map(math.log, ratios)), repr(configuration)

    return min(common, key=cost, default=None)


def groups(problems: Iterable[Problem]) -> dict[tuple[Pass, int], list[Problem]]:
    """Problems by what has one configuration in the table: kernel and head dimension."""
    found: dict[tuple[Pass, int], list[Problem]] = {}
    for problem in problems:
        found.setdefault((problem.kernel, problem.setting.head_dim), []).append(problem)
    return found


def as_json(architecture: str, best: dict[tuple[Pass, int], Configuration]) -> str:
    """The form of configurations.json, one configuration a line, so that lines can be taken over."""
    kernels: dict[str, list[str]] = {}
    for (kernel, head_dim), configuration in sorted(best.items(), key=lambda item: item[0][1]):
        kernels.setdefault(kernel, []).append(
            f'        "{head_dim}": {json.dumps(_entry(configuration))}'
        )
    blocks = [
        f'    "{kernel}": {{\n      "16-bit": {{\n' + ",\n".join(lines) + "\n      }\n    }"
        for kernel, lines in kernels.items()
    ]
    return f'{{\n  "{architecture}": {{\n' + ",\n".join(blocks) + "\n  }\n}\n"


def _entry(configuration: Configuration) -> dict[str, object]:
    """What of a configuration is not the default."""
    values = {field.name: getattr(configuration, field.name) for field in fields(configuration)}
    defaults = {field.name: field.default for field in fields(configuration)}
    return {name: value for name, value in values.items() if value != defaults[name]}
