"""A run that was told to pytest-benchmark live and the export of the same run are two rows of one table."""

import csv
import json
import subprocess
import sys

import pytest

from .conftest import texts
from .test_bridge import bench as bench

SUITE = """
import pytest
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9, payload_bytes=10**9)

def test_plain(roofline, busy): roofline.measure(lambda: busy(1e-3), work=WORK)

class TestGroup:
    @pytest.mark.parametrize("size", [1, 2.5, "a::b", "a]b[c]::d"], ids=str)
    def test_copy(self, roofline, busy, size): roofline.measure(lambda: busy(1e-3), work=WORK, peak_bytes=True)

@pytest.mark.parametrize("kind", [pytest.param("torch", id="aten::mm")])
def test_named(roofline, busy, kind):
    roofline.measure(lambda: busy(2e-3), work=WORK, name="forward")
    roofline.measure(lambda: busy(3e-3), work=Work(flops=10**9), name="back]ward[x]")
    roofline.measure(lambda: busy(1e-3), work=WORK)

def test_short(roofline, fake): roofline.measure(lambda: fake.work(3e-5), work=Work(read_bytes=100))

def test_job(roofline, busy): roofline.measure(lambda: busy(1e-3), work=Work(calls=1))
"""
# The options by which they say how was measured; the others are settings of theirs that change nothing of our tests.
OURS = ("disable_gc", "timer", "warmup")


def both(bench, *options):
    """What is replayed of a run and what its export holds, each by fullname."""
    result = bench.run("--benchmark-json=live.json", "--roofline-save=r", *options)
    exported = bench.cli("export", "r", "--to", "pytest-benchmark", "-o", "exported.json")
    assert 0 == exported.exit_code, exported.output
    files = (json.loads((bench.path / name).read_text(encoding="utf-8")) for name in ("live.json", "exported.json"))
    return [{one["fullname"]: one for one in file["benchmarks"]} for file in files], result


def test_every_value_of_a_replay_is_that_of_the_export(bench):
    bench.script(tick_s=1e-6)
    bench.suite(SUITE)
    (live, exported), result = both(bench)
    assert 0 == result.ret
    others = live["test_suite.py::test_named[aten::mm]"]["extra_info"].pop("others")
    for one in (*live.values(), *exported.values()):
        one["options"] = {name: one["options"][name] for name in OURS}
    named = "test_suite.py::test_named[aten::mm]"
    further = {name: exported.pop(name) for name in (f"{named}.back]ward[x]", f"{named}.3")}
    assert live == exported
    assert 8 == len(live)
    # What is a benchmark of its own in one stands beside the first in the other.
    origin = {"device", "device_uuid", "driver", "host", "run_id", "started", "tool"}
    assert others == [
        {name: value for name, value in one["extra_info"].items() if name not in origin} for one in further.values()
    ]
    assert {"aten::mm"} == {one["param"] for one in further.values()}
    assert {"a::b", "a]b[c]::d"} < {one["param"] for one in live.values()}
    short = live["test_suite.py::test_short"]
    assert 1 < short["stats"]["iterations"] == short["extra_info"]["calls_per_sample"]
    assert short["options"]["warmup"] > 0


def test_their_command_puts_both_into_one_table(bench):
    bench.suite(SUITE)
    (live, _), _ = both(bench)
    command = [sys.executable, "-m", "pytest_benchmark", "compare", "live.json", "exported.json", "--csv=c.csv"]
    done = subprocess.run(command, cwd=bench.path, capture_output=True, text=True, timeout=120, check=False)
    assert 0 == done.returncode, done.stderr
    for group, tests in (("plain", 2), ("TestGroup.copy", 8), ("named", 4), ("short", 2), ("job", 2)):
        assert f"benchmark '{group}': {tests} tests" in done.stdout
    assert "benchmark: " not in done.stdout
    with (bench.path / "c.csv").open(encoding="utf-8", newline="") as opened:
        medians = [(row["name"], float(row["median"])) for row in csv.DictReader(opened)]
    for name, one in live.items():
        assert 2 == medians.count((name, one["stats"]["median"])), name


def test_over_rounds_the_figures_are_of_all_processes_and_the_rounds_tell_of_how_many(bench, monkeypatch):
    monkeypatch.setenv("WITHOUT_TORCH", "1")
    one = SUITE.partition("class TestGroup")[0].replace("test_plain", "test_one")
    against = bench.sessions(one, (1.0, 1.005, 0.995, 1.0025, 0.9975))
    bench.script(slow={"test_one": [1.035, 1.0]})
    (live, exported), _ = both(bench, "--roofline-rounds=4", *against)
    (replay,), (export,) = live.values(), exported.values()
    first, *later = bench.saved("r").measurements
    assert 1 == len(later)
    assert list(first.samples.kept) == replay["stats"]["data"]
    assert [*first.samples.kept, *later[0].samples.kept] == export["stats"]["data"]
    told, other = replay["extra_info"], export["extra_info"]
    counts = ("samples", "samples_left_out")
    assert {n: v for n, v in told.items() if n not in counts} == {n: v for n, v in other.items() if n not in counts}
    assert (len(first.samples.kept), 2) == (told["samples"], told["processes"])
    assert len(export["stats"]["data"]) == other["samples"]
    # The centre of both, by which the verdict's change is true.
    assert first.median_s > told["seconds"] > later[0].median_s
    assert told["baseline_s"] * (1 + told["change"]) == pytest.approx(told["seconds"])
    assert told["rate"] * 1e9 == pytest.approx(2e9 / told["seconds"])
    assert told["share_of_roofline"] == pytest.approx(2e9 / told["seconds"] / 3350e9)


APART = """
import pytest
from pytest_roofline import Work

@pytest.mark.benchmark(group="mine")
@pytest.mark.parametrize(("kind", "count"), [(object(), 3)], ids=["odd"])
def test_marked(roofline, busy, kind, count): roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))
"""


def test_what_a_run_file_does_not_hold_differs_as_the_page_says(bench):
    bench.suite(APART)
    (live, exported), _ = both(bench)
    (replay,), (export,) = live.values(), exported.values()
    assert ("mine", "marked") == (replay["group"], export["group"])
    assert {"count": 3, "id": "odd"} == export["params"]
    assert {"kind", "count"} == set(replay["params"])
    same = ("fullname", "name", "param", "stats", "extra_info")
    assert [replay[name] for name in same] == [export[name] for name in same]


def test_a_live_run_compares_with_an_export_and_warns_of_the_machine(bench):
    bench.suite(APART)
    both(bench)
    bench.script(slow=1.5)
    # It comes behind the last test, where pytest no longer keeps warnings for its summary.
    with pytest.warns(match=r"Benchmark machine_info is different\. Current: .* VS saved: "):
        result = bench.run("--benchmark-compare=exported.json", "--benchmark-compare-fail=median:49%")
    assert 0 != result.ret
    assert "Field 'median' has failed PercentageRegressionCheck: 50.0" in texts(result)
