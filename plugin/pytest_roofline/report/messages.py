"""The closing lines of a run: reasons, conditions, curves, counts, and what the gate compared."""

from collections import Counter
from collections.abc import Mapping, Sequence

from ..baselines.run_files import NIGHTS, Watched
from ..core.records import CurveSummary
from ..core.rows import Row, badness
from ..core.samples import PROFILED
from ..core.units import count, format_bytes, format_seconds, listed, printable, three_digits
from ..core.work import rate_suffix
from ..stats.key_results import NO_PEAK
from ..stats.verdicts import Kind
from .words import cut

# Why tests were not measured: a sweep has a reason of its own for every size.
MOST_REASONS = 4
# Of the nights on which a gate would have been red, the last.
MOST_ALARMS = 3

# Relative errors of a fit beyond which a sweep has another shape, as where its small sizes stay in a cache.
FAIR_FIT = 0.25


def curve_line(curve: CurveSummary) -> str:
    """A sweep in a line: plateau, where it is reached, latency and bandwidth."""
    unit = 1e12 if rate_suffix(curve.metric) == "TFLOPS" else 1e9
    name = "TFLOP/s" if unit == 1e12 else "GB/s"
    plateau = f"plateau {three_digits(curve.plateau / unit)} {name} ({curve.metric})"
    reached = [f"{share} from {format_bytes(size)}" for share, size in curve.reached.items() if size is not None]
    bandwidth = f" + size at {three_digits(curve.bandwidth / unit)} {name}" if curve.bandwidth is not None else ""
    fit = f"fits {format_seconds(curve.latency_s)}{bandwidth}"
    if curve.misfit is not None and curve.misfit > FAIR_FIT:
        fit = f"no latency and bandwidth fit it: the best, {fit.removeprefix('fits ')}, are {curve.misfit:.0%} off"
    return f"{printable(curve.label)}: {', '.join([plateau, *reached])}; {fit}"


def reason_lines(rows: Sequence[Row], at_most: int = 3) -> list[str]:
    """Why a number could not be judged, and what would change that."""
    lines = [
        printable(f"{row.verdict} {row.label}: {row.judgement.reason}")
        for row in rows
        if row.judgement is not None and row.judgement.verdict in (Kind.INCONCLUSIVE, Kind.INVALID)
    ]
    return cut(lines, at_most, "of these")


def peak_lines(rows: Sequence[Row], at_most: int = 3) -> list[str]:
    """What became of the peaks of memory that are not as in the baseline, and how many the baseline has not."""
    peaks = [(printable(row.label), row.peak) for row in rows if row.peak is not None]
    known = [(label, peak) for label, peak in peaks if peak.reference_bytes is not None and peak.reason]
    lines = [f"peak {peak.verdict} {label}: {printable(peak.reason)}" for label, peak in known]
    unknown = [label for label, peak in peaks if peak.reason == NO_PEAK]
    return [*cut(lines, at_most, "of these"), *_about(f"{NO_PEAK}, so it is compared with nothing", unknown, at_most)]


def condition_lines(rows: Sequence[Row], at_most: int = 3, untold_since: str = "the driver does not tell") -> list[str]:
    """How the numbers were taken: the host's pace, excluded blocks, drift, the power cap, what no device told."""
    lines: list[str] = []
    samples = [(printable(row.label), row.measurement.samples) for row in rows if row.measurement is not None]
    for label, meaning in _PACES.items():
        both = [
            f"{name} ({format_seconds(s.median_s)} on the device's clock, {format_seconds(s.wall_s)} on the host's)"
            for name, s in samples
            if label in s.labels and s.wall_s is not None
        ]
        lines += _about(meaning, both, at_most)
    for label, meaning in _LABELS.items():
        lines += _about(meaning, [name for name, s in samples if label in s.labels], at_most)
    spoiled = [
        f"{label} ({', '.join(f'{count} of {len(s.blocks)} by {cause}' for cause, count in s.excluded.items())})"
        for label, s in samples
        if s.excluded
    ]
    lines += _about("blocks excluded", spoiled, at_most)
    capped = [
        f"{label} (in {s.power_capped_share:.0%} of its blocks"
        + (f", at {s.clock_hz / 1e6:.0f} MHz)" if s.clock_hz else ")")
        for label, s in samples
        if s.power_capped_share
    ]
    lines += _about("at the software power cap, as a busy card is", capped, at_most)
    withheld = [name for name, s in samples if s.mode in ("events", "graph") and s.neighbours == "unknown"]
    lines += _about(f"not known whether others used the device, since {untold_since}", withheld, at_most)
    untold = [name for name, s in samples if s.mode in ("events", "graph") and not s.throttle_known]
    lines += _about(f"not known whether the device was throttled, since {untold_since}", untold, at_most)
    lines += _about(
        "another process uses the device", [label for label, s in samples if s.neighbours == "seen"], at_most
    )
    return lines


_PACES = {
    "host_bound": "host-bound, so the host and not the device is measured",
    "waits_inside": "a call waits for the device, so the host's part of it is in the time",
}
_LABELS = {
    "replaced": "replaced by a hook, as a drill does; never a baseline",
    "profiled": "taken while a profiler was attached, or after one in this process; never judged, never a baseline",
    "noisy": "noisy: the budget ended before the median was known well enough",
    "drifting": "drifting: still getting slower or faster when the budget was spent (raise --roofline-budget)",
    "clock_moved": "the clock moved by over 10 % within a block (at the power cap or beside others: nobody tells)",
    "wall_clock": "timed by the host's clock, since the device's events cannot be trusted",
    "graph_refused": "short, and yet timed call by call, since no graph of it could be taken, or of an earlier test",
}


def _about(meaning: str, names: Sequence[str], at_most: int) -> list[str]:
    return [f"{meaning}: {listed(names, at_most)}"] if names else []


def counts_line(measured: int, not_measured: Mapping[str, int], compiled: int = 0) -> str:
    """`12 measured, 4 compiled, 3 not measured (needs 2 GPUs, found 1)`."""
    line = f"{measured} measured" + (f", {compiled} compiled" if compiled else "")
    if not_measured:
        told = [
            printable(reason) + (f" ({count}×)" if len(not_measured) > 1 else "")
            for reason, count in list(not_measured.items())[:MOST_REASONS]
        ]
        left = len(not_measured) - len(told)
        reasons = "; ".join(told + ([f"and {left} other reasons"] if left else []))
        line += f", {sum(not_measured.values())} not measured ({reasons})"
    return line


def verdicts_line(rows: Sequence[Row]) -> str:
    """How many of each verdict, the worst first: `1 REGRESSED, 6 PASSED`."""
    counts = Counter(row.verdict for row in _judged(rows))
    return ", ".join(f"{counts[word]} {word}" for word in sorted(counts, key=badness))


def compared_of(rows: Sequence[Row]) -> int:
    """How many results were compared with anything."""
    return sum(_own(row) not in (Kind.NO_BASELINE, Kind.INVALID) for row in _judged(rows))


def _judged(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.judgement is not None or row.exact is not None]


def _own(row: Row) -> str:
    """The verdict on the time or the kernel, whatever that on the memory is."""
    return row.judgement.verdict if row.judgement is not None else row.verdict


_LIMITS = {
    "published": "published limits",
    "floor": "floors of published figures",
    "roofline": "a share of the roofline",
}


def gate_lines(rows: Sequence[Row], planned: int, run: str, family: str) -> list[str]:
    """The closing sentence on what was compared, and the command that changes it where nothing was.

    Args:
        rows: what was measured, and what was compiled.
        planned: how many tests were to measure.
        run: the run's name or path, for the command; empty where it could not be saved.
        family: the hardware family.
    """
    compared = compared_of(rows)
    if not rows:
        return [f"THIS RUN GATES NOTHING: 0 of {planned} compared, since nothing was measured"]
    profiled = sum(row.verdict == PROFILED.upper() for row in rows)
    said = [f"{profiled} taken while a profiler was attached, or after one"] * bool(profiled)
    missing = [row for row in _judged(rows) if _own(row) == Kind.NO_BASELINE]
    if compared == 0:
        reasons = {_reason(row) for row in missing}
        said += _invalid(rows)
        why = f" ({printable('; '.join([*said, *sorted(reasons)]))})" if said or reasons else ""
        line = f"THIS RUN GATES NOTHING: 0 of {len(rows)} compared{why}."
        if not run or not reasons:
            return [line]
        return [f"{line} Record a baseline with", *_recording(run, family)]
    limited, behind = _behind(rows, compared)
    told = behind + "".join(f" ({why})" for why in said)
    line = f"{compared} of {len(rows)} compared{told}: {verdicts_line(rows)}"
    if missing:
        names = ", ".join(printable(row.label) for row in missing[:3]) + (", …" if len(missing) > 3 else "")
        line += f". NO BASELINE for {names}: {printable(_reason(missing[0]))}"
    if limited < compared:
        return [line]
    alone = "A limit finds only what falls below it; a baseline also finds what got slower"
    return [line, f"{alone}. Record one with", *_recording(run, family)] if run else [line, f"{alone}."]


def _reason(row: Row) -> str:
    return row.judgement.reason if row.judgement is not None else row.reason


def _invalid(rows: Sequence[Row]) -> list[str]:
    """How many numbers cannot be trusted and why the first cannot, with what would help; else empty."""
    invalid = [row for row in _judged(rows) if _own(row) == Kind.INVALID]
    return [f"{len(invalid)} INVALID, the first, {invalid[0].label}, since {_reason(invalid[0])}"] if invalid else []


def _behind(rows: Sequence[Row], compared: int) -> tuple[int, str]:
    """How many were held against a limit for want of a baseline; and in words what stood behind those compared."""
    judged = [row.judgement for row in rows if row.judgement is not None]
    counts = Counter(_LIMITS[one.limit] for one in judged if one.limit)
    # Siblings stand for a reference, of one that counts as compared.
    siblings = sum(bool(one.siblings) and one.verdict != Kind.INVALID for one in judged)
    limited = counts.total()
    counts.update({"their siblings": siblings} if siblings else {})
    if not counts:
        return 0, ""
    if counts.total() == compared and len(counts) == 1:
        return limited, f" with {next(iter(counts))} alone"
    parts = {"a recorded baseline": compared - counts.total(), **counts}
    return limited, f" ({', '.join(f'{number} with {what}' for what, number in parts.items() if number)})"


def shadow_lines(sentences: Sequence[str], known: Sequence[Watched]) -> list[str]:
    """What a gate that only watches would have failed, worst first, and how often it would have so far.

    Args:
        sentences: of this run.
        known: every run on this hardware that watched, this one included.
    """
    lines = [f"SHADOW: would have failed: {sentence}" for sentence in sentences]
    lines = lines or ["SHADOW: nothing would have failed"]
    nights, red = len({run.night for run in known}), [run for run in known if run.red]
    told = f"SHADOW: in {count(nights, 'night')} {len(red)} of {count(len(known), 'run')} would have been red"
    told += ": " * bool(red) + "; ".join(f"{run.night} {run.why}" for run in red[-MOST_ALARMS:])
    if nights < NIGHTS:
        return [*lines, f"{told}; from {NIGHTS} nights on this rate tells whether to switch the gate on"]
    return [*lines, f"{told}; switch the gate on by --roofline-ci"]


def _recording(run: str, family: str) -> list[str]:
    """The commands that make a run the baseline."""
    return [
        f"  roofline baseline propose {run} -o {family}-proposal.json",
        f"  roofline baseline approve {family}-proposal.json",
    ]
