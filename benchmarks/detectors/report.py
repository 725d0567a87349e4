"""What one run of `detector_quality` counted: as a page, and for machines."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .conditions import DEVICES, PAIRED, SESSIONS, Condition
from .criteria import Finding, device_findings, findings, paired_findings, session_findings
from .fixed import FIVE_NAME, FIVE_ORIGIN
from .page import closing, condition_table, filled, rules_table, verdict_table
from .peers import available
from .suites import FEWEST_NEW, Source
from .tally import Tallies, row

# The simulated data set that the power figures are about.
TYPICAL = "mix"
INTRO = """# How good the verdicts are

Made by `python benchmarks/detector_quality.py`: every number of this page, none of it by hand. A suite is drawn, its
tests with a baseline of {baseline} processes each; then new processes come in one at a time, at most {looks}, and the
rules say what they see: of unchanged code, and of code that is slower by a given share. {draws} suites of each data
set were drawn; an eighth of them was also slowed and put before the rules of other tools. Seed {seed}.

All shares are percentages, with Clopper and Pearson's 95 % interval in brackets. "All slower" slows every test of the
suite; "one slower" a single test of an otherwise unchanged suite, for each test in turn, the p of the others as they
were, look by look. "Suites" are those with at least one unchanged test called slower.

The rule of this plugin is its own code: `judge` on every test still undecided after each new process, then `settle`
over the whole suite; a test of which it says that more processes would hardly decide is given up, as in a run, and
stays INCONCLUSIVE. Processes are exchangeable here: any of them could have run in any session, so they are handed
over as one session, with a prior that has nothing between sessions. How far processes lie apart is borrowed among the
tests of the suite, as in a run. The other rules:"""
SIMULATED = """\
Suites of 200 tests, all drawn afresh each time; 20 samples a process, autocorrelated by 0.06, and so wide that
processes lie 3.5 times as far apart as the standard error inside one of them says (the median of a large public
corpus)."""
RECORDED = """\
Drawn from recorded processes without replacement: {baseline} as the baseline, up to {looks} others as new. Draws
share processes, so that the intervals tell of the draws and not of other machines. A benchmark with fewer than
{looks} others has as many looks as it has others."""
ANOTHER_DEVICE = """\
The baseline is of one device; twenty others run the same unchanged suite of 100 tests (σ_p 1 %) against it, each
known by its own UUID. Twenty suites share a baseline, which the intervals do not know. The plugin assumes 4 % between
devices, whatever the truth."""
SAME_DEVICE = """\
The baseline holds 15 processes of the very device and 15 of another one, about 4 % away; only those of the same
device are compared."""
ANOTHER_SESSION = """\
Sessions differ, in each test by another offset, and the run is a session that the baseline does not hold; σ_p is 1 %.
σ_s is what the plugin estimates from the baseline, with its prior as it stands. What lies between sessions cannot be
averaged away by more processes of one."""
CONDITIONS: tuple[tuple[str, str, tuple[Condition, ...]], ...] = (
    ("Another device", ANOTHER_DEVICE, DEVICES),
    ("The same device", SAME_DEVICE, PAIRED),
    ("Another session", ANOTHER_SESSION, SESSIONS),
)


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was counted.

    Args:
        sources: the data sets.
        data: what each rule said on them, by name.
        conditions: what this plugin said under other conditions, by name.
        draws: suites drawn of each data set, by name.
    """

    sources: Sequence[Source]
    data: dict[str, Tallies]
    conditions: dict[str, Tallies]
    draws: dict[str, int]
    baseline: int
    looks: int
    tolerances: tuple[float, ...]
    seed: int

    @property
    def findings(self) -> list[Finding]:
        """Which criteria hold where."""
        typical = {source.name for source in self.sources if source.name == TYPICAL or not is_simulated(source)}
        return [
            *findings(self.data, typical),
            *device_findings(self._under(DEVICES)),
            *paired_findings(self._under(PAIRED)),
            *session_findings(self._under(SESSIONS)),
        ]

    def _under(self, conditions: Sequence[Condition]) -> dict[str, Tallies]:
        return {one.name: self.conditions[one.name] for one in conditions if one.name in self.conditions}

    def page(self) -> str:
        """Markdown."""
        parts = [*self._intro()]
        for number, source in enumerate(self.sources):
            counted = self.data[source.name]
            parts += [f"## {source.name}", f"{source.description[0].upper()}{source.description[1:]}."]
            parts += self._note(source, first=number == 0)
            parts += [rules_table(counted), "What this plugin says:", verdict_table(counted)]
        for title, text, group in CONDITIONS:
            under = self._under(group)
            parts += [f"## {title}", text, condition_table(under)] if under else []
        parts += ["## What was to be reached", "Figures that do not reach it are bold.", closing(self.findings)]
        return "\n\n".join(parts) + "\n"

    def plain(self) -> dict[str, Any]:
        """For machines: every count, and the options behind it."""
        unusable = {source.name: list(source.unusable) for source in self.sources}
        return {
            "baseline_processes": self.baseline,
            "new_max": self.looks,
            "tolerances": self.tolerances,
            "seed": self.seed,
            "draws": self.draws,
            "unusable": unusable,
            "rows": [
                row(name, cell, tally, self.seed, unusable.get(name, ()))
                for name, tallies in {**self.data, **self.conditions}.items()
                for cell, tally in tallies.items()
            ],
            "criteria": [finding.row() for finding in self.findings],
        }

    def json(self) -> str:
        """The same as text."""
        return json.dumps(self.plain(), indent=1, ensure_ascii=False)

    def _intro(self) -> list[str]:
        """Title, text, and the other rules with where each was had from."""
        rules = [*((peer.name, peer.origin) for peer in available()), (FIVE_NAME, FIVE_ORIGIN)]
        counts = " or ".join(str(count) for count in sorted(set(self.draws.values())))
        text = INTRO.format(baseline=self.baseline, looks=self.looks, seed=self.seed, draws=counts)
        return [filled(text), "\n".join(f"* **{name}**: {origin}." for name, origin in rules)]

    def _note(self, source: Source, *, first: bool) -> list[str]:
        if is_simulated(source):
            return [SIMULATED] if first else []
        lines = [filled(RECORDED.format(baseline=self.baseline, looks=self.looks))]
        if source.unusable:
            needed = self.baseline + FEWEST_NEW
            lines.append(f"Not usable, with fewer than {needed} processes: {', '.join(source.unusable)}.")
        return lines


def is_simulated(source: Source) -> bool:
    """Whether its processes never ran."""
    return source.description.startswith("simulated")
