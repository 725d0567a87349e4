"""Simulated roll-outs whose truth is known, judged by `roofline rollout`'s functions and by three rules of others.

The draws become run files as they are once they were read, so `judge_rollout` and `silent_nodes` see what the command
hands them. A node has its own speed, which stays, and every run its noise.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from scipy import stats

from pytest_roofline.baselines.test_texts import RunFile, text_of_test
from pytest_roofline.core.facts import DeviceFacts, Environment, HardwareKey, HostFacts
from pytest_roofline.core.keys import Key
from pytest_roofline.core.statuses import Status
from pytest_roofline.core.verdicts import Kind
from pytest_roofline.core.work import Work
from pytest_roofline.many.nodes import silent_nodes
from pytest_roofline.many.rollout import judge_rollout

NODES, CHANGED, TESTS = 100, 50, 3
# Standard deviations of log seconds.
BETWEEN_NODES, BETWEEN_RUNS = 0.02, 0.01
NAMES = [f"gpu{number:03}" for number in range(NODES)]
HARDWARE = HardwareKey("h100-sxm5", "80gb", "none", 8, "nvlink")
TEXTS = [
    text_of_test(
        Key("nccl_tests.all_reduce", {"size_bytes": 2**size}, "busbw_GBps", HARDWARE, "warm", "pipelined"),
        Work(algbw_bytes=2**size, busbw_bytes=2**size),
        (),
        placed=False,
    )
    for size in (28, 30, 33)
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Draw:
    """Log seconds of every node and test, before and after the change. The first fifty nodes got it."""

    before: np.ndarray
    after: np.ndarray


def draw(seed: int, effect: float = 0.0, drift: float = 0.0, slow: Collection[int] = ()) -> Draw:
    """Return one roll-out.

    Args:
        effect: of the change, as a share of time; `drift` is that of all nodes, which the change did not cause.
        slow: the numbers of nodes that are 10 % slower after it.
    """
    random = np.random.default_rng([46, seed])
    own = random.normal(0, BETWEEN_NODES, (NODES, 1))
    before, after = (own + random.normal(0, BETWEEN_RUNS, (NODES, TESTS)) for _ in range(2))
    after += math.log1p(drift)
    after[:CHANGED] += math.log1p(effect)
    after[list(slow)] += math.log1p(0.1)
    return Draw(before, after)


def files_of(logs: np.ndarray, side: str, silent: Collection[int] = ()) -> list[RunFile]:
    """Return the run of each node; none of silent ones."""
    return [
        RunFile(
            f"{side}/{name}.log",
            run_id=f"{side}-{name}",
            environment=_environment(name),
            imported=True,
            rows=[
                (test, "", "", "", 1e-3 * math.exp(log))
                for test, log in zip(TEXTS, row, strict=True)
            ],
        )
        for number, (name, row) in enumerate(zip(NAMES, logs.tolist(), strict=True))
        if number not in silent
    ]


def _environment(node: str) -> str:
    """Return the environment of a node as JSON."""
    host = HostFacts(node, "unknown", 0, 0, 0, 0, "unknown")
    environment = Environment(DeviceFacts("accelerator", "NVIDIA H100 80GB HBM3"), host, {})
    return msgspec.json.encode(dataclasses.asdict(environment)).decode()


@dataclass(frozen=True, slots=True)
class Told:
    """What a rule says of a roll-out: whether the change is slower, and which nodes are."""

    slower: bool
    nodes: frozenset[int] = frozenset()


def by_rollout(one: Draw) -> Told:
    """Return the answer of `roofline rollout`, with its own tolerance."""
    changed = frozenset(NAMES[:CHANGED])
    rollout = judge_rollout(
        files_of(one.before, "before"),
        files_of(one.after, "after"),
        is_changed=changed.__contains__,
    )
    assert (rollout.kind is Kind.REGRESSED) == (rollout.status is Status.SLOWER)
    nodes = frozenset(NAMES.index(node.node) for node in rollout.slow_nodes)
    return Told(rollout.kind is Kind.REGRESSED, nodes)


def by_floor(one: Draw) -> Told:
    """Return the answer of fixed floors: a node fails below 0.9 of the rate that was typical before."""
    floor = np.median(one.before, axis=0) - math.log(0.9)
    nodes = frozenset(np.flatnonzero((one.after > floor).any(axis=1)).tolist())
    return Told(bool(nodes), nodes)


def by_deviation(one: Draw) -> Told:
    """Return the answer of "more than one standard deviation and 10 %": of each node against all."""
    middle, spread = one.after.mean(axis=0), one.after.std(axis=0)
    far = one.after - middle
    slow = ((far > spread) & (far > math.log(1.1))).any(axis=1)
    nodes = frozenset(np.flatnonzero(slow).tolist())
    return Told(bool(nodes), nodes)


def by_t_test(one: Draw) -> Told:
    """Return the answer of a plain t test at 5 %: the changed nodes after against before, test by test."""
    found = stats.ttest_ind(
        one.after[:CHANGED], one.before[:CHANGED], equal_var=False, alternative="greater"
    )
    return Told(bool((found.pvalue < 0.05).any()))


RULES: dict[str, Callable[[Draw], Told]] = {
    "`roofline rollout`": by_rollout,
    "floors × 0.9": by_floor,
    "more than 1 σ and 10 %": by_deviation,
    "plain t test": by_t_test,
}


@dataclass(frozen=True, slots=True)
class Rates:
    """How often a rule is right: counts, and of how many."""

    found: int
    red: int
    drifted: int
    named: int
    invented: int


def rates(rule: Callable[[Draw], Told], effects: int, unchanged: int, faulty: int) -> Rates:
    """Return how often a rule finds +5 %, calls unchanged fleets slower, and names nodes."""
    found = sum(rule(draw(seed, effect=0.05)).slower for seed in range(effects))
    red = sum(rule(draw(1_000 + seed)).slower for seed in range(unchanged))
    drifted = sum(rule(draw(1_000 + seed, drift=0.02)).slower for seed in range(unchanged))
    named = invented = 0
    for seed in range(faulty):
        slow = frozenset(np.random.default_rng(seed).choice(NODES, 5, replace=False).tolist())
        nodes = rule(draw(2_000 + seed, slow=slow)).nodes
        named += len(nodes & slow)
        invented += len(nodes - slow)
    return Rates(found, red, drifted, named, invented)


def silent_named(fleets: int) -> int:
    """Return in how many fleets exactly the five silent nodes are named."""
    right = 0
    for seed in range(fleets):
        one = draw(3_000 + seed)
        silent = frozenset(np.random.default_rng(seed).choice(NODES, 5, replace=False).tolist())
        sides = {
            "before": files_of(one.before, "before"),
            "after": files_of(one.after, "after", silent),
        }
        named = {node.node for node in silent_nodes(NAMES, sides)}
        right += named == {NAMES[number] for number in silent}
    return right


def compare_rules(effects: int, unchanged: int, faulty: int) -> dict[str, Rates]:
    """Return how often each rule is right, by its name."""
    return {name: rates(rule, effects, unchanged, faulty) for name, rule in RULES.items()}


def table(results: Mapping[str, Rates], effects: int, unchanged: int, faulty: int) -> Sequence[str]:
    """Return the lines of the table: a row a rule."""
    heads = (
        "rule",
        f"+5 % found, of {effects}",
        f"unchanged called slower, of {unchanged}",
        f"the same while all nodes become 2 % slower, of {unchanged}",
        f"each node that is 10 % slower named, of {5 * faulty}",
        f"healthy nodes named, of {(NODES - 5) * faulty}",
    )
    lines = [
        f"| {' | '.join(heads)} |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, result in results.items():
        nodes = ("–", "–") if RULES[name] is by_t_test else (result.named, result.invented)
        counts = (result.found, result.red, result.drifted, *nodes)
        lines.append(f"| {name} | {' | '.join(map(str, counts))} |")
    return lines
