"""The direction of a figure: whether more of it is better.

A figure of a program is kept as seconds are, so that more is worse: one of which more is better is kept as its inverse.
"""

import re
from typing import Literal

from .keys import JOB_METRIC
from .work import rate_suffix

# The metric of a figure that is no time and no known rate; the key's name says which figure it is.
HIGHER, LOWER = "higher", "lower"
Direction = Literal["higher", "lower"]
# The tools whose output is read, as the option `--read` names them.
TOOLS = (
    *("nccl-tests", "nvbandwidth", "babelstream", "osu", "transferbench", "pytest-benchmark"),
    *("nvbench", "google-benchmark", "triton"),
)
# Their names begin the benchmarks of their figures: `nvbandwidth.device_local_copy`. AMD prints its own name.
_TOOL_PREFIXES = {*(name.replace("-", "_") for name in TOOLS), "rccl_tests"}
_UNIT = re.compile(r".*\((?P<unit>[^()]+)\)")


def is_own_figure(metric: str) -> bool:
    """Return True for a program's own figure, of no known unit."""
    return metric in (HIGHER, LOWER)


def is_of_tool(benchmark: str) -> bool:
    """Return True for a benchmark of a tool, which has parameters of its own."""
    tool, point, _ = benchmark.partition(".")
    return bool(point) and tool in _TOOL_PREFIXES


def is_of_program(benchmark: str, metric: str, name: str) -> bool:
    """Return True for a figure of a program.

    That is its own, that of a tool, or the time of the whole command.
    """
    is_time = metric == JOB_METRIC and not name
    return is_time or is_own_figure(metric) or is_of_tool(benchmark)


def unit_of(name: str) -> str:
    """Return the unit in the name of a figure.

    Of `tok/s[llama]` it is the name, of `p99 (ms)` the end. It is empty of a name that holds none.
    """
    title = name.partition("[")[0]
    match = _UNIT.fullmatch(title)
    return match["unit"] if match else title if "/" in title else ""


def more_is_better(metric: str) -> bool:
    """Return True where more of a metric is better.

    It is a rate, or a figure that says so.
    """
    return metric == HIGHER or rate_suffix(metric) is not None


def has_own_terms(metric: str) -> bool:
    """Return True for what is no time: a program's own figure, or a rate."""
    return is_own_figure(metric) or more_is_better(metric)


def inverse_if_higher(metric: str, value: float) -> float:
    """Return a figure as it is kept, or of what is kept the figure."""
    return 1 / value if metric == HIGHER else value
