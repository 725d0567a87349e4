"""Tables about baselines: what an approval changes, and what stands behind the entries that there are."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ..baselines.checks import Health
from ..baselines.exact_proposals import ExactChange
from ..baselines.limit_texts import value_text
from ..baselines.plausible import Flaw
from ..baselines.proposals import Proposal
from ..baselines.renewal import Change, since, since_accepted
from ..core.entries import Entry
from ..core.facts import HardwareKey
from ..core.groups import grouped
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

# Lists of entries are cut here, so that what matters is not scrolled away.
MOST_LINES = 12
# Of one benchmark a file may hold a hundred published figures.
MOST_OF_ONE = 4


def capped(lines: Sequence[str]) -> list[str]:
    """Return at most twelve of the lines, and how many more there are."""
    left = len(lines) - MOST_LINES
    return [*lines[:MOST_LINES], f"and {left} more"] if left > 0 else list(lines)


def counted(number: int, singular: str, plural: str) -> str:
    """Return `1 entry`, `7 entries`."""
    return f"{number} {singular if number == 1 else plural}"


def changes_table(changes: Sequence[Change], width: int, colour: bool) -> str:
    """What an approval would do to each entry: time, sessions and processes before and after, and why."""
    table = TextTable(("entry", "left"), ("before", "right"), ("after", "right"), ("sessions", "right"),
                      ("processes", "right"), ("", "left"))  # fmt: skip
    for change in changes:
        before, after = change.before, change.entry
        table.add_row(
            printable(after.label),
            "" if before is None else _value(before, change.before_s),
            _value(after, change.after_s),
            _step(len(before.sessions) if before else 0, len(after.sessions)),
            _step(len(before.medians) if before else 0, len(after.medians)),
            _what(change),
        )
    return render(table, width, colour)


def _what(change: Change) -> str:
    """`replaced (IMPROVED -7.1 %)`; of an entry that others joined, by how much its time moved, and what else did."""
    why = change.why
    if change.action == "joined" and change.before_s and change.after_s:
        why = "; ".join(filter(None, (format_percent(change.after_s / change.before_s - 1), why)))
    return change.action + (f" ({printable(why)})" if why else "")


def _value(entry: Entry, seconds: float | None) -> str:
    return printable(value_text(entry)) if seconds is None else format_seconds(seconds)


def _step(before: int, after: int) -> str:
    if not after:
        return ""
    return f"{after}" if before in (0, after) else f"{before} → {after}"


def health_table(healths: Sequence[Health], width: int, colour: bool) -> str:
    """Of each measured entry the time, what stands behind it, how far that lies apart, and how little it finds."""
    rates = [_rate(health) for health in healths]
    units = {rate.rpartition(" ")[2] for rate in rates if rate}
    heading = units.pop() if len(units) == 1 else ""
    drivers = any(health.drivers != healths[0].drivers for health in healths)
    peaks = any(health.entry.peak_bytes is not None for health in healths)
    columns = [("entry", "left"), ("time", "right"), (heading or "rate", "right"), *[("peak", "right")] * peaks,
               ("d/s/p", "right"),
               ("spread %", "right"), ("finds %", "right"), ("newest", "left")]  # fmt: skip
    table = TextTable(*columns, *([("driver", "left")] if drivers else []), ("", "left"))
    for health, rate in zip(healths, rates, strict=True):
        entry = health.entry
        table.add_row(
            printable(entry.label),
            format_seconds(health.time_s),
            rate.removesuffix(heading).strip(),
            *["" if entry.peak_bytes is None else format_memory(entry.peak_bytes)] * peaks,
            f"{health.devices}/{len(entry.sessions)}/{len(entry.medians)}",
            f"{_spread(health.process)} {_spread(health.session)}",
            f"{health.mde * 100:.1f}",
            printable(health.newest[:10]),
            *([printable(", ".join(health.drivers))] if drivers else []),
            "prov." if health.provisional else "",
        )
    return render(table, width, colour)


# What stands under the table, since eighty columns have no room for it.
LEGEND = """\
d/s/p: devices, sessions, processes. spread: between processes, then between
sessions; * is assumed (prior), + joined with what is. finds: the slowdown that
one new process finds 80 times in 100 at the 1 % level. prov.: provisional."""


def _rate(health: Health) -> str:
    if health.rate is None:
        return ""
    return (
        format_flops(health.rate)
        if rate_suffix(health.entry.metric) == "TFLOPS"
        else format_rate(health.rate)
    )


def _spread(spread: Spread) -> str:
    """`0.8`, with a mark where it is no estimate of the entry's own alone."""
    assumed = spread.origin.startswith("prior")
    mark = "*" if assumed else "+" if "prior" in spread.origin else ""
    return f"{spread.value * 100:.1f}{mark}"


def published_lines(entries: Sequence[Entry], at_most: int | None = MOST_OF_ONE) -> list[str]:
    """Published figures by benchmark, those first that gate, those last that cannot be true.

    Args:
        entries: of a file.
        at_most: figures of one benchmark; None is all.
    """
    published = [entry for entry in entries if entry.kind != "measured"]
    groups = grouped(published, lambda entry: label_of(entry.benchmark, {}, entry.name))
    lines = []
    for benchmark, members in groups.items():
        shown = sorted(
            members,
            key=lambda entry: (not entry.gates, bool(entry.implausible), entry.kind != "threshold"),
        )[:at_most]
        figures = counted(len(members), "published figure", "published figures")
        limits = sum(entry.gates for entry in members)
        gating = counted(limits, "limit gates", "limits gate") if limits else "shown only"
        lines.append(printable(f"{benchmark}: {figures}, {gating}"))
        lines += [f"  {_published(entry)}" for entry in shown]
        left = len(members) - len(shown)
        if left:
            hint = f"roofline baseline show … {benchmark}, or --json"
            lines.append(printable(f"  and {left} more (all of them: {hint})"))
    return lines


def _published(entry: Entry) -> str:
    """`memcpy_h2d[512MiB-pinned] on a100-sxm4, 80gb: threshold 24.7 GB/s (payload; median; …), confidence high`."""
    where = "" if entry.hardware == HardwareKey() else f" on {entry.hardware}"
    return printable(f"{entry.label}{where}: ") + figure_text(entry)


def provisional_note(healths: Sequence[Health]) -> str:
    """How many entries are provisional, and for what; empty where none is."""
    healths = [health for health in healths if not health.entry.is_canary]
    some = [health for health in healths if health.provisional]
    if not some:
        return ""
    few = sum(len(health.entry.sessions) < ENOUGH_SESSIONS for health in some)
    blind = sum(health.mde > health.tolerance for health in some)
    reasons = [f"{few} with fewer than {ENOUGH_SESSIONS} sessions"] if few else []
    reasons += [f"{blind} that may miss a slowdown of their tolerance"] if blind else []
    return f"provisional: {len(some)} of {counted(len(healths), 'entry', 'entries')} ({', '.join(reasons)})"


def provisional_lines(healths: Sequence[Health]) -> list[str]:
    """Of each provisional entry, why."""
    return [
        printable(f"{h.entry.label} is provisional: {h.provisional}")
        for h in healths
        if h.provisional
    ]


def renewal_lines(healths: Sequence[Health]) -> list[str]:
    """Return of each renewed entry its creep: since when, in how many renewals, the last five in turn."""
    return [_renewals(health.entry) for health in healths if health.entry.renewals]


def _renewals(entry: Entry) -> str:
    """Return `memcpy_d2d[64MiB]: +4.1 % since 2026-01-01, in 5 renewals (+0.0, +1.0, +2.0, +3.0, +4.1 %)`."""
    accepted = [
        renewal.approved[:10] + f" ({renewal.reason})" * bool(renewal.reason)
        for renewal in entry.renewals
        if renewal.accepted_slower or renewal.reason
    ]
    drifts = [format_percent(renewal.drift) for renewal in since_accepted(entry.renewals)]
    text = f"{entry.label}: "
    if drifts:
        text += f"{drifts[-1]} since {since(entry)}, in {count(len(drifts), 'renewal')}"
        if len(drifts) > 1:
            text += f" ({', '.join(drift.removesuffix(' %') for drift in drifts[-5:])} %)"
    elif accepted:
        text += f"since {since(entry)}"
    return printable(text + (f"; slower accepted {', '.join(accepted)}" if accepted else ""))


def health_as_json(health: Health) -> dict[str, object]:
    """The same for a machine; times in seconds, rates in bytes or FLOP per second, shares of time."""
    entry = health.entry
    return {
        **_named(entry),
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
    """A published figure for a machine."""
    return {
        **_named(entry),
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


def _named(entry: Entry) -> dict[str, object]:
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
    """What a proposal holds; `provisional` says of which entries too little is known."""
    entries, exact = proposal.baseline.entries, proposal.baseline.exact
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
    """What an approval does to each entry, and whether it was done."""
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


def flaw_as_json(path: Path, flaw: Flaw) -> dict[str, object]:
    """What cannot be true, or is not told; a hint is no mistake."""
    return {"file": str(path), **asdict(flaw)}
