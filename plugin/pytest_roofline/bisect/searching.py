"""The course of a search: the ends, the steps, and the confirmation."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..ab.results import SidesResults
from ..ab.sides import PreparedSide
from ..baselines.runs import read_run
from ..core.errors import BadInput
from ..core.verdicts import Kind
from ..hardware import key_of
from .differences import SettingGroup
from .environments import Environments
from .measuring import Bench, BudgetSpent, any_lead, choose_lead, observations_of
from .search import SURE, SURER, Gap, Place, find_guilty, place_steps
from .state import BisectState
from .telling import Culprit, change_text, comparison_command, nothing_text, paragraph


@dataclass(frozen=True, slots=True)
class SearchEnd:
    """The end of a search, with its exit status. Without a culprit the sentence says why."""

    culprits: tuple[Culprit, ...]
    sentence: str

    @property
    def status(self) -> int:
        """The exit status: 0 if all steps are confirmed, else 2."""
        confirmed = [culprit.verdict == Kind.REGRESSED for culprit in self.culprits]
        return 0 if confirmed and all(confirmed) else 2


class Search:
    """A search, as far as it got.

    Args:
        state: of a new search, or of one that was interrupted.
        folder: of the runs, `.roofline`.
        groups: the differences of two runs; none for versions and commits.
        tell: prints a line on the progress.
        deadline_s: by the monotonic clock.
    """

    def __init__(
        self,
        state: BisectState,
        folder: Path,
        groups: Sequence[SettingGroup],
        tell: Callable[[str], None],
        deadline_s: float,
    ) -> None:
        """Prepare a search; nothing is measured yet.

        Args:
            state: of the search, with the names of the candidates.
            folder: of runs, which keeps the state.
            groups: the differences between two runs; empty for versions and commits.
            tell: prints a line.
            deadline_s: of the monotonic clock; no process starts after it.
        """
        # A version or commit is its number in the row. Of two runs, a candidate is the numbers of the differences that
        # it has: the good end has none of them, the bad end all.
        self._row: list[Place] = [(number,) for number in range(len(state.row))]
        everything = tuple(range(len(state.row)))
        ends: tuple[Place, Place] = ((), everything) if groups else (self._row[0], self._row[-1])
        self._groups, self._tell, self._environments = groups, tell, Environments(state, groups)
        self.bench = Bench(state, folder, ends, self._environments, tell, deadline_s)

    def run(self) -> SearchEnd:
        """Search: measure the ends, then candidates between them, and last the two beside each step.

        A step that the comparison does not confirm is searched once more, until it has a higher chance.
        """
        search_end = SearchEnd((), "")
        for sure in (SURE, SURER):
            try:
                with self._ends() as nothing:
                    if nothing:
                        return SearchEnd((), nothing)
                    steps = self._steps(sure)
                culprits = tuple(self._confirm(*step) for step in steps)
            except BudgetSpent:
                return SearchEnd((), f"--budget is spent: {self.bench.left}")
            sentences = (paragraph(self.bench.state, culprit) for culprit in culprits)
            search_end = SearchEnd(culprits, "\n\n".join(sentences))
            # Exact figures would say the same again.
            lead = self.bench.state.lead
            if search_end.status == 0 or (lead is not None and lead.is_exact):
                break
        return search_end

    @contextlib.contextmanager
    def _ends(self) -> Iterator[str]:
        """Make the sides of both ends, and compare them if the search is new. The sides are removed afterwards.

        Yield why there is nothing to bisect; empty if there is something.
        """
        bench = self.bench
        with self._environments.sides(dict(zip("AB", bench.ends, strict=True))) as sides:
            is_new = bench.state.lead is None
            nothing = self._compare_ends(sides) if is_new else ""
            # The comparison of a new search has filled the caches of both ends.
            with bench.using_ends(sides, warm=is_new):
                yield nothing

    def _compare_ends(self, sides: Mapping[str, PreparedSide]) -> str:
        """Compare both ends, and keep the result that the search follows.

        Return why there is none; empty if there is one.
        """
        bench = self.bench
        report, results = bench.compare("ends", sides, any_lead)
        self._require_hardware(results)
        lead = choose_lead(report, results)
        if lead is None:
            # A comparison that the budget cut short does not show that the ends are alike.
            bench.require_time()
            return nothing_text(report)
        # An exact figure of the ends is in the lead itself.
        observations = () if lead.is_exact else observations_of(results, lead, bench.ends)
        # Blocks count from 0. Without observations none has run.
        blocks = 1 + max((observation.block for observation in observations), default=-1)
        bench.keep(lead=lead, observations=observations, blocks=blocks)
        self._tell(f"{lead.label} is {lead.word} at the bad end: {lead.change}")
        return ""

    def _require_hardware(self, results: SidesResults) -> None:
        """Raise BadInput if a run is of other hardware than this machine.

        It is the run whose differences are searched.
        """
        here = results.environment("A")
        if self._groups and here is not None:
            # Both runs are of one hardware.
            path = Path(self.bench.state.runs[0])
            hardware_of_run, hardware_here = key_of(read_run(path).environment), key_of(here)
            if hardware_of_run != hardware_here:
                raise BadInput(
                    f"{path} is a run of {hardware_of_run}, and this machine is {hardware_here}; "
                    "expected a run of the hardware of this machine"
                )

    def _steps(self, sure: float) -> list[tuple[Culprit, Place, Place]]:
        """Measure candidates until each step lies in its place with the chance `sure`.

        Return each step with the last candidate ahead of it, and the first one behind it.
        """
        if self._groups:
            return [self._step_of_differences(sure)]
        return [self._step_in_row(gap) for gap in place_steps(self.bench, self._row, sure)]

    def _step_in_row(self, gap: Gap) -> tuple[Culprit, Place, Place]:
        """Return the step in a gap between two versions or commits.

        No comparison has confirmed it yet.
        """
        row, names = self._row, self._environments.names_in(self._row)
        reasons = {candidate.place: candidate.reason for candidate in self.bench.state.broken}
        between = range(gap.good + 1, gap.bad)
        culprit = Culprit(
            good=names[gap.good],
            bad=names[gap.bad],
            chance=gap.chance,
            # All candidates that lie in the gap are broken.
            broken=tuple(f"{names[index]} ({reasons[row[index]]})" for index in between),
        )
        return culprit, row[gap.good], row[gap.bad]

    def _step_of_differences(self, sure: float) -> tuple[Culprit, Place, Place]:
        """Measure until the guilty differences are certain. Return the step from none of them to all of them."""
        parts = find_guilty(self.bench, len(self._row), sure)
        guilty = tuple(sorted(number for part, _ in parts for number in part))
        # Of a part with several differences it is not known which of them is guilty.
        texts = [
            " or ".join(self._environments.name_of((number,)) for number in part)
            for part, _ in parts
        ]
        culprit = Culprit(
            good=self._environments.name_of(()),
            bad=" and ".join(texts),
            chance=min(chance for _, chance in parts),
        )
        return culprit, (), guilty

    def _confirm(self, culprit: Culprit, good_place: Place, bad_place: Place) -> Culprit:
        """Return a step with the verdict on it.

        The candidates before and after it are compared by `roofline ab`.
        """
        state, lead = self.bench.state, self.bench.state.lead
        assert lead is not None
        # The number of blocks keeps this comparison apart from an earlier one that was not confirmed.
        name = f"confirm-{state.blocks}-{'-'.join(map(str, bad_place))}"
        with self._environments.sides({"A": good_place, "B": bad_place}) as sides:
            report, _ = self.bench.compare(name, sides)
        row = next((row for row in report.rows if row.label == lead.label), None)
        return replace(
            culprit,
            verdict=row.verdict if row is not None else "",
            change=change_text(row) if row is not None else "",
            # No word of `roofline ab` makes a side from differences of two runs.
            command="" if self._groups else comparison_command(state, culprit.good, culprit.bad),
        )
