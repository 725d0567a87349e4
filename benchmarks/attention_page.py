"""The attention sweep and PyTorch's back ends in float32, as a page: from run files, nothing is measured here.

    pytest perf_tests/test_attention.py --roofline-tier=nightly --roofline-save=sweep
    pytest perf_tests/test_flash_attention.py -k fp32 --roofline-tier=nightly --roofline-save=fp32
    python benchmarks/attention_page.py sweep fp32 -o docs/results/attention.md

A RUN is a saved name or a path. Whatever a run says must not be trusted has no number on the page.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import run_pages
from rank_figures.page import filled, table
from run_pages import NOTHING, published, titled

from pytest_roofline.baselines.runs import Run
from pytest_roofline.core.errors import BadFile
from pytest_roofline.core.memory import OutOfMemory
from pytest_roofline.core.records import Measurement
from pytest_roofline.core.units import format_memory, three_digits
from roofline_kernels.attention.implementations import PASSES
from roofline_kernels.attention.sweep import BATCH

PUBLISHED = Path(__file__).with_name("attention_published.json")
SWEEP, FP32 = "attention", "flash_attention_fp32"
IMPLEMENTATIONS = ("eager", "compiled")
# Of the sweep: q, k and v in float32.
INPUT_BYTES = 3 * 4
UNSOUND = "not sound"

HEAD = """# Attention

Made by `python benchmarks/attention_page.py {runs} -o docs/results/attention.md` from {count}. The sweep is naive
attention in float32, batch {batch}, one head, causal: `perf_tests/test_attention.py`. Milliseconds are the median of
one call. Memory before the backward pass is that of the inputs with all that the forward pass leaves; the peak is the
most that there was in either pass. MB are 10⁶ bytes of torch's allocations; `{nothing}` is what the run does not hold.
Ratios are of two times of one run.
"""

ELSEWHERE = """## Published elsewhere

Numbers of others for the same sweep, as they printed them. They come from other hardware and other programs, with other
ways of timing and of counting memory: there is no claim that they are comparable with the tables above, or with each
other.
"""

TAIL = """## What may not be concluded

Nothing about other hardware, other types, or lengths that are not in the tables. A ratio is that of one run on one
machine, without an interval; whether a later run is slower is what `pytest --roofline-against` is for. Times of the
naive formula say what a fused kernel has to beat, not what attention has to cost.
"""


@dataclass(frozen=True, slots=True)
class Cell:
    """What one run knows of one test: a sound time with its memory, or in words why there is none."""

    seconds: float | None = None
    flops_per_s: float | None = None
    peak_bytes: int | None = None
    held_bytes: int | None = None
    words: str = NOTHING

    @property
    def ms(self) -> str:
        """Milliseconds, or the words."""
        return self.words if self.seconds is None else three_digits(self.seconds * 1e3)

    @property
    def gflops(self) -> str:
        """GFLOP/s, or the words."""
        return self.words if self.flops_per_s is None else three_digits(self.flops_per_s / 1e9)


def cell(run: Run, benchmark: str, **parameters: object) -> Cell:
    """What a run knows of a test; of several rounds the median."""
    own = [m for m in run.measurements if m.key.benchmark == benchmark and m.key.parameters == parameters]
    sound = [m for m in own if not run.unfit(m, accept_slower=True)]
    if sound:
        seconds = median(m.median_s for m in sound)
        rates = [m.flops_per_s for m in sound if m.flops_per_s is not None]
        return Cell(seconds, median(rates) if rates else None, _most(sound, "peak_bytes"), _most(sound, "held_bytes"))
    ran_out = [one for one in run.out_of_memory if one.benchmark == benchmark and one.parameters == parameters]
    return Cell(words=_ran_out(ran_out[0]) if ran_out else UNSOUND if own else NOTHING)


def _most(measurements: Sequence[Measurement], name: str) -> int | None:
    return max((value for m in measurements if (value := getattr(m, name)) is not None), default=None)


def _ran_out(record: OutOfMemory) -> str:
    asked = record.asked_bytes
    return "out of memory" if asked is None else f"out of memory, asked for {format_memory(asked)}"


def sizes(run: Run, benchmark: str, *names: str) -> list[tuple]:
    """The values of these parameters that a run has of a benchmark, sorted."""
    records = [*(m.key for m in run.measurements), *run.out_of_memory]
    return sorted({tuple(r.parameters[name] for name in names) for r in records if r.benchmark == benchmark})


def sweep(run: Run) -> Iterator[str]:
    """The tables of the sweep: each implementation as the assignment prints it, then both against each other."""
    wanted = sizes(run, SWEEP, "d_model", "sequence")
    if not wanted:
        return
    for implementation in IMPLEMENTATIONS:
        rows = [row(run, implementation, *size) for size in wanted]
        head = ("d_model", "sequence", "forward, ms", "backward, ms", "memory before backward, MB", "peak, MB")
        yield f"### The sweep, {implementation}"
        yield table(head, rows)
    yield "### The sweep, eager over compiled"
    yield table(
        ("d_model", "sequence", *(f"{passes}: {what}" for passes in PASSES[:2] for what in ("eager, ms", "compiled, ms",
         "ratio"))),
        [(str(d_model), str(sequence), *_beside(run, d_model, sequence)) for d_model, sequence in wanted],
    )  # fmt: skip


def row(run: Run, implementation: str, d_model: int, sequence: int) -> tuple[str, ...]:
    """One line of the sweep."""
    key = {"implementation": implementation, "d_model": d_model, "sequence": sequence}
    forward, backward = (cell(run, SWEEP, passes=passes, **key) for passes in PASSES[:2])
    inputs = INPUT_BYTES * BATCH * sequence * d_model
    before = None if forward.held_bytes is None else inputs + forward.held_bytes
    peak = None
    if before is not None and forward.peak_bytes is not None and backward.peak_bytes is not None:
        peak = max(inputs + forward.peak_bytes, before + backward.peak_bytes)
    return str(d_model), str(sequence), forward.ms, backward.ms, _megabytes(before), _megabytes(peak)


def _megabytes(size_bytes: int | None) -> str:
    return NOTHING if size_bytes is None else f"{size_bytes / 1e6:,.1f}"


def _beside(run: Run, d_model: int, sequence: int) -> Iterator[str]:
    for passes in PASSES[:2]:
        eager, compiled = (
            cell(run, SWEEP, implementation=name, passes=passes, d_model=d_model, sequence=sequence)
            for name in IMPLEMENTATIONS
        )
        yield from (eager.ms, compiled.ms, ratio(eager.seconds, compiled.seconds))


def ratio(slow_s: float | None, fast_s: float | None) -> str:
    """How many times faster the second is; nothing where either has no sound time."""
    return NOTHING if slow_s is None or fast_s is None else f"{three_digits(slow_s / fast_s)} ×"


def back_ends(run: Run) -> Iterator[str]:
    """PyTorch's back ends against the plain formula, in float32."""
    wanted = sizes(run, FP32, "passes", "causal", "sequence")
    names = [name for (name,) in sizes(run, FP32, "name") if name.startswith("sdpa")]
    if not wanted or not names:
        return
    rows = []
    for passes, causal, sequence in sorted(wanted, key=lambda size: (PASSES.index(size[0]), *size[1:])):
        key = {"passes": passes, "causal": causal, "sequence": sequence}
        eager = cell(run, FP32, name="eager", **key)
        cells = [cell(run, FP32, name=name, **key) for name in names]
        beside = [text for one in cells for text in (one.gflops, ratio(eager.seconds, one.seconds))]
        rows.append((passes, "causal" if causal else "full", str(sequence), eager.gflops, *beside))
    yield "### PyTorch's back ends, float32, 8 heads of 64"
    head = [text for name in names for text in (f"{name}, GFLOP/s", "over eager")]
    yield table(("pass", "mask", "sequence", "eager, GFLOP/s", *head), rows)


def section(run: Run) -> list[str]:
    """Everything of one run.

    Raises:
        BadFile: it holds neither of the two benchmarks.
    """
    parts = [*sweep(run), *back_ends(run)]
    if not parts:
        raise BadFile(f"run {run.path} holds nothing of {SWEEP} or {FP32}; run perf_tests/test_attention.py first")
    return titled(run, parts, (SWEEP, FP32))


def page(runs: Sequence[Run]) -> str:
    """All of it."""
    names = " ".join(run.header.run_id for run in runs)
    count = "one run" if len(runs) == 1 else f"{len(runs)} runs"
    head = HEAD.format(runs=names, count=count, batch=BATCH, nothing=NOTHING)
    sections = [part for run in runs for part in section(run)]
    return filled("\n\n".join([head, *sections, ELSEWHERE, *published(PUBLISHED), TAIL])) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """The page of these runs: see `run_pages.main`."""
    return run_pages.main("attention_page", __doc__, page, arguments)


if __name__ == "__main__":
    sys.exit(main())
