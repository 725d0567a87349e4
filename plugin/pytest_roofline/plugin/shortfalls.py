"""The tests and entries that a gate should have compared and did not."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..baselines.run_rows import XFAIL, how_it_ended, reason_of
from ..core.directions import is_of_tool
from ..core.entries import CollectedTest, Entry, ExactEntry
from ..core.keys import canonical
from ..core.rows import Row
from ..core.units import count, encodable, listed, printable
from ..report.messages import compared_of, record_hint_lines
from ..settings.command_line import record_command
from ..settings.options import TIERS
from ..settings.parsing import Options
from .planned import Planned, by_benchmark
from .selection import Selection, finds_all, marks_of

if TYPE_CHECKING:
    from .session import RooflineSession

MOST_NAMED = 3
_MISSING_REMEDY = """\
If a test was skipped or deselected: let the test run, or leave it out with `-k` or `--deselect` in the command.
  If a test was removed or renamed on purpose: `roofline baseline check --prune --apply` removes the entry.
  If a test moved: its entry keeps the old file, marks and tier. Record the test again where it stands now:
    pytest FILE --roofline-record"""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A gap in what a gate should have compared: the observation, and its remedy."""

    text: str
    remedy: str


def replaced_baselines(options: Options) -> list[Shortfall]:
    """Return the shortfall of a gate whose baselines are replaced.

    Settings outside the command replace them. There is none otherwise.
    """
    refused = [printable(str(setting)) for setting in options.elsewhere if setting.refused]
    if not refused:
        return []
    text = f"settings outside the command replace the baselines ({listed(refused, MOST_NAMED)})"
    remedy = "Give --roofline-against in the command itself, or remove these settings."
    return [Shortfall(text, remedy)]


def nothing_compared(state: "RooflineSession | None", why_no_test: str) -> list[Shortfall]:
    """Return the shortfall of a run that compared nothing.

    There is none if it has compared something. `why_no_test` is empty where pytest ran tests.
    """
    if why_no_test:
        remedy = "Remove that option where it is set."
        return [Shortfall(f"nothing was compared, since {why_no_test}", remedy)]
    if state is None:
        remedy = "Check the paths, -k, -m, --roofline-tier and the plugins that collect tests."
        return [Shortfall("nothing was compared, since no test that measures was selected", remedy)]
    # A test that ran out of memory against its baseline is red already.
    if any(row.lost is not None and row.lost.red for row in state.rows):
        return []
    rows = [row for row in state.rows if row.lost is None]
    if compared_of(rows):
        return []
    if not rows:
        reasons = f": {printable('; '.join(state.not_measured))}" if state.not_measured else ""
        text = f"nothing was compared, since 0 of {count(len(state.planned), 'test')} measured anything{reasons}"
        return [Shortfall(text, "Remove the cause, or select other tests.")]
    open_rows = list(dict.fromkeys(_open_text(state, row) for row in rows))
    remedies = [
        listed(open_rows, MOST_NAMED),
        *record_hint_lines(rows, record_command(state.config)),
    ]
    return [
        Shortfall(f"nothing was compared: 0 of {count(len(rows), 'result')}", "\n  ".join(remedies))
    ]


def _open_text(state: "RooflineSession", row: Row) -> str:
    """Return a result's verdict with its reason: `SKIPPED one: Skipped: slow`."""
    reason = row.reason or reason_of(state.outcomes.get(row.test))
    return printable(f"{row.verdict} {row.label}: {reason}".removesuffix(": "))


def shortfalls(
    state: "RooflineSession", missing: Sequence[Entry | ExactEntry], coverage: "Coverage"
) -> list[Shortfall]:
    """Return what a gate lacks.

    These are tests without a number or verdict, and entries that were not measured.

    Args:
        state: the run.
        missing: the entries of the baseline that it did not measure.
        coverage: what it should have measured.
    """
    silent, escaped = list(_silent_tests(state)), list(_escaped_tests(state))
    reasons = [(printable(entry.label), coverage.why(entry)) for entry in missing]
    unmeasured = [f"{label}: {why}" for label, why in reasons if why]
    groups = (
        (
            silent,
            f"{count(len(silent), 'test')} ended without a measurement",
            "Mark a test that only asserts facts with @pytest.mark.roofline(measures=False).",
        ),
        (
            escaped,
            f"{count(len(escaped), 'test')} skipped after a measurement",
            "A skipped test gets no verdict. Move pytest.skip() or pytest.xfail() above roofline.measure(), or leave "
            "the test out with `--deselect` in the command.",
        ),
        (
            unmeasured,
            f"this run did not measure {len(unmeasured)} of the baseline's entries",
            _MISSING_REMEDY,
        ),
    )
    return [
        Shortfall(f"{text} ({listed(names, MOST_NAMED)})", remedy)
        for names, text, remedy in groups
        if names
    ]


def _silent_tests(state: "RooflineSession") -> Iterator[str]:
    """Yield the names of tests that recorded nothing.

    They passed, or never ran.
    """
    recorded = {note.test_id for note in state.run_notes.notes} | {row.test for row in state.rows}
    for test_id, plan in state.planned.items():
        outcome = state.outcomes.get(encodable(test_id))
        passed = outcome is None or outcome.outcome == "passed"
        if passed and plan.marks.measures and encodable(test_id) not in recorded:
            yield printable(plan.item.name)


def _escaped_tests(state: "RooflineSession") -> Iterator[str]:
    """Yield the names of tests that were measured and then skipped.

    A test that calls `pytest.xfail()` in its body counts too; one with the mark `xfail` does not.
    """
    measured = {row.test for row in state.rows}
    for test_id, plan in state.planned.items():
        outcome = state.outcomes.get(encodable(test_id))
        if outcome is None or encodable(test_id) not in measured:
            continue
        word, _ = how_it_ended(outcome)
        called_xfail = word == XFAIL and plan.item.get_closest_marker("xfail") is None
        if outcome.outcome == "skipped" or called_xfail:
            yield printable(plan.item.name)


def missing_entries(state: "RooflineSession") -> list[Entry | ExactEntry]:
    """Return the recorded entries that this run did not measure.

    The entries of a failed test are left out, since the run is red for it already. So are those that need another
    device.
    """
    excused_tests, excused_ids = set(), set()
    for test_id, plan in state.planned.items():
        outcome = state.outcomes.get(encodable(test_id))
        is_red = (
            outcome is not None
            and outcome.outcome == "failed"
            and how_it_ended(outcome)[0] != XFAIL
        )
        if is_red:
            excused_tests.add(_test_of(plan))
            excused_ids.add(encodable(test_id))
    needs_by_test = {_test_of(plan): plan.marks.needs for plan in state.planned.values()}
    elsewhere = {test for test, needs in needs_by_test.items() if state.unmet(needs) is not None}
    return [
        entry
        for kind in state.kinds
        for entry in kind.missing(elsewhere)
        if (entry.benchmark, canonical(entry.parameters)) not in excused_tests
        and not (is_of_tool(entry.benchmark) and entry.test.id in excused_ids)
    ]


def unknown_tests(missing: Sequence[Entry | ExactEntry], coverage: "Coverage") -> str:
    """Return a sentence on entries that name no test.

    Without the test nobody can tell whether the run selects them. The text is empty if there are none.
    """
    labels = [printable(entry.label) for entry in missing if coverage.is_unknown(entry)]
    if not labels:
        return ""
    return (
        f"this run did not measure {len(labels)} of the baseline's entries, and no entry of these names its test "
        f"({listed(labels, MOST_NAMED)}). Record these entries again"
    )


class Coverage:
    """The tests that a run should have measured: its planned ones, and those of entries that it selects."""

    def __init__(self, state: "RooflineSession") -> None:
        """Sort the tests of a run, to explain missing entries."""
        config = state.config
        self._tier = state.options.tier
        self._selection = Selection(config, self._tier)
        self._collected_plans = {_test_of(plan): plan for plan in map(Planned.of, state.collected)}
        self._plans_by_id = {
            encodable(plan.item.nodeid): plan for plan in self._collected_plans.values()
        }
        self._collected_parameters = by_benchmark(self._collected_plans.values())
        self._planned_parameters = by_benchmark(state.planned.values())
        self._outcomes, self._collects_everything = state.outcomes, finds_all(config)
        functions_with_parameters = {
            _function(argument)
            for argument in map(str, config.args)
            if "[" in argument.partition("::")[2]
        }
        selected_by_id = {
            plan.benchmark
            for node_id, plan in state.planned.items()
            if _function(node_id) in functions_with_parameters
        }
        # Benchmarks of which the command selects some tests only: by a node id with parameters, or all under --lf.
        self._partly_selected = (
            set(self._planned_parameters) if config.getoption("lf", False) else selected_by_id
        )

    def why(self, entry: Entry | ExactEntry) -> str:
        """Return why a selected entry was not measured.

        The text is empty if the run does not select that test.
        """
        name, parameters = entry.benchmark, canonical(entry.parameters)
        if is_of_tool(name) and (tool_plan := self._plans_by_id.get(entry.test.id)) is not None:
            # The figures of a tool have its benchmarks, so that only the id tells their test.
            name, parameters = _test_of(tool_plan)
        plan = self._collected_plans.get((name, parameters))
        if parameters in self._planned_parameters.get(name, ()):
            return self._why_silent(plan)
        if self._selection.partial or entry.test.tier not in TIERS:
            # The file of kernels is shared by suites, so a kernel without its test may belong to another suite.
            is_of_suite = isinstance(entry, Entry) or entry.test.tier in TIERS
            return self._why_by_name(name, parameters) if is_of_suite else ""
        if not self._selection.covers(entry.test):
            return ""
        if plan is not None:
            return self._why_left_out(plan)
        return (
            "the test has other parameters now"
            if name in self._collected_parameters
            else "the test no longer exists"
        )

    def is_unknown(self, entry: Entry | ExactEntry) -> bool:
        """Return whether nobody can tell if an entry is selected.

        Such an entry does not name its test.
        """
        if entry.test.tier in TIERS or self._selection.partial or self.why(entry):
            return False
        if entry.benchmark in self._collected_parameters:
            # If no test of the benchmark was selected, the entry is missing for that reason.
            return entry.benchmark in self._planned_parameters
        return isinstance(entry, Entry)

    def _why_by_name(self, name: str, parameters: str) -> str:
        """Return why an entry was missed, by names alone.

        It is for entries that do not name their test. The text is empty if nothing is wrong.
        """
        is_fully_selected = name in self._planned_parameters and name not in self._partly_selected
        if is_fully_selected and parameters not in self._collected_parameters[name]:
            return "the test has other parameters now"
        return (
            "the test no longer exists"
            if name not in self._collected_parameters and self._collects_everything
            else ""
        )

    def _why_silent(self, plan: Planned | None) -> str:
        """Return why a planned test gave no measurement."""
        outcome = None if plan is None else self._outcomes.get(encodable(plan.item.nodeid))
        if outcome is None or outcome.outcome != "skipped":
            return "the test ran without this measurement"
        return f"the test was skipped: {printable(outcome.reason)}"

    def _why_left_out(self, plan: Planned) -> str:
        """Return why a collected test was not run.

        Its entry is selected.
        """
        tier, test_id = plan.marks.tier, encodable(plan.item.nodeid)
        if self._selection.covers(CollectedTest(test_id, tier, marks_of(plan.item))):
            return "a conftest.py or a plugin removed the test"
        if TIERS.index(tier) > TIERS.index(self._tier):
            return f"the test is of tier {tier} now"
        return "-k or -m no longer selects the test"


def _test_of(plan: Planned) -> tuple[str, str]:
    """Return the benchmark and the canonical parameters of a test."""
    return plan.benchmark, canonical(plan.parameters)


def _function(node_id: str) -> str:
    """Return the function of a node id, without file and parameters."""
    return node_id.partition("::")[2].partition("[")[0]
