"""Problems for the forward pass in Gluon, and what it makes of them on a pretended multiprocessor."""

import random
from dataclasses import dataclass

import torch

from roofline_kernels.attention import launches
from roofline_kernels.attention.configurations import GLUON, chosen
from roofline_kernels.attention.flash import LN2
from roofline_kernels.attention.masking import causal_shift

from .attention_cases import Case, lay_out, problem
from .hopper.running import run_kernel

CHOICES = {
    "head_dim": tuple(GLUON),
    "layout": ("BHSD", "BSHD"),
    "dtype": ("bfloat16", "float16"),
    "causal": (None, "top-left", "bottom-right"),
    "heads": ((1, 1), (2, 2), (2, 1), (4, 2)),
    "scale": (None, 0.3, -0.2, 0.0),
    "batch": (1, 2),
}
LONGEST = 520
# Whole tiles, one row beside them, and what lies between.
EDGES = (1, 63, 64, 65, 127, 128, 129, 256, 384)
MOST_PROGRAMS = 6


@dataclass(frozen=True, slots=True)
class Run:
    """A problem, and how it is run: by so many programs, in the order of events that a seed stands for."""

    case: Case
    programs: int
    seed: int


def runs(count: int, seed: int) -> list[Run]:
    """So many runs, the same for the same seed."""
    generator = random.Random(seed)

    def length() -> int:
        return generator.choice((*EDGES, generator.randint(1, LONGEST)))

    drawn_runs = []
    for number in range(count):
        queries = length()
        keys = generator.choice((queries, length()))
        choices = {name: generator.choice(values) for name, values in CHOICES.items()}
        case = Case(lengths=(queries, keys), lse="returned", **choices)
        drawn_runs.append(Run(case, generator.randint(1, MOST_PROGRAMS), number))
    return drawn_runs


def launch_of(case: Case, out: torch.Tensor, lse: torch.Tensor):
    """The launch that a Hopper GPU would get of a case."""
    tensors = problem(case)
    q, k, v = (_in_layout(tensor, case.layout) for tensor in (tensors.q, tensors.k, tensors.v))
    causal = case.causal is not None
    shift = causal_shift(*case.lengths, causal, case.causal)
    attention = launches.Problem("sm_90", shift, causal, case.factor)
    with chosen(forward=GLUON[case.head_dim]):
        return launches.forward(attention, q, k, v, out, lse)


def results(run: Run) -> dict[str, torch.Tensor]:
    """Output [B, H, S, D] and natural log-sum-exp [B, H, S]; NaN where nothing was written.

    Raises:
        Fault: the kernel does what hardware does not forgive.
    """
    queries = problem(run.case).q
    out = _in_layout(torch.full_like(queries, torch.nan), run.case.layout)
    lse = torch.full(queries.shape[:3], torch.nan)
    launch = launch_of(run.case, out, lse)
    run_kernel(launch.kernel, run.programs, launch.arguments, seed=run.seed)
    return {"output": out, "lse": torch.where(lse == torch.inf, -torch.inf, lse * LN2)}


def _in_layout(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """[B, H, S, D] that lies in memory as the layout says."""
    laid = lay_out(tensor, layout).detach()
    return laid.transpose(1, 2) if layout == "BSHD" else laid
