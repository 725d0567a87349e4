"""The bridge to pytest-benchmark, which gets the times of the device by its own documented means.

Its table, its files and its comparisons then work on device times. One round is one sample: its `timer` is a list of
stamps that begin at zero, so that the difference of two is the sample itself, to the last bit.
"""

import os
import shlex
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from ..core.features import require
from ..core.units import encodable
from ..core.verdicts import Kind
from ..settings.options import FIXTURE

if TYPE_CHECKING:
    from ..core.records import Measurement
    from ..core.rows import Row
    from .session import RooflineSession

# The name of pytest-benchmark's fixture and marker, the name of its session, and the beginning of its options.
THEIRS = "benchmark"
THEIR_SESSION = "pytest-benchmark"
THEIR_OPTIONS = "--benchmark-"
# The variable whose options pytest adds to every command line.
ADDOPTS_VARIABLE = "PYTEST_ADDOPTS"


class Bridge:
    """The replay of every sound test's first measurement into pytest-benchmark."""

    def __init__(self, state: "RooflineSession") -> None:
        """Prepare to replay the times of a run's tests into pytest-benchmark."""
        self._state = state
        # The request of our fixture by the present test, and the test that uses their fixture.
        self._request: pytest.FixtureRequest | None = None
        self._benchmark_owner: object = None
        # By test id: the replayed measurement, and the `extra_info` of its benchmark, which is filled at the end.
        self._replays: dict[str, tuple[Measurement, dict[str, Any]]] = {}
        # The `extra_info` of the benchmarks that are left out in the end.
        self._withdrawn_info: list[dict[str, Any]] = []
        self._failed_tests: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: "pytest.FixtureDef[Any]", request: pytest.FixtureRequest
    ) -> None:
        """Keep our fixture's request, and their fixture's test."""
        if fixturedef.argname == FIXTURE:
            self._request = request
        elif fixturedef.argname == THEIRS:
            self._benchmark_owner = request.node

    def replay(self, item: pytest.Item) -> None:
        """Replay a test's first measurement into pytest-benchmark.

        A failure there is a warning. A test is left out if its verdict is INVALID, or if it ran out of memory.
        """
        # The request is used once, so that no later test replays with it.
        request, self._request = self._request, None
        test_id = encodable(item.nodeid)
        rows = self._state.timed.of(test_id)
        if not rows or not _is_sound(rows[0]):
            return
        if any(row.lost is not None for row in self._state.rows_of(test_id)):
            return
        measurement = rows[0].measurement
        if request is None or request.node is not item or measurement is None:
            return
        try:
            extra_info = self._run(request, measurement)
        except (Exception, pytest.skip.Exception, pytest.fail.Exception) as error:
            item.warn(
                pytest.PytestWarning(
                    f"{item.nodeid} was measured, but its times could not be given to pytest-benchmark: {error!r}"
                )
            )
            return
        if extra_info is None:
            return
        if test_id in self._replays:
            # A test has one row, so the benchmark of an earlier attempt is withdrawn.
            _, earlier_info = self._replays[test_id]
            self._withdrawn_info.append(earlier_info)
        self._replays[test_id] = measurement, extra_info

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test whose teardown failed; it gets no benchmark."""
        if report.failed and report.when == "teardown":
            self._failed_tests.add(encodable(report.nodeid))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, object, object]:
        """Add the final verdicts to the benchmarks, or withdraw them.

        This hook runs before that of pytest-benchmark, which writes its files.
        """
        for test_id, (measurement, extra_info) in self._replays.items():
            rows = self._state.timed.of(test_id)
            if test_id in self._failed_tests or not rows or not _is_sound(rows[0]):
                self._withdrawn_info.append(extra_info)
            else:
                extra_info.update(_extra_info(self._state, measurement, rows))
        return (yield)

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> None:
        """Leave withdrawn benchmarks out of their files."""
        output_json["benchmarks"][:] = self._without_withdrawn(output_json["benchmarks"])

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_benchmark_group_stats(self, benchmarks: list[dict[str, Any]]) -> None:
        """Leave withdrawn benchmarks out of their table, before others group it."""
        benchmarks[:] = self._without_withdrawn(benchmarks)

    def _without_withdrawn(self, benchmarks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the benchmarks that were not withdrawn.

        A benchmark is identified by the object `extra_info`, since several may have equal values.
        """
        return [
            benchmark
            for benchmark in benchmarks
            if not any(benchmark["extra_info"] is extra_info for extra_info in self._withdrawn_info)
        ]

    def _run(
        self, request: pytest.FixtureRequest, measurement: "Measurement"
    ) -> dict[str, Any] | None:
        """Replay the samples through their fixture; return its `extra_info`.

        It is None if the test used their fixture itself, or if pytest-benchmark is disabled.
        """
        require("exchange")
        from ..exchange.pytest_benchmark import clock_of, warmup_calls

        item, samples = request.node, measurement.samples
        # These describe our timing: garbage was not collected, and the warm-up is over. `pedantic` repeats neither.
        timing = {
            "timer": _clock(samples.kept, clock_of(samples)),
            "disable_gc": True,
            "cprofile": False,
            "warmup": True,
            "warmup_iterations": warmup_calls(samples),
        }
        _mark(item, measurement.key.benchmark, timing)
        # `pytest_fixture_setup` sets this test as the owner, unless the fixture was set up before.
        self._benchmark_owner = None
        benchmark = request.getfixturevalue(THEIRS)
        if self._benchmark_owner is not item:
            return None
        # With more iterations pytest-benchmark would divide each sample, and change its last bits.
        benchmark.pedantic(lambda: None, rounds=len(samples.kept), iterations=1)
        # Without statistics pytest-benchmark is disabled.
        if benchmark.stats is None:
            return None
        benchmark.stats.iterations = samples.iterations
        return benchmark.extra_info  # type: ignore[no-any-return]


class AmongBenchmarks:
    """Under `--benchmark-only`: keeps our tests, which lack their fixture, from being skipped."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, items: list[pytest.Item]
    ) -> Generator[None, object, object]:
        """Show our tests as users of their fixture during collection."""
        changed_lists: list[list[str]] = []
        for item in items:
            names = getattr(item, "fixturenames", [])
            # Parametrized tests share one list, so the name may be there already.
            if FIXTURE in names and THEIRS not in names:
                names.append(THEIRS)
                changed_lists.append(names)
        try:
            return (yield)
        finally:
            for names in changed_lists:
                names.remove(THEIRS)


def bridge_of(state: "RooflineSession") -> Bridge | None:
    """Return the bridge to pytest-benchmark, if it is asked.

    It is None unless the options ask for pytest-benchmark's times.
    """
    config = state.config
    words = [
        *config.invocation_params.args,
        *config.getini("addopts"),
        *shlex.split(os.environ.get(ADDOPTS_VARIABLE, "")),
    ]
    has_their_option = any(str(word).startswith(THEIR_OPTIONS) for word in words)
    if not has_their_option or not config.pluginmanager.hasplugin(THEIR_SESSION):
        return None
    is_skipped = config.getoption("benchmark_skip", False) and not config.getoption(
        "benchmark_only", False
    )
    # pytest-codspeed takes the place of pytest-benchmark's fixture.
    is_replaced = config.getoption("codspeed", False)
    return None if is_skipped or is_replaced else Bridge(state)


def _extra_info(
    state: "RooflineSession", measurement: "Measurement", rows: "Sequence[Row]"
) -> dict[str, Any]:
    """Return the facts of a replayed measurement.

    They go into the `extra_info` of the benchmark. Those of the test's further measurements stand under `others`.
    """
    require("exchange")
    from ..exchange.exportable import facts, origin

    first, *other_rows = rows
    other_facts = [
        facts(row, [row.measurement]) for row in other_rows if row.measurement is not None
    ]
    info = facts(first, [measurement]) | origin(state.header)
    return info | {"others": other_facts} if other_facts else info


def _mark(item: pytest.Item, group: str, timing: Mapping[str, Any]) -> None:
    """Give a test the marker that pytest-benchmark reads.

    pytest-benchmark reads the closest marker only, so ours repeats the settings of the test's own.
    """
    marker = item.get_closest_marker(THEIRS)
    own = marker if marker is not None else pytest.mark.benchmark().mark
    settings = {"group": group, **own.kwargs, **timing}
    item.add_marker(pytest.mark.benchmark(*own.args, **settings), append=False)


def _is_sound(row: "Row") -> bool:
    """Return whether a row has a verdict other than INVALID.

    The row of a function that was replaced, as in a drill, is not sound: it measured another function.
    """
    return (
        row.time_verdict is not None
        and row.time_verdict.kind is not Kind.INVALID
        and "replaced" not in (row.labels or ())
    )


def _clock(seconds: Sequence[float], name: str) -> Callable[[], float]:
    """Return a timer whose stamps alternate between zero and a sample."""
    stamps = (stamp for sample in seconds for stamp in (0.0, sample))

    def clock() -> float:
        return next(stamps)

    clock.__name__ = name
    return clock
