"""Transformer steps as a page: times, warm-up, precisions, memory, profiles. From run files, nothing is measured here.

    python benchmarks/remake.py transformer    # records the runs that `result_pages.TRANSFORMER` names
    python benchmarks/transformer_page.py steps profile ranks -o docs/results/transformer.md

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
from pytest_roofline.core.keys import label_of
from pytest_roofline.core.memory import OutOfMemory
from pytest_roofline.core.records import Measurement
from pytest_roofline.core.units import format_memory, format_seconds, three_digits
from pytest_roofline.hardware import is_arithmetic
from pytest_roofline.report.figures import (
    WARM_UPS,
    after_warm_up,
    deviation_text,
    figure_lines,
    first_call_text,
)
from pytest_roofline.report.inside import one_profile_lines, use_lines

PUBLISHED = Path(__file__).with_name("transformer_published.json")
# Columns of the tables of kernels.
WIDTH = 100
STEPS, WARM_UP, RANKS = "transformer", "transformer_warm_up", "transformer_ranks"
# Which value of a parameter is set beside which: the tables that the assignment asks for, and those that follow.
CONTRASTS = (
    ("precision", "fp32", "bf16_autocast"),
    ("precision", "fp32", "bf16"),
    ("execution", "eager", "compile"),
    ("attention", "naive", "sdpa"),
)

HEAD = """# Transformer steps

{conclusion}

Made by `python benchmarks/transformer_page.py {runs} -o docs/results/transformer.md` from {count}. The model is a
decoder of five sizes ([the suite](../reference/suite.md#transformer-steps) says which), batch 4, random tokens.
Milliseconds are the median of one call; tokens and FLOPs are those of one call over that time, FLOPs by the formula of
`roofline_kernels.work.transformer_flops`, and their rate stands as a share of the peak below each table: of a
datasheet's peak that is the MFU. Peak memory is what a call holds above what was there before.
`{nothing}` is what the run does not hold.
"""

ELSEWHERE = """## Published elsewhere

Numbers of others for models of the same shapes, as they printed them. They come from other hardware and other programs,
with other ways of timing and of counting memory: there is no claim that they are comparable with the tables above, or
with each other.
"""

TAIL = """## What may not be concluded

Nothing about other hardware, or about sizes, contexts and types that are not in the tables. Differences are those of
two medians on one machine, without an interval; whether a later run is slower is what
`pytest --roofline-against` is for. Times under the profiler are longer than those without, and enter no baseline.
"""


@dataclass(frozen=True, slots=True)
class Sound:
    """A measurement of a run, with its median over the run's sound processes, in seconds; None where there is none."""

    measurement: Measurement
    seconds: float | None


def sound(run: Run, benchmark: str) -> list[Sound]:
    """What a run has of a benchmark, one a key, in its order."""
    found: dict[str, list[Measurement]] = {}
    for measurement in run.measurements:
        if measurement.key.benchmark == benchmark:
            found.setdefault(measurement.key.identity, []).append(measurement)
    told = []
    for own in found.values():
        fit = [one for one in own if not run.unfit(one, accept_slower=True)]
        told.append(Sound((fit or own)[0], median(one.median_s for one in fit) if fit else None))
    return told


def steps(run: Run) -> Iterator[str]:
    """Every step with its rate, its share of the peak, its memory, and how long compiling took."""
    rows, peaks = [], {}
    for one in sound(run, STEPS):
        rows.append(step_row(one))
        if one.measurement.ceiling is not None:
            ceiling = one.measurement.ceiling
            unit = "GFLOP/s" if is_arithmetic(ceiling) else "GB/s"
            peak = f"`{ceiling.metric}` {three_digits(ceiling.value / 1e9)} {unit}"
            peaks[ceiling.metric] = f"{peak}, {ceiling.source} ({ceiling.origin})"
    ran_out = [record for record in run.out_of_memory if record.benchmark == STEPS]
    rows += [(record.label, _ran_out(record), *[NOTHING] * 5) for record in ran_out]
    if rows:
        yield "### Steps"
        yield table(
            ("test", "ms", "tokens/s", "GFLOP/s", "of the peak", "peak memory", "compiling"), rows
        )
        if peaks:
            yield f"Peaks: {'; '.join(peaks.values())}."


def conclusion(runs: Sequence[Run]) -> str:
    """Return the sentence that the page begins with: how near the steps come to the peak."""
    rows = [row for run in runs for row in sound(run, STEPS)]
    shares = [share for row in rows if (share := _share_of_peak(row)) is not None]
    text = f"Of {len(rows)} steps that were measured {sum(row.seconds is not None for row in rows)} are sound"
    return (
        f"{text}; they reach {min(shares):.1%} to {max(shares):.1%} of the peak."
        if shares
        else f"{text}."
    )


def _share_of_peak(row: Sound) -> float | None:
    """Return the share of the peak that a step reaches; None where no peak or no sound time is known."""
    measurement, seconds = row.measurement, row.seconds
    if measurement.mfu is None or seconds is None:
        return None
    return measurement.mfu * measurement.median_s / seconds


def _ran_out(record: OutOfMemory) -> str:
    """In words, with what it asked for; and the most that there was, where that is known to be of this measurement."""
    words, allocation = "out of memory", record.allocation
    if allocation.asked_bytes is not None:
        words += f", asked for {format_memory(allocation.asked_bytes)}"
    # Outside of a measurement the counter may still hold the peak of a test before.
    if allocation.peak_bytes is not None and record.phase is not None:
        words += f" beside a peak of {format_memory(allocation.peak_bytes)}"
    return words


def step_row(one: Sound) -> tuple[str, ...]:
    """One line of the table of steps."""
    measurement, seconds = one.measurement, one.seconds
    if seconds is None:
        return measurement.label, "not sound", *[NOTHING] * 5
    work, share = measurement.work, _share_of_peak(one)
    return (
        measurement.label,
        three_digits(seconds * 1e3),
        three_digits(work.tokens / seconds) if work.tokens else NOTHING,
        three_digits(work.flops / seconds / 1e9) if work.flops else NOTHING,
        NOTHING if share is None else f"{share:.1%}",
        NOTHING if measurement.peak_bytes is None else format_memory(measurement.peak_bytes),
        NOTHING if measurement.compile_s is None else format_seconds(measurement.compile_s),
    )


def warm_up(run: Run) -> Iterator[str]:
    """The first steps of a fresh process, one by one, against its steady state."""
    told = [
        one
        for one in sound(run, WARM_UP)
        if one.seconds is not None and one.measurement.samples.first_calls_s
    ]
    if not told:
        return
    most = max(len(one.measurement.samples.first_calls_s) for one in told)
    rows = []
    for one in told:
        calls = [three_digits(seconds * 1e3) for seconds in one.measurement.samples.first_calls_s]
        steady = three_digits(one.measurement.median_s * 1e3)
        rows.append((one.measurement.label, *calls, *[NOTHING] * (most - len(calls)), steady))
    yield "### Warm-up: the first steps of a fresh process, ms"
    yield table(("test", *map(str, range(most)), "steady"), rows)
    series = [(one.measurement.label, after_warm_up(one.measurement)) for one in told]
    deviations = [
        (label, *(deviation_text(*one) for one in found)) for label, found in series if found
    ]
    if deviations:
        yield "### Warm-up: mean and standard deviation of ten steps after so many others"
        yield table(("test", *map(str, WARM_UPS)), deviations)
    yield "\n".join(
        f"* {one.measurement.label}: {first_call_text(one.measurement)}" for one in told
    )


def compared(runs: Sequence[Run]) -> Iterator[str]:
    """One parameter's values beside each other, each pair with difference and percent; of all runs together."""
    for parameter, base, other in CONTRASTS:
        rows: dict[str, dict[str, tuple[str, ...]]] = {}
        for (label, passes), times in _times(runs, parameter).items():
            if base in times and other in times:
                rows.setdefault(label, {})[passes] = _beside(times[base], times[other])
        if rows:
            yield f"### {parameter}: {other} against {base}"
            yield _beside_table(rows, base, other)


def _times(runs: Sequence[Run], parameter: str) -> dict[tuple[str, str], dict[str, float | None]]:
    """Seconds by what a test has without the parameter and its passes, and by passes, for each value of the parameter.

    None is a test that ran out of memory, or whose times are not sound.
    """
    found: dict[tuple[str, str], dict[str, float | None]] = {}
    told = [
        (one.measurement.key.parameters, one.seconds) for run in runs for one in sound(run, STEPS)
    ]
    told += [
        (lost.parameters, None)
        for run in runs
        for lost in run.out_of_memory
        if lost.benchmark == STEPS
    ]
    for parameters, seconds in told:
        if parameter in parameters:
            rest = {
                name: value
                for name, value in parameters.items()
                if name not in (parameter, "passes")
            }
            times = found.setdefault(
                (label_of(STEPS, rest, ""), str(parameters.get("passes", ""))), {}
            )
            times.setdefault(str(parameters[parameter]), seconds)
    return found


def _beside(base_s: float | None, other_s: float | None) -> tuple[str, ...]:
    told = [
        NOTHING if seconds is None else format_seconds(seconds) for seconds in (base_s, other_s)
    ]
    if base_s is None or other_s is None:
        return *told, "", ""
    more_s = other_s - base_s
    sign = "-" if more_s < 0 else "+"
    return *told, sign + format_seconds(abs(more_s)), f"{more_s / base_s * 100:+.1f} %"


def _beside_table(rows: dict[str, dict[str, tuple[str, ...]]], base: str, other: str) -> str:
    passes = list(dict.fromkeys(name for row in rows.values() for name in row))
    head = [
        f"{name}: {what}" if name else what
        for name in passes
        for what in (base, other, "difference", "change")
    ]
    return table(
        ("test", *head),
        [
            (label, *(cell for name in passes for cell in row.get(name, ("",) * 4)))
            for label, row in rows.items()
        ],
    )


def memory(run: Run) -> Iterator[str]:
    """What the memory of each call goes into."""
    uses = [use for use in run.memory_uses if use.label.startswith(STEPS)]
    if uses:
        yield "### Where memory goes"
        yield "\n\n".join(_as_is(use_lines(use)) for use in uses)


def profiles(run: Run) -> Iterator[str]:
    """Where the time of each call goes."""
    for profile in run.profiles:
        if not profile.label.startswith(STEPS):
            continue
        yield f"### Profile of {profile.label}"
        yield _as_is(one_profile_lines(profile, WIDTH))


def ranks(run: Run) -> Iterator[str]:
    """Data-parallel steps: every world's time, and what the tests made of it."""
    told = sound(run, RANKS)
    if not told:
        return
    rows = [
        (
            one.measurement.label,
            "not sound" if one.seconds is None else three_digits(one.seconds * 1e3),
        )
        for one in told
    ]
    yield "### Over ranks"
    yield table(("test", "ms"), rows)
    # A figure is made of its test's times.
    unfit = {one.measurement.test_id for one in told if one.seconds is None}
    figures = [
        one for one in run.figures if one.label.startswith(RANKS) and one.test_id not in unfit
    ]
    lines = figure_lines(figures, at_most=len(figures))
    if lines:
        yield "\n".join(f"* {line}" for line in lines)


def _as_is(lines: Sequence[str]) -> str:
    return "\n".join(["```text", *lines, "```"])


def section(run: Run) -> list[str]:
    """Everything of one run.

    Raises:
        BadFile: it holds nothing of the transformer.
    """
    makers = (steps, warm_up, memory, profiles, ranks)
    parts = [part for maker in makers for part in maker(run)]
    if not parts:
        raise BadFile(
            f"run {run.path} holds nothing of the transformer; run perf_tests/test_transformer.py first"
        )
    return titled(run, parts, (STEPS, WARM_UP, RANKS))


def page(runs: Sequence[Run]) -> str:
    """All of it."""
    names = " ".join(run.header.run_id for run in runs)
    count = "one run" if len(runs) == 1 else f"{len(runs)} runs"
    head = HEAD.format(conclusion=conclusion(runs), runs=names, count=count, nothing=NOTHING)
    sections = [part for run in runs for part in section(run)]
    pairs = [*compared(runs)]
    sections += ["## Side by side", *pairs] if pairs else []
    return filled("\n\n".join([head, *sections, ELSEWHERE, *published(PUBLISHED), TAIL])) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """The page of these runs: see `run_pages.main`."""
    return run_pages.main("transformer_page", __doc__, page, arguments)


if __name__ == "__main__":
    sys.exit(main())
