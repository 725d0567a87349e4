"""What the commands of `roofline baseline` print for a machine. Times in seconds."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..core.entries import Entry
from ..judging.plausible import Flaw
from ..judging.proposals import Proposal
from ..judging.pruning import Unused
from ..judging.renewal import Change
from ..kernel_gate.recording import ExactChange


def proposal_as_json(proposal: Proposal, output: Path, notes: Sequence[str], provisional: str) -> dict[str, Any]:
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
    changes: Sequence[Change], kernels: Sequence[ExactChange], path: Path, exact_path: Path, *, written: bool
) -> dict[str, Any]:
    """What an approval does to each entry, and whether it was done."""
    return {
        "written": written,
        "file": str(path),
        "exact_file": str(exact_path),
        "entries": [_change(change) for change in changes],
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


def _change(change: Change) -> dict[str, Any]:
    before, after = change.before, change.entry
    return {
        "label": after.label,
        "hardware": str(after.hardware),
        "kind": after.kind,
        "action": change.action,
        "why": change.why,
        "before_s": change.before_s,
        "after_s": change.after_s,
        "sessions_before": len(before.sessions) if before else 0,
        "sessions_after": len(after.sessions),
        "processes_before": len(before.medians) if before else 0,
        "processes_after": len(after.medians),
    }


def flaw_as_json(path: Path, flaw: Flaw) -> dict[str, Any]:
    """What cannot be true, or is not told; a hint is no mistake."""
    return {"file": str(path), **asdict(flaw)}


def unused_as_json(path: Path, one: Unused) -> dict[str, Any]:
    """An entry that no test uses."""
    entry = one.entry
    timed = entry if isinstance(entry, Entry) else None
    return {
        "file": str(path),
        "label": entry.label,
        "kind": timed.kind if timed else "exact",
        "hardware": str(timed.hardware) if timed else None,
        "target": None if isinstance(entry, Entry) else entry.target,
        "benchmark_known": one.benchmark_known,
    }
