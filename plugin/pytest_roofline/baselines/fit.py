"""The results of one run that are sound enough for the baselines of its hardware.

Every test is proposed alone, so that a test that is refused does not take the entries of others with it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..core.entries import Entry, ExactEntry
from ..core.errors import BadInput
from ..core.groups import group_by
from ..core.records import Measurement
from ..core.resources import Resources
from ..core.samples import SIBLINGS
from ..core.units import listed, printable
from ..hardware import key_of
from ..stats.analyses import ENOUGH_KNOWN
from .exact_proposals import propose_exact
from .plausible import family_of_key
from .proposals import NothingFit, Proposal, propose
from .runs import Run

# At most so many reasons are given for a test.
MOST_REASONS = 2


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason why a result of a test does not go into the baselines."""

    test_id: str
    why: str


# The results of a run for baselines: entries by the family of their file, exact ones, and refusals of all others.
Fit = tuple[dict[str, tuple[Entry, ...]], tuple[ExactEntry, ...], tuple[Refusal, ...]]


def fewest_of(rounds: int) -> int:
    """Return the sound processes that an entry needs, of `rounds`."""
    return max(ENOUGH_KNOWN, math.ceil(rounds / 2))


def fit_of(run: Run, fewest: int) -> Fit:
    """Return the results of a run that are fit for baselines.

    A refusal of every other test comes with them. Each test is proposed alone, with the canaries of its device beside
    it.

    Args:
        run: with all its processes. Results that `propose` leaves out are not fit; those of siblings are passed over.
        fewest: how many sound processes an entry needs.
    """
    fit: dict[str, dict[str, Entry]] = {}
    refusals: list[Refusal] = []
    tested = [record for record in run.tested if SIBLINGS not in record.samples.labels]
    canaries = [record for record in run.measurements if record.key.is_canary]
    for measurements in group_by(tested, lambda record: record.key.identity).values():
        # All measurements of a key are of one test, on one hardware.
        first = measurements[0]
        alone = first.key.hardware.alone
        canaries_of_device = [record for record in canaries if record.key.hardware.alone == alone]
        proposal, reason = _proposal_of(run, [*measurements, *canaries_of_device])
        if proposal is not None and len(_entry_of(proposal).medians) < fewest:
            reason = _too_few(measurements, proposal, fewest, reason)
            proposal = None
        if proposal is None:
            refusals.append(Refusal(first.test_id, reason))
            continue
        fit.setdefault(_family(run, proposal), {}).update(
            {
                entry.identity: entry
                for entry in proposal.baseline.entries
                if len(entry.medians) >= fewest
            }
        )
    exact, unfit = _exact_of(run)
    entries = {family: tuple(members.values()) for family, members in fit.items()}
    return entries, exact, (*refusals, *unfit)


def _proposal_of(run: Run, measurements: Sequence[Measurement]) -> tuple[Proposal | None, str]:
    """Return the proposal for one key and its canaries, and a reason.

    The reason tells why some or all processes are left out. Without a proposal all are.
    """
    try:
        part = run.with_lines(Measurement, measurements).with_lines(Resources, ())
        proposal = propose([part], everything=True)
    except NothingFit as error:
        return None, listed(error.reasons, MOST_REASONS, "; ")
    except BadInput as error:
        return None, str(error)
    return proposal, listed(proposal.left_out, MOST_REASONS, "; ")


def _entry_of(proposal: Proposal) -> Entry:
    """Return the entry of the test itself, not of a canary."""
    return next(entry for entry in proposal.baseline.entries if not entry.is_canary)


def _too_few(
    measurements: Sequence[Measurement], proposal: Proposal, fewest: int, reason: str
) -> str:
    """Return the refusal of a test with too few sound processes."""
    entry, processes = _entry_of(proposal), len({record.process for record in measurements})
    label, sound = printable(entry.label), len(entry.medians)
    text = f"{label}: {sound} of {processes} processes were sound; expected at least {fewest}"
    return f"{text} ({reason})" if reason else text


def _family(run: Run, proposal: Proposal) -> str:
    """Return the family whose file holds a proposal.

    It is that of the run's device, unless the test ran on other hardware, as ranks may.
    """
    hardware = _entry_of(proposal).hardware
    if hardware.alone == key_of(run.header.environment).alone:
        return proposal.baseline.family
    return family_of_key(hardware) or proposal.baseline.family


def _exact_of(run: Run) -> tuple[tuple[ExactEntry, ...], list[Refusal]]:
    """Return the entries of compiled kernels, and refusals of the others."""
    entries: list[ExactEntry] = []
    refusals = []
    for resources in group_by(run.resources, lambda kernel: kernel.key.identity).values():
        exact, left_out = propose_exact([run.with_lines(Resources, resources)])
        entries += exact
        if not exact:
            refusals.append(Refusal(resources[0].test_id, listed(left_out, MOST_REASONS, "; ")))
    return tuple(entries), refusals
