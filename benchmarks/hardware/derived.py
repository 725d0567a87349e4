"""What follows from facts of several commands: runs beside each other, ours beside others'. Nothing is kept on disk."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from .facts import Fact, Facts

# Our kernels by their names in the suite, as facts call them; torch's flash, and how back ends of PyTorch begin.
OURS, FLASH, PYTORCH = {"triton": "ours", "gluon": "ours in Gluon"}, "sdpa_flash", "sdpa_"


def derived(facts: Facts) -> list[Fact]:
    """All of it."""
    return [
        *_selftests(facts),
        *_apart(facts),
        *_sound(facts),
        *_attention(facts),
        *_transformer(facts),
    ]


def _values(facts: Facts, stage: str, pattern: str) -> list[dict[str, Any]]:
    return [one.values for one in facts.find(stage, pattern) if one.values]


def _selftests(facts: Facts) -> Iterator[Fact]:
    """Both self tests: what fails in either, and how far their calibrations are apart."""
    both = [one for one in _values(facts, "trust", "selftest ?") if "properties" in one]
    if not both:
        return
    failing = sorted(
        {name for one in both for name, outcome in one["properties"].items() if outcome == "FAILS"}
    )
    yield Fact(
        "trust", "selftests", {"failing": len(failing), "names": failing, "times": len(both)}
    )
    hz = [one["calibration"].get("spin_hz") for one in both]
    if len(hz) > 1 and all(hz):
        yield Fact("trust", "calibrations", {"spin_apart": max(hz) / min(hz) - 1})


def _apart(facts: Facts) -> Iterator[Fact]:
    """Every test of the runs that were made three times: how far apart, and whether timed in one way."""
    for which in ("memcpy", "stream"):
        tests = defaultdict(list)
        for one in _values(facts, "copies", f"{which} [0-9]: *"):
            tests[one["label"]].append(one)
        several = {
            label: found for label, found in tests.items() if len(found) > 1 and not _unsound(found)
        }
        if not several:
            continue
        apart = {
            label: _spread(one["median_s"] for one in found) for label, found in several.items()
        }
        worst = max(apart, key=lambda label: apart[label])
        modes = [
            label for label, found in several.items() if len({one["mode"] for one in found}) > 1
        ]
        yield Fact("copies", f"A/A of {which}", {
            "apart": apart[worst], "worst": worst, "tests": len(several), "flipped": len(modes), "modes": modes,
        })  # fmt: skip


def _spread(seconds: Iterator[float]) -> float:
    known = list(seconds)
    return max(known) / min(known) - 1


def _unsound(found: list[dict[str, Any]]) -> bool:
    return any(one["invalid"] for one in found)


def _sound(facts: Facts) -> Iterator[Fact]:
    """Of the measurements of each stage: how many are INVALID, resident in a cache, or were refused a graph."""
    for stage in ("copies", "gemm", "attention", "model"):
        own = [one for one in _values(facts, stage, "*: *") if "median_s" in one]
        if own:
            invalid = [f"{one['label']}: {one['invalid']}" for one in own if one["invalid"]]
            counted = {
                label: sum(label in one["labels"] for one in own)
                for label in ("cache_resident", "graph_refused")
            }
            yield Fact(
                stage,
                "soundness",
                {"measured": len(own), "invalid": len(invalid), "why": invalid} | counted,
            )


def _attention(facts: Facts) -> Iterator[Fact]:
    """Every problem that ours and another back end did: rates, ours of the best other, over torch's flash."""
    problems: dict[tuple[Any, ...], dict[str, float]] = defaultdict(dict)
    for one in _values(facts, "attention", "attention: *"):
        asked = one["parameters"]
        if one["flops_per_s"] and not one["invalid"]:
            key = asked["passes"], asked["head_dim"], asked["causal"], asked["sequence"]
            problems[key][asked["name"]] = one["flops_per_s"]
    for (passes, head_dim, causal, sequence), rates in problems.items():
        peers = [rate for name, rate in rates.items() if name.startswith(PYTORCH)]
        for name, called in OURS.items():
            if name not in rates:
                continue
            values: dict[str, Any] = {"flops_per_s": rates[name]}
            values |= {"of_best": rates[name] / max(peers)} if peers else {}
            values |= {"over_flash": rates[name] / rates[FLASH]} if FLASH in rates else {}
            full = problems.get((passes, head_dim, False, sequence), {}).get(name)
            values |= {"less_than_full": 1 - rates[name] / full} if causal and full else {}
            mask = "causal" if causal else "full"
            yield Fact("attention", f"{called} {passes} d{head_dim} {mask} s{sequence}", values)


def _transformer(facts: Facts) -> Iterator[Fact]:
    """A step compiled, and replayed from a graph, over the same step as it is."""
    steps: dict[tuple[Any, ...], dict[str, float]] = defaultdict(dict)
    for one in _values(facts, "model", "transformer: *"):
        asked = dict(one["parameters"])
        execution = asked.pop("execution", None)
        if execution and not one["invalid"]:
            steps[tuple(sorted(asked.items()))][execution] = one["median_s"]
    for asked, seconds in steps.items():
        for execution in ("compile", "cuda_graph"):
            if "eager" in seconds and execution in seconds:
                name = "-".join(str(value) for _, value in asked)
                yield Fact(
                    "model",
                    f"{execution} over eager: {name}",
                    {"share": seconds[execution] / seconds["eager"]},
                )
