"""The tables of the five documents that the project grew from, as references beside our own measurements.

Every table is listed, with how its figures are told apart from those of others, and where they went.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from figures import Told
from seed_lines import (
    Line,
    attention,
    first_step,
    job,
    kernel,
    leaderboard,
    memory_copy,
    peak_memory,
    peer_copy,
    profile,
    series,
    step,
    step_of_two_tables,
)

from pytest_roofline.core.errors import BadInput


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a document.

    Args:
        of: whether a figure of the document stands in it.
        lines: what it says in our terms; or, as text, where such a figure is checked instead.
    """

    document: str
    title: str
    of: Callable[[Told], bool]
    lines: Callable[[Told], list[Line] | str]


def _has(**wanted: Any) -> Callable[[Told], bool]:
    """Whether fields and parameters of a figure are these; a tuple means any of them."""

    def found(one: Told) -> bool:
        for name, value in wanted.items():
            mine = (
                getattr(one, name)
                if name in ("hardware", "benchmark", "metric")
                else one.parameters.get(name)
            )
            if mine not in (value if isinstance(value, tuple) else (value,)):
                return False
        return True

    return found


def _elsewhere(where: str) -> Callable[[Told], str]:
    return lambda _: where


_SPECS = "a datasheet's figure: the plugin's data of products has the peaks"
_MEMCPY, _PEER, _FIRST, _SECOND, _THIRD = (
    "mi300x-memcpy", "mi300x-memcpy-peer", "cs336-report-1", "cs336-report-2", "cs336-report-3",
)  # fmt: skip
_ACCUMULATION = "perf_tests/test_precision.py asserts the sums, exactly (test_accumulation)"
_AUTOCAST = "perf_tests/test_precision.py asserts the types under autocast (test_autocast)"
_KERNELS = _has(benchmark="kernel_table")

TABLES: tuple[Table, ...] = (
    Table(_MEMCPY, "the plotted curve, by the ranges of its text", _has(benchmark="memcpy_d2d"), memory_copy),
    Table(_MEMCPY, "specifications", _has(benchmark="datasheet"), _elsewhere(_SPECS)),
    Table(_PEER, "specifications", _has(benchmark="datasheet"), _elsewhere(_SPECS)),
    Table(_PEER, "the plotted curve of PyTorch", _has(benchmark="peer_copy_torch"), peer_copy),
    Table(_PEER, "the plotted curve of MPI", _has(benchmark="peer_copy_mpi"), peer_copy),
    *(
        Table(_FIRST, f"benchmarking_script, {steps} warm-up steps",
              _has(benchmark="transformer", metric="step_ms", warmup_steps=steps, compiled=None), step)
        for steps in (5, 0, 1)
    ),
    Table(_FIRST, "nsys_profile a, forward passes", _has(benchmark="transformer", timer="nsys"), step),
    Table(_FIRST, "nsys_profile c, kernels", _KERNELS, kernel),
    Table(_FIRST, "nsys_profile d and e, shares and times", _has(benchmark="profile"), profile),
    Table(_FIRST, "mixed_precision_accumulation", _has(benchmark="mixed_precision_accumulation"),
          _elsewhere(_ACCUMULATION)),
    Table(_FIRST, "benchmarking_mixed_precision a, types", _has(benchmark="autocast_dtypes"), _elsewhere(_AUTOCAST)),
    Table(_FIRST, "benchmarking_mixed_precision c, steps",
          _has(benchmark="transformer", metric="step_ms", warmup_steps=None, timer=None), step),
    Table(_FIRST, "memory_profiling b and c", _has(metric="peak_memory_GB"), peak_memory),
    Table(_FIRST, "pytorch_attention", _has(benchmark="attention", compiled=False), attention),
    Table(_FIRST, "torch_compile a, attention", _has(benchmark="attention", compiled=True), attention),
    Table(_FIRST, "torch_compile b, steps",
          _has(benchmark="transformer", warmup_steps=5, compiled=(False, True)), step_of_two_tables),
    Table(_FIRST, "leaderboard", _has(benchmark="flash_attention_leaderboard"), leaderboard),
    Table(_FIRST, "all_reduce, Gloo", _has(benchmark="all_reduce", hardware="CPU"), job),
    Table(_FIRST, "all_reduce, MI300X", _has(benchmark="all_reduce", hardware="MI300X"), job),
    Table(_FIRST, "all_reduce, V100", _has(benchmark="all_reduce", hardware="V100"), job),
    Table(_FIRST, "all_reduce, H100", _has(benchmark="all_reduce", hardware="H100-SXM5"), job),
    Table(_SECOND, "model specifications, parameters", _has(metric="parameters"),
          _elsewhere("tests of the transformer assert the number of parameters of each size")),
    Table(_SECOND, "model specifications, times",
          _has(benchmark="transformer", metric="step_ms", batch=None, timer=None), step),
    Table(_SECOND, "effect of warm-up, first steps", _has(benchmark="transformer_warmup_effect"), first_step),
    Table(_SECOND, "effect of warm-up, ten steps", _has(benchmark="transformer_series"), series),
    Table(_SECOND, "PyTorch profiler, forward", _has(benchmark="profiler_table", passes="forward"), kernel),
    Table(_SECOND, "PyTorch profiler, forward and backward",
          _has(benchmark="profiler_table", passes="forward_backward"), kernel),
    Table(_SECOND, "nsys_profile a", _has(timer="nsys"), step),
    Table(_SECOND, "nsys_profile b, kernels", _KERNELS, kernel),
    Table(_SECOND, "shares and times of attention", _has(benchmark="profile"), profile),
    Table(_SECOND, "mixed precision", _has(benchmark="transformer", metric="step_ms", batch=4), step),
    Table(_THIRD, "benchmarking_script", _has(benchmark="transformer", metric="step_ms", warmup_steps=(0, 1)), step),
    Table(_THIRD, "nsys_profile, by Nsight Systems", _has(metric="profiler_ms"), step),
    Table(_THIRD, "nsys_profile, by Python",
          _has(benchmark="transformer", metric="step_ms", warmup_steps=None), step),
    Table(_THIRD, "nsys_profile c, kernels", _KERNELS, kernel),
    Table(_THIRD, "nsys_profile e, attention", _has(benchmark="profile"), profile),
    Table(_THIRD, "mixed_precision_accumulation", _has(benchmark="mixed_precision_accumulation"),
          _elsewhere(_ACCUMULATION)),
    Table(_THIRD, "benchmarking_mixed_precision a, types", _has(benchmark="autocast_dtypes"), _elsewhere(_AUTOCAST)),
    Table(_THIRD, "peak memory", _has(metric="peak_memory_GB"), peak_memory),
    Table(_THIRD, "pytorch_attention", _has(benchmark="attention"), attention),
)  # fmt: skip


def table_of(one: Told) -> Table:
    """The table that a figure stands in.

    Raises:
        BadInput: it stands in none, or in several.
    """
    found = [table for table in TABLES if table.document == one.document and table.of(one)]
    if len(found) != 1:
        titles = ", ".join(table.title for table in found) or "none"
        text = f"{one.metric} of {one.benchmark} in {one.document} stands in {titles}"
        raise BadInput(f"{text}; expected one table of seeds.TABLES")
    return found[0]
