"""Which of the collected tests will measure: tiers, collisions, and what this device cannot do."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ..baselines.files import BaselineFolders
from ..stats.siblings import FEWEST
from .launcher import unmet
from .options import FIXTURE, TIERS
from .planned import Planned, benchmark_name, parameters_of, refuse_collisions
from .session import RooflineSession
from .settings import Marks, parse_options, read_marks
from .shadow import require

if TYPE_CHECKING:
    from ..baselines.files import Entries


def measures(item: pytest.Item) -> bool:
    """Whether a test uses the fixture."""
    return FIXTURE in getattr(item, "fixturenames", ())


def plan(items: Sequence[pytest.Item]) -> dict[str, Planned]:
    """The measuring tests by node id."""
    return {item.nodeid: Planned(item, benchmark_name(item), parameters_of(item), read_marks(item)) for item in items}


class PlanWriter:
    """Lists every test that measures, before any is deselected, for `roofline baseline prune`: a JSON line each."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Write the list."""
        plans = plan([item for item in items if measures(item)]).values()
        lines = [json.dumps({"benchmark": one.benchmark, "parameters": one.parameters}) for one in plans]
        self._path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def select(config: pytest.Config, items: list[pytest.Item], marked: Mapping[str, Marks]) -> None:
    """Refuse collisions and leave out, in place, the tests of a tier above the one asked for.

    A test that a threshold names is kept, and so is one that was asked for by its node id.

    Raises:
        pytest.UsageError: two tests share a name, or a baseline file cannot be used.
    """
    measuring = plan([item for item in items if measures(item)])
    refuse_collisions(list(measuring.values()))
    options = parse_options(config)
    above = TIERS[TIERS.index(options.tier) + 1 :]
    candidates = [item for item in items if item.nodeid in marked and marked[item.nodeid].tier in above]
    if not candidates:
        return
    thresholds = _read(options.baselines)
    left_out = {
        id(item)
        for item in candidates
        if not _asked_for(config, item) and not _has_threshold(measuring.get(item.nodeid), thresholds)
    }
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if id(item) in left_out])
        items[:] = [item for item in items if id(item) not in left_out]


def _read(folders: Sequence[Path]) -> "Entries":
    from ..core.errors import RooflineError

    try:
        return BaselineFolders(folders).everything()
    except RooflineError as error:
        raise pytest.UsageError(str(error)) from None


def _asked_for(config: pytest.Config, item: pytest.Item) -> bool:
    """Whether the command line names this very test, parameters included."""
    function = item.nodeid.partition("::")[2]
    return "[" in function and any(
        "::" in argument and argument.partition("::")[2] == function for argument in map(str, config.args)
    )


def _has_threshold(planned: Planned | None, entries: "Entries") -> bool:
    if planned is None:
        return False
    return any(
        entry.gates and entry.kind == "threshold" and entry.parameters and entry.speaks_of(planned.parameters)
        for name in entries.names(planned.benchmark)
        for entry in entries.of(planned.benchmark, name)
    )


def skip_for_device(session: RooflineSession, item: pytest.Item) -> None:
    """Skip a test that needs another kind of device than the one that is measured."""
    needs = session.planned[item.nodeid].marks.needs
    reason = unmet_need(session, needs)
    if reason is None:
        return
    # Asking for the CPU's own test on a GPU is a matter of choice, not a lack of hardware.
    if needs == "accelerator":
        require(item, session.options, reason)
    if item.config.pluginmanager.hasplugin("skipping"):
        # Skipped by a mark, the report names the test's own line and not this one.
        item.add_marker(pytest.mark.skip(reason=reason))
    else:
        pytest.skip(reason)


def unmet_need(session: RooflineSession, needs: str | None) -> str | None:
    """Why a test that needs a kind of device is not for this one; None where it is."""
    if needs == "siblings":
        from ..engine.conditions import siblings_of

        count = len(siblings_of(session.under_test.device))
        return f"needs {FEWEST} visible GPUs of one product, found {count}" if count < FEWEST else None
    return unmet(needs, session.under_test.environment.device.type)
