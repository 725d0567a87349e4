"""Tables about baselines: what an approval changes, and what stands behind the entries that there are."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ..baselines.checks import Health
from ..baselines.exact_proposals import ExactChange
from ..baselines.limit_texts import value_text
from ..baselines.proposals import Proposal
from ..baselines.renewal import Change, since, since_accepted
from ..core.entries import Entry
from ..core.facts import HardwareKey
from ..core.groups import group_by
from ..core.keys import label_of
from ..core.units import (
    count,
    format_flops,
    format_memory,
    format_percent,
    format_rate,
    format_seconds,
    printable,
)
from ..core.verdicts import Spread
from ..core.work import rate_suffix
from ..stats.spread import ENOUGH_SESSIONS
from .published import figure_text
from .tables import TextTable, render

# Longer lists of entries are cut, so that the important lines are not scrolled away.
MOST_LINES = 12
# Published figures that are listed for one benchmark; a file may hold a hundred of them.
MOST_OF_ONE = 4


def count_text(number: int, singular: str, plural: str) -> str:
    """Return `1 entry`, `7 entries`."""
    return f"{number} {singular if number == 1 else plural}"


def changes_table(changes: Sequence[Change], width: int, colour: bool) -> str:
    """Return the table of what an approval does to each entry.

    It has time, sessions and processes before and after, and the reason.
    """
    table = TextTable(("entry", "left"), ("before", "right"), ("after", "right"), ("sessions", "right"),
                      ("processes", "right"), ("", "left"))  # fmt: skip
    for change in changes:
        before, after = change.before, change.entry
        table.add_row(
            printable(after.label),
            "" if before is None else _value_cell(before, change.before_s),
            _value_cell(after, change.after_s),
            _step_cell(len(before.sessions) if before else 0, len(after.sessions)),
            _step_cell(len(before.medians) if before else 0, len(after.medians)),
            _action_text(change),
        )
    return render(table, width, colour)


def _action_text(change: Change) -> str:
    """Return the action with its reason: `replaced (IMPROVED -7.1 %)`.

    For an entry that new sessions joined, the change of its time comes before the reason.
    """
    reason = change.why
    if change.action == "joined" and change.before_s and change.after_s:
        time_change = format_percent(change.after_s / change.before_s - 1)
        reason = f"{time_change}; {reason}" if reason else time_change
    return change.action + (f" ({printable(reason)})" if reason else "")


def _value_cell(entry: Entry, seconds: float | None) -> str:
    """Return a time, or the published value of an entry without one."""
    return printable(value_text(entry)) if seconds is None else format_seconds(seconds)


def _step_cell(before: int, after: int) -> str:
    """Return `3 → 5`, or `5` where nothing was there or changed.

    It is empty where nothing is there afterwards.
    """
    if not after:
        return ""
    return f"{after}" if before in (0, after) else f"{before} → {after}"


def health_table(healths: Sequence[Health], width: int, colour: bool) -> str:
    """Return the table of measured entries and their evidence.

    Each row has the time, the evidence, its spread, and the detectable effect. The columns of peak
    memory and drivers are left out where no row needs them.
    """
    rates = [_rate_cell(health) for health in healths]
    # A unit that all rates share is the heading; the cells have the number alone.
    units = {rate.rpartition(" ")[2] for rate in rates if rate}
    shared_unit = units.pop() if len(units) == 1 else ""
    has_several_drivers = any(health.drivers != healths[0].drivers for health in healths)
    has_peaks = any(health.entry.peak_bytes is not None for health in healths)
    # `LEGEND` explains the short headings.
    columns = [("entry", "left"), ("time", "right"), (shared_unit or "rate", "right")]
    columns += [("peak", "right")] if has_peaks else []
    columns += [("d/s/p", "right"), ("spread %", "right"), ("finds %", "right"), ("newest", "left")]
    columns += [("driver", "left")] if has_several_drivers else []
    table = TextTable(*columns, ("", "left"))
    for health, rate in zip(healths, rates, strict=True):
        cells = [printable(health.entry.label), format_seconds(health.time_s)]
        cells.append(rate.removesuffix(shared_unit).strip())
        cells += [_peak_cell(health.entry)] if has_peaks else []
        cells += _evidence_cells(health)
        cells += [printable(", ".join(health.drivers))] if has_several_drivers else []
        table.add_row(*cells, "prov." if health.provisional else "")
    return render(table, width, colour)


def _peak_cell(entry: Entry) -> str:
    """Return the peak memory of an entry; empty where it has none."""
    return "" if entry.peak_bytes is None else format_memory(entry.peak_bytes)


def _evidence_cells(health: Health) -> list[str]:
    """Return the cells from `d/s/p` to `newest` of the health table.

    They are the counts of devices, sessions and processes, the spreads between processes and between sessions,
    the smallest slowdown that one new process detects, and the day of the newest session.
    """
    entry = health.entry
    return [
        f"{health.devices}/{len(entry.sessions)}/{len(entry.medians)}",
        f"{_spread_cell(health.process)} {_spread_cell(health.session)}",
        f"{health.mde * 100:.1f}",
        printable(health.newest[:10]),
    ]


# The explanation of the columns, printed below the table: headings of 80 columns have no room for it.
LEGEND = """\
d/s/p: devices, sessions, processes. spread: between processes, then between
sessions; * is assumed (prior), + joined with a prior. finds: the slowdown that
one new process finds in 80 of 100 cases. prov.: provisional."""


def _rate_cell(health: Health) -> str:
    """Return the rate of an entry with its unit; empty without a rate."""
    if health.rate is None:
        return ""
    return (
        format_flops(health.rate)
        if rate_suffix(health.entry.metric) == "TFLOPS"
        else format_rate(health.rate)
    )


def _spread_cell(spread: Spread) -> str:
    """Return a spread in percent with its mark: `0.8+`.

    A prior is a spread that is assumed before measuring. `*` marks a prior alone, `+` an estimate from the
    measurements that was joined with a prior.
    """
    is_assumed = spread.origin.startswith("prior")
    mark = "*" if is_assumed else "+" if "prior" in spread.origin else ""
    return f"{spread.value * 100:.1f}{mark}"


def published_lines(entries: Sequence[Entry], at_most: int | None = MOST_OF_ONE) -> list[str]:
    """Return the published figures by benchmark.

    Of each benchmark, figures that gate come first and implausible figures last.

    Args:
        entries: all entries of a file; measured ones are skipped.
        at_most: the number of figures that are listed for one benchmark; None lists all.
    """
    published = [entry for entry in entries if entry.kind != "measured"]
    groups = group_by(published, lambda entry: label_of(entry.benchmark, {}, entry.name))
    lines = []
    for benchmark, members in groups.items():
        # False comes before True.
        selected = sorted(
            members,
            key=lambda entry: (not entry.gates, bool(entry.implausible), entry.kind != "threshold"),
        )[:at_most]
        figures = count_text(len(members), "published figure", "published figures")
        limit_count = sum(entry.gates for entry in members)
        gating = (
            count_text(limit_count, "limit gates", "limits gate") if limit_count else "shown only"
        )
        lines.append(printable(f"{benchmark}: {figures}, {gating}"))
        lines += [f"  {_published_line(entry)}" for entry in selected]
        remaining = len(members) - len(selected)
        if remaining:
            hint = f"roofline baseline show … {benchmark}, or --json"
            lines.append(printable(f"  and {remaining} more (list all: {hint})"))
    return lines


def _published_line(entry: Entry) -> str:
    """Return the line on a published figure, with its hardware if the figure is of one.

    It reads `memcpy_h2d[512MiB-pinned] on a100-sxm4, 80gb: threshold 24.7 GB/s (payload; median;
    …), confidence high`.
    """
    on_hardware = "" if entry.hardware == HardwareKey() else f" on {entry.hardware}"
    return printable(f"{entry.label}{on_hardware}: ") + figure_text(entry)


def provisional_note(healths: Sequence[Health]) -> str:
    """Return how many entries are provisional, and the reasons.

    Entries of canaries do not count. The note is empty where no entry is provisional.
    """
    healths = [health for health in healths if not health.entry.is_canary]
    provisional = [health for health in healths if health.provisional]
    if not provisional:
        return ""
    few_count = sum(len(health.entry.sessions) < ENOUGH_SESSIONS for health in provisional)
    # `mde` is the smallest slowdown that one new process detects (minimum detectable effect).
    blind_count = sum(health.mde > health.tolerance for health in provisional)
    reasons = [f"{few_count} with fewer than {ENOUGH_SESSIONS} sessions"] if few_count else []
    reasons += (
        [f"{blind_count} that may miss a slowdown as large as the tolerance"] if blind_count else []
    )
    return f"provisional: {len(provisional)} of {count_text(len(healths), 'entry', 'entries')} ({', '.join(reasons)})"


def provisional_lines(healths: Sequence[Health]) -> list[str]:
    """Return a line for each entry with too little evidence, with the reason."""
    return [
        printable(f"{health.entry.label} is provisional: {health.provisional}")
        for health in healths
        if health.provisional
    ]


def renewal_lines(healths: Sequence[Health]) -> list[str]:
    """Return a line on the creep of each renewed entry.

    The line tells since when the time crept, in how many renewals, and the last five drifts.
    """
    return [_creep_line(health.entry) for health in healths if health.entry.renewals]


def _creep_line(entry: Entry) -> str:
    """Return the creep of an entry.

    It is the change of its time that its renewals added up to.

    It reads `memcpy_d2d[64MiB]: +4.1 % since 2026-01-01, in 5 renewals (+0.0, +1.0, +2.0, +3.0,
    +4.1 %)`.
    """
    # A renewal that accepted slower code starts the creep anew; it is listed with its day.
    accepted_texts = [
        renewal.approved[:10] + (f" ({renewal.reason})" if renewal.reason else "")
        for renewal in entry.renewals
        if renewal.accepted_slower or renewal.reason
    ]
    drifts = [format_percent(renewal.drift) for renewal in since_accepted(entry.renewals)]
    text = f"{entry.label}: "
    if drifts:
        # Each drift is measured from the same start, so the last drift is the whole creep.
        whole_creep = drifts[-1]
        text += f"{whole_creep} since {since(entry)}, in {count(len(drifts), 'renewal')}"
        if len(drifts) > 1:
            text += f" ({', '.join(drift.removesuffix(' %') for drift in drifts[-5:])} %)"
    elif accepted_texts:
        text += f"since {since(entry)}"
    return printable(
        text + (f"; accepted as slower: {', '.join(accepted_texts)}" if accepted_texts else "")
    )


def health_as_json(health: Health) -> dict[str, object]:
    """Return a row of the health table as JSON.

    Times are in seconds, rates in bytes or FLOP per second, shares of time.
    """
    entry = health.entry
    return {
        **_identity_fields(entry),
        "time_s": health.time_s,
        "rate": health.rate,
        "peak_bytes": entry.peak_bytes,
        "devices": health.devices,
        "sessions": len(entry.sessions),
        "processes": len(entry.medians),
        "process_spread": {"value": health.process.value, "origin": health.process.origin},
        "session_spread": {"value": health.session.value, "origin": health.session.origin},
        "detectable": health.mde,
        "drivers": list(health.drivers),
        **{name: getattr(health, name) for name in ("tolerance", "newest", "provisional")},
        "anchor": since(entry),
        "renewals": [asdict(renewal) for renewal in entry.renewals],
    }


def published_as_json(entry: Entry) -> dict[str, object]:
    """Return a published figure as JSON."""
    return {
        **_identity_fields(entry),
        "value": entry.value,
        "unit": entry.unit,
        "convention": entry.convention,
        "source": entry.source,
        "confidence": entry.confidence,
        "statistic": entry.statistic,
        "note": entry.note,
        "implausible": entry.implausible,
        "gates": entry.gates,
    }


def _identity_fields(entry: Entry) -> dict[str, object]:
    """Return the fields that tell which test on which hardware an entry is."""
    return {
        "label": entry.label,
        "benchmark": entry.benchmark,
        "name": entry.name,
        "parameters": entry.parameters,
        "counting": entry.metric,
        "kind": entry.kind,
        "hardware": str(entry.hardware),
    }


def proposal_as_json(
    proposal: Proposal, output: Path, notes: Sequence[str], provisional: str
) -> dict[str, object]:
    """Return a proposal as JSON.

    Args:
        proposal: the entries for the file.
        output: the baseline file that an approval writes.
        notes: remarks on the proposal, such as entries that were left out.
        provisional: the note on entries with too little evidence; empty where there is none.
    """
    entries, exact = proposal.baseline.entries, proposal.baseline.exact
    # Entries of one file may have different numbers of sessions, so the largest is shown.
    return {
        "file": str(output),
        "hardware": str(entries[0].hardware) if entries else None,
        "entries": [entry.label for entry in entries],
        "exact": [{"label": entry.label, "target": entry.target} for entry in exact],
        "sessions": max((len(entry.sessions) for entry in entries), default=0),
        "provisional": provisional,
        "left_out": list(proposal.left_out),
        "notes": list(notes),
    }


def changes_as_json(
    changes: Sequence[Change],
    kernels: Sequence[ExactChange],
    path: Path,
    exact_path: Path,
    *,
    written: bool,
) -> dict[str, object]:
    """Return the changes of an approval as JSON.

    `written` tells whether the files were written, or the changes only shown.
    """
    return {
        "written": written,
        "file": str(path),
        "exact_file": str(exact_path),
        "entries": [_change_as_json(change) for change in changes],
        "exact": [
            {
                "label": change.entry.label,
                "target": change.entry.target,
                "action": change.action,
                "changes": [asdict(figure) for figure in change.changes],
            }
            for change in kernels
        ],
    }


def _change_as_json(change: Change) -> dict[str, object]:
    """Return one entry with its times and evidence, before and after."""
    before, after = change.before, change.entry
    return {
        "label": after.label,
        "hardware": str(after.hardware),
        "kind": after.kind,
        **{name: getattr(change, name) for name in ("action", "why", "before_s", "after_s")},
        "sessions_before": len(before.sessions) if before else 0,
        "sessions_after": len(after.sessions),
        "processes_before": len(before.medians) if before else 0,
        "processes_after": len(after.medians),
    }
