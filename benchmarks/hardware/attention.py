"""Attention beside the back ends of PyTorch, in two minutes: right, and how fast. One fact a case, written at once.

The shape is 16,384 tokens of 8,192 in a row and 2,048 columns over all heads, in bfloat16. Times are those of stamps,
the median of 20, after 0.2 s of work.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import product
from statistics import median
from typing import Any

from . import faithful
from .facts import Fact, Facts
from .labs import FakeLab, Lacking, TorchLab

STAGE = "attention"
SEQUENCE, TOKENS, COLUMNS = 8192, 16384, 2048
WARM_S, TIMES = 0.2, 20
# Configurations of our forward kernel that are tried beside the shipped one: what they change in it.
VARIANTS: dict[str, dict[str, Any]] = {
    "triton_overlap": {"overlap": True, "block_n": 64, "num_stages": 2},
    "triton_persistent": {"persistent": True},
}
# Their backward pass is that of the shipped kernels.
FORWARD_ONLY = {"gluon", *VARIANTS}
# Nobody would choose these at this length.
ASIDE = ("sdpa_efficient", "sdpa_math", "eager", "compiled")


@dataclass(frozen=True, slots=True)
class Case:
    """One pass of one implementation, as the suite names it."""

    name: str
    passes: str
    head_dim: int
    causal: bool
    sequence: int = SEQUENCE

    @property
    def label(self) -> str:
        """The name of its fact."""
        mask = "causal" if self.causal else "full"
        return f"{STAGE}: {self.name}-{self.passes}-{mask}-s{self.sequence}-d{self.head_dim}"

    @property
    def flops(self) -> float:
        """As FlashAttention counts them: 4·B·S²·H·D forward, 2.5 times as many backward, half of it causal."""
        forward = 4 * TOKENS * self.sequence * COLUMNS
        return forward * (1.0 if self.passes == "forward" else 2.5) / (2 if self.causal else 1)


def names(fake: bool) -> list[str]:
    """Return the implementations to ask: those of the suite, with the variants of ours; or the fake's."""
    if fake:
        return list(faithful.FORWARD)
    from roofline_kernels.attention.implementations import IMPLEMENTATIONS

    return [*(name for name in IMPLEMENTATIONS if name not in ASIDE), *VARIANTS]


def cases(fake: bool) -> dict[str, Case]:
    """Return the cases by their labels, the ones that decide most first."""
    return {
        case.label: case
        for head_dim, causal, name, passes in product(
            (128, 64), (True, False), names(fake), ("forward", "backward")
        )
        if passes == "forward" or name not in FORWARD_ONLY
        for case in [Case(name, passes, head_dim, causal)]
    }


def ask(lab: FakeLab | TorchLab, facts: Facts, labels: list[str]) -> None:
    """Ask these cases, one after the other; each fact is written when it is known."""
    by_label = cases(isinstance(lab, FakeLab))
    for label in labels:
        facts.add(answer(by_label[label], lab))


def answer(case: Case, lab: FakeLab | TorchLab) -> Fact:
    """Return the rate of a case, and what is wrong with its results; an error costs no other case its answer."""
    try:
        made = _foreseen(lab, case) if isinstance(lab, FakeLab) else of_the_suite(lab, case)
        call, check = made
        call_s = _call_s(lab, call)
        values = {"parameters": asdict(case), "label": case.label, "mode": "events", "labels": []}
        rates = {"median_s": call_s, "flops_per_s": case.flops / call_s, "invalid": _wrong(check)}
        return Fact(STAGE, case.label, values | rates)
    except Lacking as lacking:
        return Fact(STAGE, case.label, lacking=f"needs {lacking}")
    except Exception as error:
        return Fact(STAGE, case.label, error=f"{type(error).__name__}: {error}"[:300])


def _foreseen(lab: FakeLab, case: Case) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return a call at the rate that is foreseen, and a check that finds nothing: nothing is computed."""
    rates = faithful.FORWARD if case.passes == "forward" else faithful.BACKWARD
    rate = (
        rates[case.name][case.head_dim]
        * 1e12
        * (faithful.CAUSAL[case.name] if case.causal else 1.0)
    )
    return lambda: lab.device.work(case.flops / rate), lambda: None


def of_the_suite(lab: TorchLab, case: Case) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return a call of one of the suite's implementations, in bfloat16, and a check of its last results.

    Raises:
        Lacking: this device has none.
    """
    import torch

    from roofline_kernels.attention.checking import right
    from roofline_kernels.attention.implementations import Unavailable, make_case, pass_of

    lab.only_gpus("attention kernels")
    shape = TOKENS // case.sequence, COLUMNS // case.head_dim, case.sequence, case.head_dim
    problem = make_case(*shape, torch.bfloat16, lab.where, causal=case.causal)
    try:
        call = pass_of(case.passes, _implementation(lab, case), problem)
    except Unavailable as error:
        raise Lacking(str(error).removeprefix("needs ")) from None
    return lambda: call(problem), lambda: right(problem, passes=case.passes)


def _implementation(lab: TorchLab, case: Case) -> Callable[..., Any]:
    """Return the suite's, or ours under a configuration of its own."""
    from roofline_kernels.attention.architectures import architecture_of
    from roofline_kernels.attention.configurations import chosen, configuration
    from roofline_kernels.attention.implementations import implementation

    if case.name not in VARIANTS:
        return implementation(case.name)
    ours = implementation("triton")
    shipped = configuration(architecture_of(lab.where), "forward", case.head_dim, 2)
    variant = replace(shipped, **VARIANTS[case.name])

    def run(*arguments: Any) -> Any:
        with chosen(forward=variant):
            return ours(*arguments)

    return run


def _call_s(lab: FakeLab | TorchLab, call: Callable[[], object]) -> float:
    """Return the median seconds of a call on a device at work."""
    device = lab.device
    began_s = device.host_s()
    while device.host_s() - began_s < WARM_S:
        call()
        device.synchronize()
    stamps = []
    for _ in range(TIMES):
        start = device.stamp()
        call()
        stamps.append((start, device.stamp()))
    return median(device.elapsed_s(start, end) for start, end in stamps)


def _wrong(check: Callable[[], object]) -> str:
    """Return what a check of the results says; empty where they are right."""
    try:
        check()
    except AssertionError as error:
        return str(error)
    return ""
