"""Whether a baseline file is sane: what is in it could have been measured, and says where it comes from."""

import datetime
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ..core.entries import RESOURCES, Baseline, Entry, ExactEntry
from ..core.facts import HardwareKey
from ..core.resources import registers_of
from ..core.units import format_seconds, moment
from ..core.work import RATE_SUFFIXES, rate_suffix
from ..hardware import product_like
from ..kernel_gate.targets import above_limit
from .plausible import Flaw, absurd_entry, absurd_limit

# Processes of one entry lie a few percent apart, on a bad CPU a factor of two.
MOST_APART = 3.0
# The family, and so the file, of published figures of hardware that its source does not name.
UNNAMED = "unnamed"
# Clocks of two hosts may differ by so much.
CLOCKS_APART = datetime.timedelta(hours=1)


def check(path: Path, baseline: Baseline, now: datetime.datetime) -> list[Flaw]:
    """Everything that is wrong with a baseline file, in the order of its entries.

    Args:
        now: with a time zone; sessions must not be later.
    """
    flaws = []
    if path.stem != baseline.family:
        name = f"{baseline.family}.json"
        flaws.append(
            Flaw(f"the file is {path.name}", name, "approve it, or rename it: files are found by name", hint=True)
        )
    for entry in baseline.entries:
        looks = _measured(entry, now) if entry.kind == "measured" else _published(entry)
        flaws += [replace(flaw, entry=entry.label) for flaw in (*_hardware(entry, baseline.family), *looks)]
    for exact in baseline.exact:
        flaws += [replace(flaw, entry=exact.label) for flaw in _exact(exact, baseline.family)]
    return flaws


def _exact(entry: ExactEntry, family: str) -> Iterator[Flaw]:
    if family != RESOURCES:
        yield Flaw(f"an exact entry in {family}.json", f"it in {RESOURCES}.json", "approve it, or move it there")
    if not any(text.strip() for text in entry.provenance.values()) or not entry.compiler:
        yield Flaw("no provenance", "its run and its compiler", "record it anew with `roofline baseline propose`")
    impossible = above_limit(entry.target, entry.figures)
    if impossible:
        yield Flaw(impossible, "what a launch can give", "record it anew; nobody can have run this")
    if registers_of(entry.figures) is None:
        yield Flaw("no registers", "those of every target", "record it anew with `roofline baseline propose`")


def _hardware(entry: Entry, family: str) -> Iterator[Flaw]:
    belongs = family_of_key(entry.hardware)
    if belongs is not None and belongs != family:
        yield Flaw(f"hardware {entry.hardware}", f"hardware of family {family}", f"move it to {belongs}.json")


def family_of_key(hardware: HardwareKey) -> str | None:
    """The family whose file holds this hardware; None where the entry leaves its product open."""
    if "-cores" in (hardware.partition or ""):
        return "cpu"
    if (hardware.product or "").startswith(f"{UNNAMED}-"):
        return UNNAMED
    known = product_like(hardware.product, None)
    return known.family if known is not None else hardware.product


def _measured(entry: Entry, now: datetime.datetime) -> Iterator[Flaw]:
    if not any(text.strip() for text in entry.provenance.values()):
        yield Flaw("no provenance", "what it was measured with", "record it anew with `roofline baseline propose`")
    if rate_suffix(entry.metric) is None and entry.metric != "time_s":
        yield Flaw(
            f"metric {entry.metric!r}",
            f"a name that ends in {', '.join(RATE_SUFFIXES)}, or time_s",
            "say in the metric how bytes were counted",
        )
    low, high = min(entry.medians), max(entry.medians)
    if high > MOST_APART * low:
        yield Flaw(
            f"processes from {format_seconds(low)} to {format_seconds(high)}",
            f"at most {MOST_APART:g} times as long",
            "find the odd session, and propose without its run",
        )
    yield from _sessions(entry, now)
    flaw = absurd_entry(entry)
    if flaw is not None:
        yield flaw


def _sessions(entry: Entry, now: datetime.datetime) -> Iterator[Flaw]:
    for run_id, count in Counter(session.run_id for session in entry.sessions).items():
        if count > 1:
            yield Flaw(f"run {run_id} {count} times", "every run once", "remove all but one of its sessions")
    for session in entry.sessions:
        time = moment(session.started)
        begun = f"session {session.run_id} begun {session.started!r}"
        # A file that was imported may tell no date.
        if session.started and time is None:
            yield Flaw(begun, "a date in ISO 8601", "write down when it was, or record it anew")
        elif time is not None and time > now + CLOCKS_APART:
            yield Flaw(
                f"{begun}, in the future", f"before {now:%Y-%m-%d %H:%M}", "set that clock right, record it anew"
            )


def _published(entry: Entry) -> Iterator[Flaw]:
    needed = ("unit", "source") if entry.kind == "floor" else ("unit", "convention", "source")
    missing = [name for name in needed if not str(getattr(entry, name)).strip()]
    if missing:
        yield Flaw(
            f"no {' and no '.join(missing)}", f"{', '.join(needed[:-1])} and {needed[-1]}", "say what the figure means"
        )
    yield from _limit(entry) if entry.kind in ("threshold", "floor") else _shown(entry)


def _limit(entry: Entry) -> Iterator[Flaw]:
    """A limit fails tests on whatever its hardware matches; so that is one product, whole, or one part of it."""
    open_fields = [name for name in ("product", "memory", "partition") if getattr(entry.hardware, name) is None]
    if open_fields:
        yield Flaw(
            f"a limit for any {' and any '.join(open_fields)}",
            "the exact variant, such as product h100-sxm5, memory 80gb, partition none",
            "name it in `hardware`, or make it a reference, which only shows",
        )
    if not any(text.strip() for text in entry.provenance.values()):
        yield Flaw("no provenance", "who wrote the limit down, and when", "say it in `provenance`", hint=True)
    flaw = absurd_limit(entry) if entry.kind == "threshold" else None
    if flaw is not None:
        yield flaw


def _shown(entry: Entry) -> Iterator[Flaw]:
    # A note that says why it is open is answer enough.
    if entry.hardware.product is None and not entry.note:
        yield Flaw(
            "no product",
            "the exact variant, such as h100-sxm5",
            "name it in `hardware`, unless it holds for every variant",
            hint=True,
        )
