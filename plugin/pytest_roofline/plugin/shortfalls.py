"""What a gate did not compare and should have: tests and entries that slipped through."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..baselines.files import key_of_entry
from ..baselines.run_rows import XFAIL, how_it_ended
from ..core.entries import Entry
from ..core.keys import canonical
from ..core.units import count, encodable, listed, printable
from ..hardware import family_of
from ..report.messages import compared_of, recording
from .planned import Planned, by_benchmark, finds_all
from .session import RooflineSession
from .settings import Options

MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What a gate did not compare and should have: what was seen, and what to do."""

    text: str
    remedy: str


def replaced_baselines(options: Options) -> list[Shortfall]:
    """That something outside the command replaces the baselines that the gate stands on."""
    refused = [printable(str(setting)) for setting in options.elsewhere if setting.refused]
    if not refused:
        return []
    text = f"the baselines are replaced outside the command ({listed(refused, MOST_NAMED)})"
    return [Shortfall(text, "Give --roofline-against in the command itself, or take it out there.")]


def nothing_compared(state: RooflineSession | None, looks: str) -> list[Shortfall]:
    """That a run has compared nothing at all, where it has not; `looks` says why pytest ran no test."""
    if looks:
        return [Shortfall(f"nothing was compared, since {looks}", "Take it out there.")]
    if state is None:
        remedy = "Expected one at least: look at the paths, -k, -m and --roofline-tier, and at what collects them."
        return [Shortfall("nothing was compared, since no test that measures was selected", remedy)]
    rows = state.rows
    if compared_of(rows) or any(one.red for one in state.exhausted.found):
        return []
    if not rows:
        reasons = f": {printable('; '.join(state.not_measured))}" if state.not_measured else ""
        text = f"nothing was compared, since 0 of {count(len(state.planned), 'test')} measured anything{reasons}"
        return [Shortfall(text, "Mend what kept them from measuring, or select others.")]
    run = state.run_name if state.writer.path is not None else ""
    open_rows = list(
        dict.fromkeys(printable(f"{row.verdict} {row.label}: {row.reason}") for row in rows)
    )
    told = [
        listed(open_rows, MOST_NAMED),
        *recording(rows, run, family_of(state.under_test.environment.device)),
    ]
    return [
        Shortfall(f"nothing was compared: 0 of {count(len(rows), 'result')}", "\n  ".join(told))
    ]


def shortfalls(state: RooflineSession) -> list[Shortfall]:
    """What slipped through: tests that gave no number, or no verdict on it, and entries that nobody measured."""
    silent, escaped = list(_silent(state)), list(_escaped(state))
    missing = [printable(f"{entry.label}: {why}") for entry, why in _unmeasured_entries(state)]
    found = (
        (
            silent,
            f"{count(len(silent), 'test')} ended without a measurement",
            "A test that only asserts facts says so: @pytest.mark.roofline(measures=False).",
        ),
        (
            escaped,
            f"{count(len(escaped), 'test')} skipped after a measurement",
            "Skip before measuring: what was measured had no verdict.",
        ),
        (
            missing,
            f"{len(missing)} of the baseline's entries not measured",
            "Where a test was removed or renamed on purpose: `roofline baseline prune --apply` removes the entry.",
        ),
    )
    return [
        Shortfall(f"{text} ({listed(names, MOST_NAMED)})", remedy)
        for names, text, remedy in found
        if names
    ]


def _silent(state: RooflineSession) -> Iterator[str]:
    """Tests that passed, or never ran, and recorded nothing at all."""
    recorded = {one.test_id for one in (*state.noted.notes, *state.exhausted.found)} | {
        row.test for row in state.rows
    }
    for test_id, plan in state.planned.items():
        ended = state.outcomes.get(encodable(test_id))
        passed = ended is None or ended.outcome == "passed"
        if passed and plan.marks.measures and encodable(test_id) not in recorded:
            yield printable(plan.item.name)


def _escaped(state: RooflineSession) -> Iterator[str]:
    """Tests that were measured and then skipped, which is also what `pytest.xfail()` does in a test's body."""
    measured = {row.test for row in state.rows}
    for test_id, plan in state.planned.items():
        ended = state.outcomes.get(encodable(test_id))
        if ended is None or encodable(test_id) not in measured:
            continue
        by_call = how_it_ended(ended)[0] == XFAIL and plan.item.get_closest_marker("xfail") is None
        if ended.outcome == "skipped" or by_call:
            yield printable(plan.item.name)


def _unmeasured_entries(state: RooflineSession) -> Iterator[tuple[Entry, str]]:
    """The entries of the baseline that this run covers and did not measure, but for those of a red test, each with why.

    A saved run in place of a baseline may hold whatever somebody selected then.
    """
    excused = set()
    for test_id, plan in state.planned.items():
        ended = state.outcomes.get(encodable(test_id))
        red = ended is not None and ended.outcome == "failed" and how_it_ended(ended)[0] != XFAIL
        if red:
            excused.add((plan.benchmark, canonical(plan.parameters)))
    keys = [row.key for row in state.timed.rows if row.key is not None]
    hardware = {state.under_test.hardware, *(key.hardware for key in keys)}
    measured, why_not = {key.identity for key in keys}, _selection(state)
    for entry in state.under_test.comparator.entries:
        ours = entry.kind == "measured" and entry.hardware in hardware and not entry.is_canary
        if ours and (entry.benchmark, canonical(entry.parameters)) not in excused:
            why = why_not(entry.benchmark, canonical(entry.parameters))
            if why and key_of_entry(entry).identity not in measured:
                yield entry, why


def _selection(state: RooflineSession) -> Callable[[str, str], str]:
    """Why a run that should have measured a test of these parameters has not; empty where it need not have."""
    config = state.config
    found, taken = (
        by_benchmark(map(Planned.of, state.collected)),
        by_benchmark(state.planned.values()),
    )
    functions = {
        _function(argument)
        for argument in map(str, config.args)
        if "[" in argument.partition("::")[2]
    }
    alone = {
        plan.benchmark for test_id, plan in state.planned.items() if _function(test_id) in functions
    }
    # Under --lf pytest does not even look at what did not fail.
    parts = set(taken) if config.getoption("lf", False) else alone
    whole = finds_all(config)

    def why(name: str, parameters: str) -> str:
        if parameters in taken.get(name, ()):
            return "its test did not measure it"
        if name in taken and name not in parts and parameters not in found[name]:
            return "its test has other parameters now"
        return "there is no such test" if name not in found and whole else ""

    return why


def _function(node_id: str) -> str:
    return node_id.partition("::")[2].partition("[")[0]
